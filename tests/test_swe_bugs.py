"""Which changes of a repository are tried, in what order, and what became of them."""

import json
import os
import sys
import tarfile

import pytest

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.envs.swe.archive import PackedFile, open_archive, pack
from clawrl_gym.envs.swe.bugs.attempts import Attempt, Attempts, Setting
from clawrl_gym.envs.swe.bugs.candidates import Candidates, find_candidates
from clawrl_gym.envs.swe.bugs.mutations import NOTHING_RETURNED, Mutation
from clawrl_gym.envs.swe.bugs.suite import Baseline
from clawrl_gym.envs.swe.protected_files import ProtectedFiles
from clawrl_gym.envs.twins.text import Change

CODE = b"def add(a, b):\n    return a + b\n\n\ndef less(a, b):\n    return a < b and a != 0\n"
TESTS = ProtectedFiles(frozenset({"tests/test_a.py"}), frozenset(), frozenset())
SETTING = Setting("abc", "pytest", "3.11", "bubblewrap")
BASELINE = Baseline(("t::a", "t::b"), ("slow",), 60)


def found(seed=1, **files):
    named = {name.replace("__", "/") + ".py": PackedFile(data) for name, data in files.items()}
    return find_candidates(named, TESTS, seed, "repo")


def test_changes_are_those_of_the_repositorys_own_code():
    candidates = found(a=CODE, tests__test_a=CODE, b=b"X = 1\n")
    assert sorted(candidates.by_place) == ["a.py::add", "a.py::less"]
    assert candidates.texts == {"a.py": CODE.decode()}
    assert candidates.left_out == ()
    assert candidates.count == sum(len(of_place) for of_place in candidates.by_place.values())
    text = find_candidates({"a.txt": PackedFile(CODE), "b.py": PackedFile(CODE)}, TESTS, 1, "repo")
    assert sorted(text.by_place) == ["b.py::add", "b.py::less"]


def test_a_seed_is_an_order_and_the_bluntest_changes_come_last():
    orders = {
        tuple(m.name for m in found(seed, a=CODE).by_place["a.py::less"]) for seed in range(9)
    }
    assert len(orders) > 1
    places = {tuple(found(seed, a=CODE).by_place) for seed in range(9)}
    assert len(places) == 2
    assert found(3, a=CODE) == found(3, a=CODE)
    for of_place in found(a=CODE).by_place.values():
        blunt = [mutation.kind == NOTHING_RETURNED for mutation in of_place]
        assert blunt == sorted(blunt)
        assert any(blunt)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (CODE[:-1], "its last line does not end"),
        (b"def f(:\n", f"read by Python {sys.version_info[0]}.{sys.version_info[1]}"),
        (b"\xff\n", "can't decode byte"),
        (CODE + b"#" * (1_000_000 - len(CODE)) + b"\n", "it has over 1000000 bytes"),
    ],
)
def test_a_file_that_cannot_be_changed_is_left_out_with_its_reason(data, why):
    (left_out,) = found(a=CODE, b=data).left_out
    assert left_out.name == "b.py"
    assert left_out.reason.startswith("the file cannot be changed: ")
    assert why in left_out.reason
    with pytest.raises(ConfigError, match=r"'repo' has no Python function .* \(b\.py: the file"):
        found(b=data)


def test_a_file_of_a_million_bytes_and_an_empty_one_are_read():
    full = CODE + b"#" * (999_999 - len(CODE)) + b"\n"
    assert found(a=full, b=b"").left_out == ()
    with pytest.raises(ConfigError, match=r"outside of its tests to make a bug in$"):
        found(b=b"")


def changes(place, count):
    return [Mutation("a.py", place, "k", Change(n, n, place)) for n in range(count)]


