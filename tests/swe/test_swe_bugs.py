"""Which changes of a repository are tried, in what order, and what became of them."""

import json
import os
import sys
import tarfile
from types import SimpleNamespace
from typing import Any

import pytest

from clawrl_gym.core.errors import ConfigError, EnvError, TaskError
from clawrl_gym.envs.selection import LeftOut, Selection
from clawrl_gym.envs.swe.bugs.attempts import Attempt, Attempts, Setting
from clawrl_gym.envs.swe.bugs.candidates import Candidates, find_candidates
from clawrl_gym.envs.swe.bugs.head import Head
from clawrl_gym.envs.swe.bugs.issue import issue_text
from clawrl_gym.envs.swe.bugs.maker import BugMaker
from clawrl_gym.envs.swe.bugs.mutations import NOTHING_RETURNED, Mutation
from clawrl_gym.envs.swe.bugs.suite import Baseline, SuiteRun, TestsHang, measure, script_of
from clawrl_gym.envs.swe.evaluation import PatchFails
from clawrl_gym.envs.swe.rows.archive import PackedFile, open_archive, pack
from clawrl_gym.envs.swe.rows.protected_files import ProtectedFiles
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
    with pytest.raises(ConfigError, match=f"was started with {name} '{fields[name]}', got 'x'"):
        Attempts(tmp_path, Setting(**{**fields, name: "x"}))


@pytest.mark.parametrize("text", ["", "[]\n", "{}\n", json.dumps({"setting": {"a": 1}})])
def test_a_file_that_holds_no_attempts_is_refused(tmp_path, text):
    (tmp_path / "_attempts.jsonl").write_text(text)
    with pytest.raises(ConfigError, match="is not a file of attempts"):
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


class Told:
    """Tests of a repository whose results are said for each change of it."""

    command = "pytest -q"
    instance = SimpleNamespace(python="/env/bin/python")

    def __init__(self, result):
        self.result = result
        self.asked = []

    def run(self, patch, limit_s):
        self.asked.append((patch.text, limit_s))
        result = self.result(len(self.asked)) if callable(self.result) else self.result
        if isinstance(result, Exception):
            raise result
        return result


def ran(exit_code=1, log="", **statuses):
    return SuiteRun(
        {f"t::{name}": status for name, status in statuses.items()}, exit_code, log, 1.0
    )


def maker(folder, suite, by_place, texts=None, said=None):
    attempts = Attempts(folder, SETTING)
    candidates = Candidates(by_place, texts or {"a.py": CODE.decode()}, ())
    head = Head("shop", "abc", {}, ())
    heard = said if said is not None else []
    (folder / "repository.tar.gz").write_bytes(pack({"a.py": PackedFile(CODE)}))
    say = lambda bugs, tried: heard.append((bugs, tried))  # noqa: E731
    return BugMaker(head, folder, suite, candidates, attempts, BASELINE, say)


ADD = Mutation("a.py", "add", "operator", Change(28, 29, "-"))
LESS = Mutation("a.py", "less", "comparison", Change(63, 64, "<="))
ONE_FAILS = ran(a="FAILED", b="PASSED", c="FAILED")


@pytest.mark.parametrize(
    ("result", "reason", "is_noticed"),
    [
        (TestsHang(), "the tests run past 60 s with it", True),
        (PatchFails("they filled the disk"), "its tests cannot be judged: they filled the disk",
         True),
        (ran(a="PASSED", b="PASSED", c="FAILED"), "no test fails with it", False),
        (ran(a="FAILED", b="ERROR"), "every test fails with it", True),
        (ran(), "every test fails with it", True),
        (ran(0, a="FAILED", b="PASSED"),
         "tests fail with it, but the test command ends with 0", True),
        (ONE_FAILS, "", True),
        (ran(None, b="PASSED"), "", True),
    ],
)  # fmt: skip
def test_what_becomes_of_a_change_is_what_its_tests_say(tmp_path, result, reason, is_noticed):
    said: list[Any] = []
    suite = Told(result)
    made = maker(tmp_path, suite, {"a": [ADD]}, said=said)
    made.make(1, 1)
    attempt = made.attempts.by_name[ADD.name]
    assert (attempt.reason, attempt.is_noticed) == (reason, is_noticed)
    assert attempt.fail_to_pass == (() if reason else ("t::a",))
    assert bool(attempt.issue) == (not reason)
    assert said == [(0 if reason else 1, 1)]
    ((patch, limit_s),) = suite.asked
    assert limit_s == 60
    assert "-    return a + b\n+    return a - b\n" in patch
    made.make(1, 1)
    assert len(suite.asked) == 1  # what is known is not tried again


