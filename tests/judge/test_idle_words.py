"""Words of a tool's result that speak of failures and tell none."""

from __future__ import annotations

import pytest

from clawrl_gym.judge.signals.idle_words import named_by, without_idle
from clawrl_gym.judge.signals.tool_rules import ToolRules, ToolUse
from tests.support.fakes_judge import shipped_rules


def value(name: str, arguments: dict[str, object], text: str) -> int | None:
    command = str(arguments.get("command") or "")
    use = ToolUse(name, command, named_by(name, arguments))
    return ToolRules(shipped_rules()).find(text, use).value


@pytest.mark.parametrize(
    "text",
    [
        "error: none", "Errors: 0", "failed: 0", "failures=0", "no errors", "0 failures",
        "2 tests, 0 failures", "without any errors", "zero known issues", "error rate: 0.2",
        "error: 0.031", "mean error: 0.12", "keine Fehler", "sans erreurs", '"errors": []',
        "Error: (none)", "errors: null", "no failing tests", "exceptions: none", "0 loaded errors",
    ],
)  # fmt: skip
def test_a_count_of_no_failures_is_no_failure(text: str) -> None:
    assert "err" not in without_idle(text, frozenset()).lower().replace("errors=", "")
    assert value("exec", {"command": "./report"}, text) != -1


@pytest.mark.parametrize(
    "text",
    [
        "Error: no such table: users", "error: no such module 'Foo'", "division by zero error",
        "Error: no route to host", "errors: 3", "error: 404", "failed: 2 of 3", "no such error log",
        "Error: false start of the engine", "2 failures", "failed to stop without error handler",
    ],
)  # fmt: skip
def test_a_failure_that_looks_like_a_count_stays_one(text: str) -> None:
    told = without_idle(text, frozenset()).lower()
    assert "err" in told or "fail" in told


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("exec", {"command": "wc -l errors.log"}, "412 errors.log"),
        ("exec", {"command": "echo 'error: it broke'"}, "error: it broke"),
        ("exec", {"command": "test -f a || echo 'not found'"}, "not found"),
        ("exec", {"command": "sed -n 3p a.log"}, "Error: cannot open file"),
        ("kill_process", {"pid": 4}, "Process 4 killed"),
        ("cancel_order", {"id": 3}, '{"id": 3, "status": "cancelled"}'),
        ("reject_request", {"id": 3}, '{"id": 3, "status": "rejected"}'),
        ("block_user", {"id": 3}, '{"user": 3, "blocked": true}'),
        ("abort_upload", {"id": 3}, '{"aborted": true}'),
        ("find_duplicates", {"path": "."}, '{"matches": []}'),
        ("explain", {"text": "ENOENT"}, "ENOENT means: no such file or directory."),
        ("get_deployment", {"env": "prod"}, '{"env": "prod", "state": "error"}'),
        ("graphql", {"query": "q"}, '{"data": {"errors": [{"id": 1, "message": "late"}]}}'),
        ("calculator", {"expression": "400+4"}, "404"),
        ("poem", {}, "I could not stop for Death,\nHe kindly stopped for me"),
        ("get_terms", {}, "Refunds are not allowed after 30 days."),
        ("flight_status", {"flight": "LH1"}, "LH1: the crew could not be found."),
        ("protokoll", {}, "10:00 FEHLER: Verbindung verweigert\n10:01 Neustart"),
        ("leer", {}, "2026-03-01 10:00 ERROR: no\n2026-03-01 10:01 error: no se puede"),
        ("exec", {"command": "git revert HEAD"}, '[main 7a] Revert "Fail on a key"\n 1 file'),
    ],
)
def test_what_the_call_names_is_no_failure_of_it(
    name: str, arguments: dict[str, object], text: str
) -> None:
    assert value(name, arguments, text) != -1


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("exec", {"command": "cat errors.log"}, "cat: errors.log: No such file or directory"),
        ("exec", {"command": "git log errors"}, "fatal: bad revision 'errors'\n(exit code 128)"),
        ("exec", {"command": "exit 3"}, "(Command exited with code 3)"),
        ("kill_process", {"pid": 4}, "Error: no such process"),
        ("cancel_order", {"id": 3}, '{"error": "order not found"}'),
        ("block_user", {"id": 3}, '{"status": "forbidden"}'),
        ("get_deployment", {"env": "x"}, '{"error": "no such environment"}'),
        ("flight_status", {"flight": "X"}, "Error: flight X not found"),
        ("invalid", {"tool": "x"}, "The arguments provided to the tool are invalid: missing path"),
    ],
)
def test_a_failure_of_such_a_call_is_still_one(
    name: str, arguments: dict[str, object], text: str
) -> None:
    assert value(name, arguments, text) == -1


@pytest.mark.parametrize(
    ("command", "text", "expected"),
    [
        ("grep -n ERROR a.log", "3:ERROR db: refused\n\nProcess exited with code 0.", 1),
        ("cat crash.txt", '{"output": "panic: boom", "metadata": {"exit_code": 0}}', 1),
        ("tail a.log", "Error: could not open\n(exit code 0)", 1),
        ("cat a || true", "cat: a: No such file or directory\n(exit code 0)", None),
        ("git log | head -3", "fatal: not a git repository\n(exit code 0)", None),
        ("./deploy", "Error: could not open\n(exit code 0)", None),
        ("cat a", '{"output": "cat: a: Permission denied", "metadata": {"exit_code": 0}}', None),
    ],
)
def test_what_a_command_shows_beside_an_exit_code_of_0_is_a_success(
    command: str, text: str, expected: int | None
) -> None:
    assert value("exec", {"command": command}, text) == expected
