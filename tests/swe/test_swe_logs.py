"""Test logs are read by swebench's own code in a child process."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.errors import EnvError, TaskError
from clawrl_gym.envs.swe.rows import logs, script
from clawrl_gym.envs.swe.rows.instance import Instance

INSTANCE = Instance(
    id="shop-1",
    repo="me/shop",
    split="train",
    problem_statement="it is wrong",
    fail_to_pass=("t.py::new",),
    pass_to_pass=("t.py::old",),
    log_parser="parse_log_pytest",
    eval_script="",
)


def judged(text: str, exit_code: int | None = 0, **fields: object) -> logs.LogReport:
    log = script.swebench_log(script.TestOutput("\n" + text, exit_code, forged=False))
    return logs.grade_log(replace(INSTANCE, **fields), log)  # type: ignore[arg-type]


def test_all_tests_passing_resolves() -> None:
    report = judged("PASSED t.py::new\nPASSED t.py::old\n")
    assert report.resolved
    assert report.tests == {"t.py::new": "PASSED", "t.py::old": "PASSED"}
    assert report.failed_to_pass == report.broken == ()


def test_a_failing_a_missing_and_a_broken_test_do_not_resolve() -> None:
    report = judged("FAILED t.py::old - no\n", 1)
    assert not report.resolved
    assert (report.failed_to_pass, report.broken) == (("t.py::new",), ("t.py::old",))
    assert report.tests == {"t.py::old": "FAILED"}


def test_a_test_that_is_skipped_now_is_no_solution() -> None:
    assert not judged("SKIPPED t.py::new\nPASSED t.py::old\n").resolved
    assert judged("PASSED t.py::new\nSKIPPED t.py::old\n").resolved


def test_success_lines_against_the_exit_code_are_a_contradiction() -> None:
    report = judged("PASSED t.py::new\nPASSED t.py::old\n", 1)
    assert (report.resolved, report.no_result) == (False, "contradiction")


def test_no_results_are_told_apart_and_a_fault_of_the_machine_is_named() -> None:
    assert judged("nothing here\n", 1).no_result == "nothing"
    assert judged("Cannot connect to the Docker daemon\n", 1).infra == "container_unavailable"


def test_a_parser_that_tells_only_failures_needs_a_sign_that_tests_ran() -> None:
    ran = {"log_parser": "parse_log_eslint", "eval_type": "fail_only"}
    assert not judged("", 0, **ran).resolved
    assert judged("3 passing\n", 0, **ran).resolved


def test_a_truncated_id_is_found_as_swebench_finds_it() -> None:
    report = judged("PASSED t.py::a[x]\n", fail_to_pass=("t.py::a[",), pass_to_pass=())
    assert report.resolved
    assert report.tests == {"t.py::a[": "PASSED"}


WHOLE_IDS = (
    "t.py::a[two words]", "t.py::a[with - dash]", "t.py::a[ lead]", "t.py::a[trail ]",
    "t.py::a[two  spaces]", "t.py::a[\u3000wide]", "t.py::a[no\u00a0break]", "t.py::a[☃ snow]",
    "t.py::a[größe ß]", "t.py::a[x[y] z]", "t.py::a[(1, 2)]", "t.py::a[{'k': 'v'}]",
    "t.py::a[FAILED x]", "t.py::a[x PASSED]", "t.py::a[a - b - c]", "t.py::a[/p q/r]",
    "t.py::A::b[x y]", "t.py::a[\\u2603 x]", "t.py::a[, ]", "t.py::a[- ]", "t.py::a[a b-c d]",
)  # fmt: skip
PYTEST_PARSERS = ("parse_log_pytest", "parse_log_pytest_options", "parse_log_pytest_v2",
                  "parse_log_matplotlib")  # fmt: skip


@pytest.mark.parametrize("parser", PYTEST_PARSERS)
@pytest.mark.parametrize("test", WHOLE_IDS)
def test_an_id_with_spaces_is_matched_whole(test: str, parser: str) -> None:
    row: dict[str, Any] = {
        "fail_to_pass": (test,),
        "pass_to_pass": ("t.py::old",),
        "log_parser": parser,
    }
    passed = judged(f"PASSED {test}\nPASSED t.py::old\n", **row)
    assert passed.resolved
    assert passed.tests == {test: "PASSED", "t.py::old": "PASSED"}
    for failed in (f"FAILED {test}", f"FAILED {test} - assert 1 == 2", f"ERROR {test} - x"):
        report = judged(f"{failed}\nPASSED t.py::old\n", 1, **row)
        assert (report.resolved, report.failed_to_pass) == (False, (test,))
    assert not judged("PASSED t.py::old\n", **row).resolved


@pytest.mark.parametrize("parser", PYTEST_PARSERS)
def test_ids_that_differ_behind_a_space_are_told_apart(parser: str) -> None:
    row: dict[str, Any] = {"fail_to_pass": ("t.py::a[x one]",), "pass_to_pass": ("t.py::a[x two]",)}
    both = ("FAILED t.py::a[x one] - no", "PASSED t.py::a[x two]")
    for lines in (both, both[::-1]):
        report = judged("\n".join(lines) + "\n", 1, log_parser=parser, **row)
        assert (report.failed_to_pass, report.broken) == (("t.py::a[x one]",), ())


@pytest.mark.parametrize("parser", PYTEST_PARSERS)
@pytest.mark.parametrize("test", WHOLE_IDS)
def test_a_longer_id_is_another_test(test: str, parser: str) -> None:
    row: dict[str, Any] = {"fail_to_pass": (test,), "pass_to_pass": ("t.py::old",)}
    assert not judged(f"PASSED {test} more\nPASSED t.py::old\n", log_parser=parser, **row).resolved
    of_others = () if parser == "parse_log_pytest_v2" else (" - known", " [ 50%]", " (0.1s)")
    for rest in ("", *of_others):
        line = f"PASSED {test}{rest}\nPASSED t.py::old\n"
        assert judged(line, log_parser=parser, **row).resolved


@pytest.mark.parametrize("parser", PYTEST_PARSERS)
def test_an_id_that_was_cut_passes_only_where_all_do_that_it_may_mean(parser: str) -> None:
    row: dict[str, Any] = {"fail_to_pass": ("t.py::a[x",), "pass_to_pass": (), "log_parser": parser}
    good, bad = "PASSED t.py::a[x one]", "FAILED t.py::a[x two] - no"
    assert judged(f"{good}\nPASSED t.py::a[x two]\n", **row).resolved
    assert not judged(f"{good}\n{bad}\n", 1, **row).resolved
    assert not judged(f"{bad}\n{good}\n", 1, **row).resolved
    assert not judged("PASSED t.py::b[x one]\n", **row).resolved


def test_lines_that_only_speak_of_an_id_are_no_results() -> None:
    row: dict[str, Any] = {"fail_to_pass": ("t.py::a[x y]",), "pass_to_pass": ("t.py::old",)}
    talk = "running t.py::a[x y] which PASSED yesterday\nPASSED t.py::old\n"
    assert not judged(talk, **row).resolved


def test_an_unknown_parser_is_an_error_that_lists_those_there_are() -> None:
    with pytest.raises(TaskError, match=r"'parse_me'.*parse_log_pytest"):
        logs.read_log("parse_me", "PASSED a")


def test_swebench_knows_parsers_by_repository() -> None:
    known = logs.parser_registry()
    assert known.repositories["django/django"] == "parse_log_django"
    assert set(known.repositories.values()) <= known.parsers
    assert "eslint/eslint" in known.fail_only


def test_every_mark_is_the_one_that_swebench_looks_for() -> None:
    where = "import importlib.util as u; print(u.find_spec('swebench').origin)"
    origin = subprocess.check_output([sys.executable, "-c", where], text=True).strip()
    text = (Path(origin).parent / "harness/constants/__init__.py").read_text()
    for name, mark in (
        ("START_TEST_OUTPUT", script.START),
        ("END_TEST_OUTPUT", script.END),
        ("TEST_EXIT_CODE", script.EXIT_CODE),
    ):
        assert f'{name} = "{mark}"' in text


def test_a_child_that_died_is_started_again() -> None:
    reader = logs.LogReader()
    try:
        for _ in range(2):
            request = {"kind": "read", "parser": "parse_log_pytest", "log": "PASSED a"}
            assert reader.ask(request, 20.0) == {"tests": {"a": "PASSED"}}
            process = reader._process
            assert process is not None
            process.kill()
            process.wait()
    finally:
        reader.close()


def test_a_log_that_takes_too_long_is_an_error_and_the_next_one_is_read() -> None:
    reader = logs.LogReader()
    request = {"kind": "read", "parser": "parse_log_pytest", "log": "PASSED a"}
    try:
        with pytest.raises(EnvError, match="over 0 s"):
            reader.ask(request | {"log": "PASSED a\n" * 300_000}, 0.0)
        assert reader._process is None
        assert reader.ask(request, 20.0) == {"tests": {"a": "PASSED"}}
    finally:
        reader.close()


def test_threads_share_the_child_and_get_their_own_answers() -> None:
    found: dict[int, object] = {}

    def ask(number: int) -> None:
        found[number] = logs.read_log("parse_log_pytest", f"PASSED t{number}\n" * 100)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: {f"t{number}": "PASSED"} for number in range(8)}


def test_the_child_inherits_no_secret_and_reads_no_env_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CLAWRL_TEST_SECRET", "do not tell")
    reader = logs.LogReader()
    try:
        reader.ask({"kind": "known"}, 20.0)
        process = reader._process
        assert process is not None
        environment = Path(f"/proc/{process.pid}/environ").read_bytes().decode()
        assert "do not tell" not in environment
        assert "PYTHON_DOTENV_DISABLED=1" in environment
        assert Path(f"/proc/{process.pid}/cwd").readlink() == Path("/")
        assert not re.search(r"/(modal|datasets|docker|torch)/", _maps(process.pid))
    finally:
        reader.close()


def _maps(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def test_output_in_any_letters_is_read() -> None:
    report = judged("PASSED t.py::new\nPASSED t.py::old\n\u2028 \x00 \x1b[31m \ud800 ünï\r\n")
    assert report.resolved
