"""What a root holds before anything runs in it, made without following links."""

import pytest

from clawrl_gym.envs.sandbox.tree import (
    host_loader_cache,
    is_plain,
    make_common,
    make_folder,
    make_links,
    make_tree,
    set_aside,
)


def entries(root):
    """Folders and links by path, files by content; the host's own alternatives left out."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.startswith("etc/alternatives/") or name in ("lib64", "lib32"):
            continue
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = path.read_bytes()
        else:
            found[name] = "/"
    return found


def test_the_default_root_has_what_programs_look_for(tmp_path):
    make_tree(tmp_path)
    folders = "etc root home opt run srv mnt proc dev usr var var/log var/lib var/cache"
    links = {
        "bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "var/run": "../run",
        "etc/localtime": "/usr/share/zoneinfo/Etc/UTC", "etc/mtab": "/proc/self/mounts",
    }  # fmt: skip
    files = {name: data for name, data in entries(tmp_path).items() if isinstance(data, bytes)}
    assert entries(tmp_path) == (
        files
        | dict.fromkeys([*folders.split(), "etc/alternatives"], "/")
        | {name: f"-> {target}" for name, target in links.items()}
    )
    assert set(files) == {
        f"etc/{name}"
        for name in (
            "passwd", "group", "hosts", "hostname", "nsswitch.conf", "timezone", "profile",
            "ld.so.cache",
        )
    }  # fmt: skip
    assert files["etc/hostname"] == b"sandbox\n"
    assert files["etc/ld.so.cache"] == host_loader_cache()
    assert (tmp_path / "root").stat().st_mode & 0o7777 == 0o700


def test_alternatives_of_the_host_are_links_below_usr_and_no_manual_pages(tmp_path):
    make_tree(tmp_path)
    made = list((tmp_path / "etc/alternatives").iterdir())
    assert all(str(link.readlink()).startswith("/usr/") for link in made)
    assert not any("/man/" in str(link.readlink()) for link in made)
    assert "awk" in {link.name for link in made}


def test_every_root_has_folders_for_temporary_files_and_the_working_directory(tmp_path):
    make_common(tmp_path, "/srv/../app//task/")
    assert set(entries(tmp_path)) == {
        "app", "app/task", "dev", "proc", "root", "tmp", "var", "var/tmp",
    }  # fmt: skip
    for name in ("tmp", "var/tmp"):
        assert (tmp_path / name).stat().st_mode & 0o7777 == 0o1777
    make_common(tmp_path, "/app/task")


def test_no_folder_is_made_through_a_link(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir(mode=0o755)
    (root / "tmp").symlink_to(outside)
    (root / "app").symlink_to(outside)
    make_common(root, "/app/work")
    assert not make_folder(root, "app/work")
    assert list(outside.iterdir()) == []
    assert outside.stat().st_mode & 0o7777 == 0o755
    assert make_folder(root, "a/b/c")
    assert (root / "a/b/c").is_dir()


def test_a_plain_folder_has_no_link_on_its_way(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/f").touch()
    (tmp_path / "l").symlink_to("a")
    assert is_plain(tmp_path, "a")
    assert is_plain(tmp_path, "a/b")
    for path in ("l", "l/b", "a/f", "a/none", "none"):
        assert not is_plain(tmp_path, path), path


@pytest.mark.parametrize("what", ["folder", "link", "file", "nothing"])
def test_what_has_a_name_is_taken_away_whole(tmp_path, what):
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    place = tmp_path / "root" / "bin"
    place.parent.mkdir()
    if what == "folder":
        (place / "deep").mkdir(parents=True)
    if what == "link":
        place.symlink_to(outside)
    if what == "file":
        place.touch()
    set_aside(place)
    assert not place.is_symlink()
    assert not place.exists()
    assert (outside / "deep").is_dir()
    left = [path.name for path in place.parent.glob(".replaced-*/*")]
    assert left == (["bin"] if what == "folder" else [])


def test_links_take_the_place_of_what_a_given_root_has(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").symlink_to("/elsewhere")
    make_links(tmp_path)
    assert [str((tmp_path / name).readlink()) for name in ("bin", "sbin", "lib")] == [
        "usr/bin", "usr/sbin", "usr/lib",
    ]  # fmt: skip
