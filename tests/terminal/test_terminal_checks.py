import gzip
import io
import re
import stat
import tarfile
import zlib
from typing import Any

import pytest

from clawrl_gym.envs.showcase.terminal.families import FAMILIES
from clawrl_gym.envs.showcase.terminal.generated import make_task, task_ids
from clawrl_gym.envs.terminal.checks import (
    MAX_UNPACKED_BYTES,
    Absent,
    CommitHolds,
    FileIs,
    ModeIs,
    NamesPath,
    TarHolds,
)


def paths_of(checks: Any) -> set[str]:
    """The files that checks look at, but for commits."""
    return {check.path for check in checks if not isinstance(check, CommitHolds)}


class Left:
    """What an agent left, as two dictionaries."""

    def __init__(self, files, modes=None):
        self.files = files
        self.modes = modes or {}

    def read(self, path):
        return self.files.get(path)

    def mode(self, path):
        return self.modes.get(path, 0o644) if path in self.files else None

    def tree(self):
        return {path: stat.S_IFREG | self.mode(path) for path in self.files}


def packed(contents, fold=bytes):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return fold(buffer.getvalue())


@pytest.mark.parametrize(
    ("found", "loose", "exact"),
    [
        (b"a b\n", True, True),
        (b"a b", True, False),
        (b" a b\n\n", True, False),
        (b"a  b\n", False, False),
        (b"", False, False),
        (None, False, False),
    ],
)
def test_a_file_is_compared_but_for_the_white_space_around_it(found, loose, exact):
    left = Left({} if found is None else {"f": found})
    assert FileIs("f", b"a b\n").passed(left) is loose
    assert FileIs("f", b"a b\n", exact=True).passed(left) is exact


def test_absent_means_that_nothing_is_there():
    assert Absent("f").passed(Left({}))
    assert not Absent("f").passed(Left({"f": b""}))


def test_a_mode_is_compared_under_its_mask():
    left = Left({"f": b""}, {"f": 0o755})
    assert ModeIs("f", 0o755).passed(left)
    assert not ModeIs("f", 0o750).passed(left)
    assert ModeIs("f", 0o100, mask=0o100).passed(left)
    assert not ModeIs("g", 0o755).passed(left)


@pytest.mark.parametrize("found", [b"top/in/x", b"./top/in/x\n", b"/root/top/in/x", b"top//in/x"])
def test_a_path_may_be_spelled_in_many_ways(found):
    assert NamesPath("f", "top/in/x").passed(Left({"f": found}))


@pytest.mark.parametrize("found", [b"in/x", b"/top/in/x", b"top/in/x top/in/y", b"\xff", b"", None])
def test_another_path_is_wrong(found):
    assert not NamesPath("f", "top/in/x").passed(Left({} if found is None else {"f": found}))


@pytest.mark.parametrize("fold", [bytes, gzip.compress])
def test_an_archive_holds_exactly_its_files_however_it_is_packed(fold):
    check = TarHolds("t", (("a", b"1"), ("b", b"2")))
    assert check.passed(Left({"t": packed({"./a": b"1", "b": b"2"}, fold)}))
    assert not check.passed(Left({"t": packed({"a": b"1"}, fold)}))
    assert not check.passed(Left({"t": packed({"a": b"1", "b": b"3"}, fold)}))
    assert not check.passed(Left({"t": packed({"a": b"1", "b": b"2", "c": b""}, fold)}))


@pytest.mark.parametrize("found", [None, b"", b"no archive", b"\x1f\x8bbroken", b"\0" * 1024])
def test_what_is_no_archive_is_wrong_and_no_error(found):
    check = TarHolds("t", (("a", b"1"),))
    assert not check.passed(Left({} if found is None else {"t": found}))


def test_an_archive_that_unpacks_to_too_much_is_wrong():
    bomb = packed({"a": b"0" * (2 * MAX_UNPACKED_BYTES)}, gzip.compress)
    assert not TarHolds("t", (("a", b"0" * (2 * MAX_UNPACKED_BYTES)),)).passed(Left({"t": bomb}))
    for size, fits in ((1 << 20, True), ((1 << 20) + 1, False)):
        left = Left({"t": packed({"a": b"0" * size}, bytes)})
        assert TarHolds("t", (("a", b"0" * size),)).passed(left) is fits


def commit_task():
    """A git task that asks for a commit, its check, and the files of the right answer."""
    ids = task_ids("train", ["git"])
    task = next(t for t in map(make_task, ids[:50]) if isinstance(t.checks[0], CommitHolds))
    return task, task.checks[0]


def with_commit(task, check, message, entry):
    """The task's files after a commit of one entry."""
    tree = b"tree %d\0" % len(entry) + entry
    tree_id, commit_id = "ab" * 20, "cd" * 20
    commit = f"tree {tree_id}\nauthor o <o> 1 +0\n\n{message}\n".encode()
    objects = {
        tree_id: tree,
        commit_id: b"commit %d\0" % len(commit) + commit,
    }
    stored = {
        f"./.git/objects/{name[:2]}/{name[2:]}": zlib.compress(data)
        for name, data in objects.items()
    }
    return Left({**stored, f"./.git/refs/heads/{check.branch}": f"{commit_id}\n".encode()})