def test_a_change_that_means_the_same_is_not_tried(tmp_path):
    same = Mutation("a.py", "add", "operator", Change(27, 27, " "))
    suite = Told(ONE_FAILS)
    made = maker(tmp_path, suite, {"a": [same]})
    made.make(1, 1)
    attempt = made.attempts.by_name[same.name]
    assert attempt == Attempt(same.name, "it means the same, or is no Python", is_noticed=False)
    assert suite.asked == []


def test_five_sandboxes_that_fail_in_a_row_are_the_machine_s_doing(tmp_path):
    many = {
        f"{n}": [Mutation("a.py", "add", f"{n}", Change(28, 29, f"- {n} -"))] for n in range(12)
    }
    failing = Told(lambda number: ONE_FAILS if number == 5 else EnvError("no room"))
    made = maker(tmp_path, failing, many)
    with pytest.raises(EnvError, match="its sandbox failed: no room"):
        made.make(9, 1)
    assert len(failing.asked) == 10
    assert len(made.attempts.by_name) == 1


def test_one_stops_when_there_are_enough(tmp_path):
    many = {f"{n}": [Mutation("a.py", "add", f"{n}", Change(28, 29, f"- {n} -"))] for n in range(9)}
    said: list[Any] = []
    made = maker(tmp_path, Told(ONE_FAILS), many, said=said)
    made.make(3, 2)
    assert said == [(1, 1), (2, 2), (3, 3), (4, 4)]
    rows = made.write(3).rows
    assert len(rows["train"]) + len(rows["heldout"]) == 3


def test_a_function_that_no_test_looks_at_is_given_up(tmp_path):
    many = [Mutation("a.py", "add", f"{n}", Change(28, 29, f"- {n} -")) for n in range(9)]
    unnoticed = Told(ran(0, a="PASSED", b="PASSED"))
    made = maker(tmp_path, unnoticed, {"a": many})
    made.make(9, 1)
    assert len(unnoticed.asked) == 8  # the first round
    noticed = Told(lambda number: ran(a="FAILED", b="FAILED") if number == 1 else unnoticed.result)
    (tmp_path / "b").mkdir()
    maker(tmp_path / "b", noticed, {"a": many}).make(9, 1)
    assert len(noticed.asked) == 9


def test_a_bug_is_a_row_in_the_fields_of_swe_bench(tmp_path):
    made = maker(tmp_path, Told(ONE_FAILS), {"a": [ADD]})
    made.make(1, 1)
    bugs = made.write(1)
    (row,) = bugs.rows["train"]
    assert (bugs.rows["heldout"], bugs.selection) == ([], Selection(1, ()))
    patch = row.pop("patch")
    assert "-    return a - b\n+    return a + b\n" in patch
    assert row == {
        "instance_id": f"shop-{ADD.name}",
        "repo": "shop",
        "base_commit": "abc",
        "problem_statement": made.attempts.by_name[ADD.name].issue,
        "FAIL_TO_PASS": ["t::a"],
        "PASS_TO_PASS": ["t::b"],
        "log_parser": "parse_log_pytest",
        "eval_script": script_of("pytest -q", 60),
        "repository": "repository.tar.gz",
        "repository_sha256": open_archive(str(tmp_path / "repository.tar.gz")).sha256,
        "python": "/env/bin/python",
        "function": "a.py::add",
        "mutation": "operator",
    }
    (line,) = (tmp_path / "train.jsonl").read_text().splitlines()
    assert json.loads(line) == {**row, "patch": patch}
    assert (tmp_path / "heldout.jsonl").read_text() == ""


