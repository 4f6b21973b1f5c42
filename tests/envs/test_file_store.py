import pytest

from clawrl_gym.envs.file_store import FileStore, FileStoreError


def store(**files):
    return FileStore(files, "workspace", "notes/a.txt")


def test_a_store_is_full_with_64_files_and_their_contents_still_change():
    full = store(**{f"f{number}": "" for number in range(63)})
    assert full.write("last", "1") == "wrote last"
    with pytest.raises(FileStoreError, match="too many files: at most 64"):
        full.write("more", "1")
    full.write("./last", "2")
    assert full.read("last") == "2"
    assert len(full.files) == 64


def test_paths_and_contents_have_a_longest():
    files = store()
    files.write("a" * 200, "b" * 65_536)
    assert files.read("a" * 200) == "b" * 65_536
    with pytest.raises(FileStoreError, match="the path is too long: at most 200 characters"):
        files.write("a" * 201, "b")
    with pytest.raises(FileStoreError, match="the content is too long: at most 65536 characters"):
        files.write("a", "b" * 65_537)
    assert list(files.files) == ["a" * 200]


@pytest.mark.parametrize("path", ["", "  ", ".", "..", "/a", "../a", "a/../..", "a/../../b", "a\0"])
def test_a_path_leads_nowhere_else(path):
    for call in (lambda: store().read(path), lambda: store().write(path, "")):
        with pytest.raises(FileStoreError, match=r"below the workspace, such as notes/a\.txt"):
            call()


def test_a_path_is_the_same_however_it_is_written():
    files = store(**{"a/b": "1"})
    assert [files.read(path) for path in ("a/b", " ./a//b ", "a/c/../b")] == ["1"] * 3
    with pytest.raises(FileStoreError, match="File not found: a/c"):
        files.read("a/./c")
