"""Folders that travel: the same on the other side, once a machine, and never half."""

import os
import stat
from pathlib import Path

import pytest

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files import archive as archives
from clawrl_gym.core.files.archive import pack, unpack


def make(folder: Path) -> Path:
    (folder / "task" / "tests").mkdir(parents=True)
    (folder / "task" / "run.sh").write_text("#!/bin/sh\necho hi\n")
    (folder / "task" / "run.sh").chmod(0o755)
    (folder / "task" / "tests" / "a.txt").write_bytes(bytes(range(256)))
    (folder / "task" / "link").symlink_to("tests/a.txt")
    (folder / "task" / "same").hardlink_to(folder / "task" / "run.sh")
    (folder / "task" / "empty").mkdir()
    return folder


def tree(folder: Path) -> dict[str, object]:
    def of(path: Path) -> object:
        if path.is_symlink():
            return str(path.readlink())
        if path.is_dir():
            return "folder"
        return path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR)

    return {str(path.relative_to(folder)): of(path) for path in sorted(folder.rglob("*"))}


def test_a_folder_arrives_as_it_is_and_only_once(tmp_path: Path) -> None:
    source = make(tmp_path / "source")
    os.mkfifo(source / "task" / "pipe")  # is left out, and nobody waits for it
    archive = pack(source)
    (source / "task" / "pipe").unlink()
    place = unpack(archive, tmp_path / "cache")
    assert place.name == "source"
    assert tree(place) == tree(source)
    (place / "mark").write_text("")
    assert unpack(archive, tmp_path / "cache") == place
    assert (place / "mark").exists()
    assert [entry.name for entry in (tmp_path / "cache").iterdir()] == [archive.digest]
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700


def test_the_name_follows_contents_and_not_times(tmp_path: Path) -> None:
    first, second = make(tmp_path / "a" / "tasks"), make(tmp_path / "b" / "tasks")
    os.utime(second / "task" / "run.sh", (1.0, 1.0))
    assert pack(first).digest == pack(second).digest
    (second / "task" / "run.sh").chmod(0o644)
    assert pack(first).digest != pack(second).digest
    digest = pack(second).digest
    (second / "task" / "tests" / "a.txt").write_text("else")
    assert pack(second).digest != digest


def test_a_file_travels_too(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text("{}\n")
    place = unpack(pack(tmp_path / "tasks.jsonl"), tmp_path / "cache")
    assert place.name == "tasks.jsonl"
    assert place.read_text() == "{}\n"


def test_what_is_too_large_is_refused_and_what_is_old_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make(tmp_path / "source")
    old = unpack(pack(source), tmp_path / "cache").parent
    os.utime(old, (1.0, 1.0))
    (source / "more").write_text("more")
    unpack(pack(source), tmp_path / "cache")
    assert not old.exists()
    monkeypatch.setattr(archives, "MAX_BYTES", 100)
    with pytest.raises(ConfigError, match="put it at the same path on each of them"):
        pack(source)