def test_an_issue_that_reads_the_same_stands_in_one_split_only(tmp_path):
    made = maker(tmp_path, Told(ONE_FAILS), {"a": [ADD], "b": [LESS]})
    for mutation in (ADD, LESS):
        made.attempts.add(Attempt(mutation.name, "", ("t::a",), "It is\n broken."))
    bugs = made.write(9)
    assert [len(rows) for rows in bugs.rows.values()] in ([1, 0], [0, 1])
    (left_out,) = bugs.selection.left_out
    assert left_out.name in ("a.py::add (operator)", "a.py::less (comparison)")
    assert left_out.reason == "its issue reads as that of a bug in the other split"


def test_why_a_change_is_no_bug_is_told_with_its_function(tmp_path):
    made = maker(tmp_path, Told(ran(0, a="PASSED", b="PASSED")), {"a": [ADD]})
    made.make(1, 1)
    bugs = made.write(1)
    assert bugs.selection == Selection(
        0, (LeftOut("a.py::add (operator)", "no test fails with it"),)
    )


def measured(suite: Any, limit_s: int, say: Any) -> Baseline:
    return measure(suite, limit_s, say)


PASS = ran(0, a="PASSED", b="PASSED")


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (TestsHang(), r"^the tests \('pytest -q'\) did not end within 9 s at HEAD: give a"),
        (PatchFails("too much"), r"^the tests \('pytest -q'\) cannot be judged: too much$"),
        (ran(5, "none"), r"^'pytest -q' finds no tests at HEAD"),
        (ran(127, "bash:  x"), r"^'pytest -q' does not start: bash: x; give --python"),
        (ran(1, "No module named pytest"), "does not start: No module named pytest; give"),
        (ran(3, "y" * 500), f"reports no test, expected .*: exit code 3, '{'y' * 400}'$"),
        (ran(1, "why", a="FAILED", b="ERROR", c="SKIPPED"),
         r"^no test passes at HEAD \(2 fail\), .*: 'why'; does it need"),
        (ran(2, a="PASSED"), r"^all tests pass at HEAD, but 'pytest -q' ends with exit code 2, as"),
    ],
)  # fmt: skip
def test_a_repository_whose_tests_tell_nothing_is_refused(result, why):
    with pytest.raises(ConfigError, match=why):
        measured(Told(result), 9, lambda line: None)


def test_tests_are_measured_twice_and_given_five_times_as_long():
    said: list[str] = []
    suite = Told(lambda number: SuiteRun(PASS.statuses, None, "", 10.1 * number))
    baseline = measured(suite, 300, said.append)
    assert baseline == Baseline(("t::a", "t::b"), (), 101)
    assert suite.asked == [("", 300)] * 2
    assert said == [
        "running the tests as they are, 1 of 2",
        "running the tests as they are, 2 of 2",
    ]
    assert measured(Told(PASS), 300, said.append).limit_s == 20


def test_tests_that_are_left_out_are_named_up_to_three():
    failing = {f"f{n}": "FAILED" for n in range(4)}
    (note,) = measured(Told(ran(1, a="PASSED", **failing)), 9, lambda line: None).notes
    assert note == "tests that fail at HEAD, left out: 4 (t::f0, t::f1, t::f2, ...)"
    del failing["f3"]
    (note,) = measured(Told(ran(1, a="PASSED", **failing)), 9, lambda line: None).notes
    assert note == "tests that fail at HEAD, left out: 3 (t::f0, t::f1, t::f2)"