def test_a_commit_is_found_by_its_branch_message_and_file():
    task, check = commit_task()
    entry = f"100644 {check.file}\0".encode() + bytes.fromhex(check.blob)
    wrong = f"100644 {check.file}\0".encode() + bytes(20)
    assert check.passed(with_commit(task, check, check.message, entry))
    assert not check.passed(with_commit(task, check, "another", entry))
    assert not check.passed(with_commit(task, check, check.message, wrong))


@pytest.mark.parametrize("ref", [None, b"", b"../../../etc/passwd", b"zz" * 20, b"ab" * 20])
def test_a_broken_repository_is_wrong_and_no_error(ref):
    _, check = commit_task()
    files = {"./.git/objects/ab/" + "ab" * 19: b"no zlib stream"}
    if ref is not None:
        files[f"./.git/refs/heads/{check.branch}"] = ref
    assert not check.passed(Left(files))


@pytest.mark.parametrize("family", FAMILIES)
def test_wrong_content_fails_in_every_family(family):
    for task_id in task_ids("train", [family])[:50]:
        task = make_task(task_id)
        wanted = paths_of(task.checks)
        left = Left({**task.files, **dict.fromkeys(wanted, b"wrong")})
        assert not all(check.passed(left) for check in task.checks), task_id


@pytest.mark.parametrize(
    ("check", "left", "words"),
    [
        (FileIs("f", b"wanted"), Left({}), "f is missing"),
        (FileIs("f", b"wanted"), Left({"f": b"x"}), "f does not hold what was asked for"),
        (FileIs(".git/refs/tags/v1", b"x"), Left({}), "the git tag v1 is missing"),
        (FileIs(".git/refs/heads/b", b"x"), Left({}), "the git branch b is missing"),
        (Absent("f"), Left({"f": b""}), "f is still there"),
        (ModeIs("f", 0o600), Left({"f": b""}), "the permissions of f are 644, not as asked"),
        (
            ModeIs("f", 0o600),
            Left({"f": b""}, {"f": 0o4000}),
            "the permissions of f are 4000, not as asked",
        ),
        (ModeIs("f", 0o600), Left({}), "f is missing"),
        (NamesPath("f", "wanted"), Left({}), "f is missing"),
        (NamesPath("f", "wanted"), Left({"f": b"x"}), "f does not hold what was asked for"),
        (TarHolds("t", (("wanted", b"1"),)), Left({}), "t is missing"),
        (TarHolds("t", (("wanted", b"1"),)), Left({"t": b"x"}), "t is no archive"),
        (
            TarHolds("t", (("wanted", b"1"),)),
            Left({"t": packed({"a": b"1"})}),
            "t does not hold the files that were asked for",
        ),
        (CommitHolds(".", "main", "wanted", "f", "0" * 40), Left({}), "main has no commit"),
    ],
)
def test_a_check_says_what_failed_and_not_what_was_wanted(check, left, words):
    assert check.failure(left) == words
    assert words in check.possible_failures() or "4000" in words


def test_a_folder_in_a_files_place_is_not_called_missing():
    class Folder(Left):
        def read(self, path):
            return None

    left = Folder({"f": b""})
    for check in (FileIs("f", b""), NamesPath("f", "x"), TarHolds("f", ())):
        assert check.failure(left) == "f cannot be read as a file"


def test_what_is_wrong_with_a_commit_is_said():
    task, check = commit_task()
    entry = f"100644 {check.file}\0".encode() + bytes.fromhex(check.blob)
    _, message, file = check.possible_failures()
    assert check.failure(with_commit(task, check, "another", entry)) == message
    assert check.failure(with_commit(task, check, check.message, entry[:-1])) == file
    assert check.message not in message


def test_a_commit_without_a_readable_tree_is_wrong_and_no_error():
    """Bytes of an agent's own object are data: they cannot make the grader fail."""
    _, check = commit_task()
    commit = b"commit 1\0tree \xff\xfe\n\n" + check.message.encode()
    files = {
        f"./.git/refs/heads/{check.branch}": b"cd" * 20,
        "./.git/objects/cd/" + "cd" * 19: zlib.compress(commit),
    }
    assert not check.passed(Left(files))


def test_what_is_said_of_permissions_is_known_for_all_that_files_usually_have():
    said = ModeIs("f", 0o640).possible_failures()
    assert said[0] == "f is missing"
    modes = re.findall(r"are (\d+), not", " ".join(said[1:]))
    assert modes == ["644", "755", "600", "700", "444", "400", "664", "775", "777"]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_checks_say_is_known_before_and_gives_nothing_away(family):
    for task_id in task_ids("train", [family])[:30]:
        task = make_task(task_id)
        wanted = paths_of(task.checks)
        for left in (Left({}), Left({**task.files, **dict.fromkeys(wanted, b"wrong")})):
            for check in task.checks:
                words = check.failure(left)
                assert check.passed(left) is (words is None)
                assert words is None or words in check.possible_failures()
