"""Files by paths that somebody hostile arranged, on an ordinary folder."""

import os

import pytest

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.files import file_mode, read_file, write_file


@pytest.fixture
def outside(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_bytes(b"host")
    return tmp_path / "outside"


@pytest.fixture
def root(tmp_path, outside):
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def root_fd(root):
    fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_what_is_written_is_read(root_fd, root):
    write_file(root_fd, "/a/b/c.txt", b"hello", 0o640, None)
    assert read_file(root_fd, "/a/b/c.txt", 5) == b"hello"
    assert file_mode(root_fd, "a/b/c.txt") == 0o640
    assert (root / "a/b/c.txt").read_bytes() == b"hello"


@pytest.mark.root
def test_files_and_folders_belong_to_the_user_and_the_group(root_fd, root):
    write_file(root_fd, "/a/f", b"", 0o644, (1234, 567))
    for path in (root / "a", root / "a/f"):
        status = path.stat()
        assert (status.st_uid, status.st_gid) == (1234, 567)


def test_a_shorter_text_replaces_a_longer_one(root_fd):
    write_file(root_fd, "/a", b"long text", 0o644, None)
    write_file(root_fd, "/a", b"short", 0o600, None)
    assert read_file(root_fd, "/a", 100) == b"short"
    assert file_mode(root_fd, "/a") == 0o600


def test_links_out_are_resolved_inside(root_fd, root, outside):
    (root / "absolute").symlink_to(outside / "secret")
    (root / "climbing").symlink_to("../../outside/secret")
    (root / "folder").symlink_to("../outside")
    for path in ("/absolute", "/climbing", "/folder/secret", "/../outside/secret"):
        with pytest.raises(FileNotFoundError):
            read_file(root_fd, path, 100)


def test_links_inside_are_followed(root_fd, root):
    write_file(root_fd, "/real", b"inside", 0o644, None)
    (root / "link").symlink_to("/real")
    assert read_file(root_fd, "/link", 100) == b"inside"


def test_writing_through_a_link_out_touches_nothing_outside(root_fd, root, outside):
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    for path in ("/folder/secret", "/file"):
        with pytest.raises(SandboxError):
            write_file(root_fd, path, b"overwritten", 0o644, None)
    assert (outside / "secret").read_bytes() == b"host"
    assert list(outside.iterdir()) == [outside / "secret"]


@pytest.mark.parametrize("path", ["/", "", "/a/../b", ".."])
def test_paths_that_name_no_file_are_refused_for_writing(root_fd, path):
    with pytest.raises(SandboxError, match=r"without '\.\.'"):
        write_file(root_fd, path, b"", 0o644, None)


def test_a_pipe_is_refused_at_once(root_fd, root):
    os.mkfifo(root / "pipe")
    with pytest.raises(SandboxError, match="not a regular file"):
        read_file(root_fd, "/pipe", 100)
    with pytest.raises(SandboxError):
        write_file(root_fd, "/pipe", b"x", 0o644, None)


def test_a_folder_is_no_file(root_fd, root):
    (root / "folder").mkdir()
    with pytest.raises(SandboxError):
        read_file(root_fd, "/folder", 100)
    with pytest.raises(SandboxError):
        write_file(root_fd, "/folder", b"x", 0o644, None)


def test_a_huge_sparse_file_is_refused_by_its_size(root_fd, root):
    with (root / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(SandboxError, match=r"1099511627776 bytes, at most 10"):
        read_file(root_fd, "/huge", 10)


def test_a_file_of_just_the_limit_is_read(root_fd):
    write_file(root_fd, "/f", b"x" * 10, 0o644, None)
    assert read_file(root_fd, "/f", 10) == b"x" * 10
    with pytest.raises(SandboxError, match="at most 9"):
        read_file(root_fd, "/f", 9)


def test_strange_names_are_plain_names(root_fd):
    name = "/a b\n'\"\\$(x)\u00e9"
    write_file(root_fd, name, b"1", 0o644, None)
    assert read_file(root_fd, name, 10) == b"1"


def test_a_nul_in_a_name_is_refused(root_fd):
    with pytest.raises(SandboxError, match="NUL"):
        read_file(root_fd, "/a\0b", 10)