def test_a_test_fails_at_head_that_failed_in_the_first_run():
    ends = ("FAILED", "SKIPPED")
    told = Told(lambda number: ran(1, a="PASSED", x=ends[number - 1], y=ends[number - 2]))
    baseline = measured(told, 9, lambda line: None)
    assert baseline.passing == ("t::a",)
    assert baseline.notes == ("tests that fail at HEAD, left out: 1 (t::x)",)


def test_a_script_runs_the_tests_within_their_time():
    script = script_of("pytest -k 'a b'", 60)
    assert "export PYTEST_ADDOPTS='-rA --color=no --tb=auto'; " in script
    assert "timeout --kill-after=10 60 bash -c 'pytest -k '\"'\"'a b'\"'\"''" in script


LOG = """\
=================================== FAILURES ===================================
__________________________________ test_x ___________________________________

    def test_x():
>       check()

t.py:3:
_ _ _ _

    def check():
>       assert f() == 1
E       assert 2 == 1

lib.py:9: AssertionError
=========================== short test summary info ============================
FAILED t.py::test_x - assert 2 == 1
FAILED t.py::test_y[a b] - ValueError: no
ERROR t.py::test_z - OSError: gone
"""
PLAIN_LOG = """\
__ test_p __
    def test_p():
>       assert g(1) == 2
E       assert 1 == 2
E        +  where 1 = <object at 0x7f>
t.py:5: AssertionError
"""


@pytest.mark.parametrize(
    ("log", "failing", "draw", "text"),
    [
        (LOG, ["t.py::test_x"], 0,
         '"x" does not hold any more.\n\nWhen I run\n\n    check()\n\nI get\n\n'
         "    assert 2 == 1\n\nThe test is `t.py::test_x`.\n"),
        (LOG, ["t.py::test_y[a b]"], 6,
         '"y (a b)" does not hold any more.\n\nWhat comes out is\n\n    ValueError: no\n\n'
         "The test is `t.py::test_y[a b]`.\n"),
        (LOG, ["t.py::test_z"], 13,
         'I think this is broken: "z".\n\nIt ends with\n\n    OSError: gone\n\n'
         "The test is `t.py::test_z`.\n"),
        (LOG, ["t.py::test_none"], 20,
         'Something is wrong with "none" since the last change.\n\n'
         "The test is `t.py::test_none`.\n"),
        ("", ["t.py::test"], 3, 'Regression: "test".\n\nThe test is `t.py::test`.\n'),
        (PLAIN_LOG + LOG, ["t.py::test_z", "t.py::test_x", "t.py::test_p"], 4,
         'It used to be so that "x", and now it is not.\n\nWhen I run\n\n    check()\n\nI get\n\n'
         "    assert 2 == 1\n\n"
         "These tests fail: `t.py::test_x`, `t.py::test_z`, `t.py::test_p`.\n"),
        (PLAIN_LOG, ["t.py::a", "t.py::b", "t.py::c", "t.py::test_p"], 17,
         'Could somebody look at this? "p" fails.\n\nThis\n\n    assert g(1) == 2\n\nends with\n\n'
         "    assert 1 == 2\n     +  where 1 = <object>\n\n"
         "These tests fail: `t.py::test_p`, `t.py::a`, `t.py::b` and 1 more.\n"),
    ],
)  # fmt: skip
def test_an_issue_is_worded_like_this(log, failing, draw, text):
    assert issue_text(log, failing, "src/far.py", draw) == text


def test_an_issue_is_as_short_as_one_reads_it():
    lines = "".join(f"E       {n} {'x' * 300}\n" for n in range(12))
    text = issue_text(f"__ test_p __\n>   f()\n{lines}t.py:5: E\n", ["t.py::test_p"], "far.py", 0)
    said = [line for line in text.split("\n") if line.startswith("    ") and "f()" not in line]
    assert len(said) == 11
    assert said[10] == "    ..."
    assert {len(line) for line in said[:10]} == {204}