def test_rounds_take_some_of_each_function_that_is_not_done():
    by_place = {"a": changes("a", 5), "b": changes("b", 2), "c": changes("c", 3)}
    candidates = Candidates(by_place, {}, ())
    rounds = [
        [f"{m.function}{m.change.start}" for m in one] for one in candidates.rounds(lambda _: False)
    ]
    assert rounds == [["a0", "b0", "c0", "a1", "b1", "c1", "a2", "c2"], ["a3", "a4"]]
    seen = []

    def is_done(earlier):
        seen.append(len(earlier))
        return len(earlier) > 0

    assert [len(one) for one in candidates.rounds(is_done)] == [8, 0]
    assert set(seen) == {0, 3}
    assert len(next(Candidates({"a": changes("a", 9)}, {}, ()).rounds(lambda _: False))) == 8
    many = Candidates({f"{n}": changes(f"{n}", 2) for n in range(9)}, {}, ())
    assert [len(one) for one in many.rounds(lambda _: False)] == [9, 9]
    assert list(Candidates({}, {}, ()).rounds(lambda _: False)) == []


def test_what_was_tried_is_known_when_one_begins_again(tmp_path):
    attempts = Attempts(tmp_path, SETTING)
    assert attempts.baseline is None
    attempts.begin(BASELINE)
    bug = Attempt("m1", "", ("t::a",), "It is broken.")
    attempts.add(bug)
    attempts.add(Attempt("m2", "nothing fails", is_noticed=False))
    with attempts.path.open("a") as file:
        file.write('{"name": "m3", "rea')
    again = Attempts(tmp_path, SETTING)
    assert again.baseline == BASELINE
    assert again.by_name == attempts.by_name
    assert again.by_name["m1"] == bug
    assert len(attempts.path.read_text().splitlines()) == 4


@pytest.mark.parametrize("name", ["commit", "test_command", "python", "sandbox"])
def test_attempts_of_another_setting_are_refused(tmp_path, name):
    Attempts(tmp_path, SETTING).begin(BASELINE)
    fields = {"commit": "abc", "test_command": "pytest", "python": "3.11", "sandbox": "bubblewrap"}
    with pytest.raises(ConfigError, match=f"was begun with {name} '{fields[name]}', got 'x'"):
        Attempts(tmp_path, Setting(**{**fields, name: "x"}))


@pytest.mark.parametrize("text", ["", "[]\n", "{}\n", json.dumps({"setting": {"a": 1}})])
def test_a_file_that_holds_no_attempts_is_refused(tmp_path, text):
    (tmp_path / "_attempts.jsonl").write_text(text)
    with pytest.raises(ConfigError, match="is no file of attempts"):
        Attempts(tmp_path, SETTING)


def test_a_packed_repository_has_its_files_as_git_has_them(tmp_path):
    files = {
        "run.py": PackedFile(b"x = '\xff'\n", 0o100755),
        "a/link": PackedFile(b"../run.py", 0o120000),
        "a/b.txt": PackedFile(b"text"),
        "link.py": PackedFile(b"run.py", 0o120000),
    }
    path = tmp_path / "packed.tar.gz"
    path.write_bytes(pack(files))
    with tarfile.open(path) as archive:
        members = [(m.name, m.type, m.mode, m.size, m.linkname) for m in archive]
    assert members == [
        ("a/b.txt", tarfile.REGTYPE, 0o644, 4, ""),
        ("a/link", tarfile.SYMTYPE, 0o644, 0, "../run.py"),
        ("link.py", tarfile.SYMTYPE, 0o644, 0, "run.py"),
        ("run.py", tarfile.REGTYPE, 0o755, 8, ""),
    ]
    opened = open_archive(str(path))
    assert opened.names == set(files)
    assert opened.texts == {"run.py": "x = '\udcff'\n"}
    assert opened.packed == path.read_bytes() == pack(dict(reversed(files.items())))


def test_a_packed_repository_that_is_missing_or_too_large_is_refused(tmp_path):
    with pytest.raises(TaskError, match=r"none\.tar\.gz': No such file"):
        open_archive(str(tmp_path / "none.tar.gz"))
    huge = tmp_path / "huge.tar.gz"
    huge.touch()
    os.truncate(huge, (64 << 20) + 1)
    with pytest.raises(TaskError, match="has over 67108864 bytes"):
        open_archive(str(huge))
