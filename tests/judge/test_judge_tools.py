"""What tools give back: no written failure earns +1, hardly a success -1, and no text takes long.

The lists are in tests/fixtures/judge_tools/; bench/judge_tools.py prints the same as a table.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace

import pytest

from clawrl_gym.config import ServeConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.types import Message, Verdict
from clawrl_gym.judge.interface import Case
from clawrl_gym.judge.rules import RuleJudge
from clawrl_gym.judge.signals.tool_rules import ToolRules, ToolUse
from clawrl_gym.trainers.algorithms.binary import Binary
from tests.support.fakes_judge import reply, shipped_rules, tool, user
from tests.support.tool_results import ToolResult, of_list, rule_judge, value_of
from tests.trainers.test_binary import group, segment

OTHER_TOOLS = ("read", "web_fetch", "web_search", "exec", "edit", "do_it", "")


def values(results: list[ToolResult], tool: str | None = None) -> list[int | None]:
    named = [r if tool is None else replace(r, tool=tool) for r in results]

    async def all_of() -> list[int | None]:
        return [await value_of(rule_judge(), result) for result in named]

    return asyncio.run(all_of())


@pytest.mark.parametrize("name", ["failures_dev", "failures_check", "failures_later"])
def test_written_failures_are_failures_and_never_a_success(name: str) -> None:
    results = of_list(name)
    assert len(results) >= 150
    found = values(results)
    assert [r for r, v in zip(results, found, strict=True) if v in (0, 1)] == []
    assert found.count(-1) >= 0.9 * len(found)


@pytest.mark.parametrize("other", OTHER_TOOLS)
@pytest.mark.parametrize(
    "name", ["failures_dev", "failures_check", "failures_terse", "failures_later"]
)
def test_a_failure_is_no_success_whatever_the_tool_is_called(name: str, other: str) -> None:
    results = of_list(name)
    found = values(results, other)
    assert [r for r, v in zip(results, found, strict=True) if v in (0, 1)] == []
    assert found.count(-1) >= 0.5 * len(found)


@pytest.mark.parametrize("name", ["successes_dev", "successes_check"])
def test_written_successes_are_hardly_ever_failures(name: str) -> None:
    found = values(of_list(name))
    assert found.count(-1) <= 0.02 * len(found)
    assert found.count(1) >= 0.3 * len(found)


def test_successes_that_were_written_later_are_hardly_ever_failures() -> None:
    found = values(of_list("successes_later"))
    assert found.count(-1) <= 0.05 * len(found)
    assert found.count(1) >= 0.3 * len(found)


@pytest.mark.parametrize(
    "text",
    [
        '{"decision": "deny", "comment": "not on prod"}',
        '{"action": "decline"}',
        '{"behavior": "deny", "message": "ask me first"}',
        '{"approved": false, "reason": "too risky"}',
        'The operator clicked "No".',
        "Denied. Reason: too risky",
        "Reviewer pressed cancel",
        "Exec denied (gateway id=7f2, approval-timeout): npm publish",
    ],
)
def test_what_a_person_refused_is_a_failure_in_any_form(text: str) -> None:
    assert values([ToolResult("approve", text)]) == [-1]


@pytest.mark.parametrize(
    "text",
    [
        '{"id": 7, "title": "Add a cache", "approved": false, "author": "kim"}',
        '{"name": "cron", "action": "block", "port": 22}',
        '{"id": 3, "subject": "hi", "sent": false}',
    ],
)
def test_a_record_of_something_refused_is_no_refusal_of_the_call(text: str) -> None:
    assert values([ToolResult("get", text)]) == [None]


def test_a_success_is_weak_evidence_and_a_failure_or_a_report_is_not() -> None:
    def weight(text: str, **config: float) -> float:
        judge = RuleJudge(shipped_rules(**config))
        case = Case(1, "x", reply(None, ("c", "write", "{}")), [tool(text, "c")])
        return asyncio.run(judge.judge(case)).weight

    assert weight("Successfully wrote 4 bytes to a.txt") == 0.1
    assert weight('{"ok": true}', tool_success_weight=0.3) == 0.3
    assert weight("Error: no") == 1.0
    assert weight("Test report: passed") == 1.0


def test_a_pointless_success_after_a_complaint_is_worth_a_tenth_of_praise() -> None:
    def advantage_of(*next_state: Message) -> float:
        """Advantage of the turn after a complaint."""
        binary = Binary()
        complaint = judged(user("No, that is wrong."))
        binary.make_samples(group(), [[segment(0)]], [{0: complaint}])
        (sample,) = binary.make_samples(group(), [[segment(0)]], [{0: judged(*next_state)}])
        return max(sample.advantages_T)

    def judged(*next_state: Message) -> Verdict:
        call = reply("Here.", ("c", "write", "{}"))
        return asyncio.run(rule_judge().judge(Case(1, "Write it down", call, list(next_state))))

    pointless = advantage_of(tool("Successfully wrote 4 bytes to a.txt", "c"))
    praised = advantage_of(user("Perfect, thanks."))
    assert praised > 1
    assert 0 < pointless == pytest.approx(0.1 * praised)


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ({"result": {"data": {"error": "x"}}}, -1),
        ({"ok": True, "items": [{"error": "x"}]}, None),  # says both
        ([{"ok": True}, {"ok": False}], -1),
        ([{"id": 1, "name": "a", "error": None}, {"id": 2, "name": "b", "error": "x"}], None),
        ({"status": "failed"}, -1),
        ({"status": "failed", "order": 7}, None),
        ({"status": "error", "order": 7}, -1),
        ({"success": True}, 1),
        ({"success": True, "results": []}, None),
        ({"results": []}, -1),
        ({"code": 404, "message": "x"}, -1),
        ({"code": 404, "country": "x"}, None),
        ({"code": -32602, "message": "x"}, -1),
        ({"exit_code": 1, "success": True}, -1),
        ({"exit_code": 0, "stdout": "fine"}, 1),
        ({"exit_code": 0, "stderr": "bash: foo: command not found"}, None),  # says both
        ({"temperature": 21}, None),
        ({"isError": False, "content": [{"type": "text", "text": "Error: x"}]}, -1),
        ({"isError": False, "content": [{"type": "text", "text": "Tea"}]}, 1),
        ({"error": ""}, None),
        ({"errors": 0, "warnings": 2}, None),
        ({"a": {"b": {"c": {"d": {"e": {"f": {"error": "deep"}}}}}}}, None),
    ],
)
def test_fields_say_whether_the_call_failed(answer: object, value: int | None) -> None:
    rules = ToolRules(shipped_rules())
    assert rules.find(json.dumps(answer), ToolUse("call", "")).value == value
    fenced = f"```json\n{json.dumps(answer)}\n```"
    assert rules.find(fenced, ToolUse("call", "")).value == value


@pytest.mark.parametrize("name", ["readFile", "mcp__files__read_file", "files.read_file", "READ"])
def test_a_reader_is_known_by_its_name_in_any_form(name: str) -> None:
    rules = ToolRules(shipped_rules())
    log = "Error: the disk is full\nnothing was kept\n"
    assert rules.find(log, ToolUse(name, "")).value is None
    assert rules.find(log, ToolUse("write_log", "")).value == -1


@pytest.mark.parametrize(
    "text",
    [
        "attempt 1: connection timed out\nattempt 2: connection reset by peer\nSaved a.iso",
        "error: lock held by 4711\nlock released\nDeployed 3 services",
        "upload failed, trying the mirror\nUploaded 12 files to the mirror",
        "fatal: no upstream yet, making one\nPushed main to origin/main",
        "npm ERR! code ECONNRESET\nInstalled 41 packages in 9s",
    ],
)
def test_what_failed_before_it_was_done_after_all_is_no_failure(text: str) -> None:
    rules = ToolRules(shipped_rules())
    assert rules.find(text, ToolUse("run_step", "")).value is None
    assert rules.find(f"{text}\nexit code 1", ToolUse("run_step", "")).value == -1


@pytest.mark.parametrize(
    "command",
    [
        "cd /srv && cat app.log",
        "sudo journalctl -u db",
        "ssh web1 tail -n 20 /var/log/app.log",
        "gh issue view 12",
        "kubectl logs pod/web",
        "LANG=C git log -3",
    ],
)
def test_a_command_that_shows_a_log_has_not_failed_with_it(command: str) -> None:
    rules = ToolRules(shipped_rules())
    log = "12:01 boot\nerror: the disk is full\n12:03 idle"
    assert rules.find(log, ToolUse("exec", command)).value is None
    assert rules.find(log, ToolUse("exec", "make all")).value == -1
    assert rules.find(f"{log}\n\n(exit code 1)", ToolUse("exec", command)).value == -1


@pytest.mark.parametrize("name", ["git_blame", "translate", "slack_messages", "list_tickets"])
def test_a_line_that_a_tool_tells_of_somebody_else_is_no_failure(name: str) -> None:
    rules = ToolRules(shipped_rules())
    assert rules.find("Jo Lind: the deploy failed with code 3", ToolUse(name, "")).value is None
    assert rules.find("the deploy failed with code 3", ToolUse("deploy", "")).value == -1


def test_a_user_adds_a_rule_for_results_and_wrong_ones_are_one_clear_error() -> None:
    mine = "judge.results.mine={line: 'ALARM\\b', tools: '^siren', value: -1, weight: 0.5}"
    rules = ToolRules(compose("serve", [mine], ServeConfig).judge)
    found = rules.find("first\nALARM in room 3", ToolUse("siren_status", ""))
    assert (found.value, found.weight) == (-1, 0.5)
    assert rules.find("first\nALARM in room 3", ToolUse("lamp", "")).value is None
    with pytest.raises(ConfigError, match=r"got \{hues\} in the pattern .*judge.result_words"):
        ToolRules(shipped_rules(results={"mine": {"head": "{hues}", "value": -1}}))
    for weight in (0, 1.5):
        with pytest.raises(ConfigError, match="tool_success_weight"):
            compose("serve", [f"judge.tool_success_weight={weight}"], ServeConfig)


LONG = [
    "a: " * 300, "x" * 20_000, " " * 20_000, "\n" * 20_000, "error " * 300, "the " * 400,
    "1 passed, " * 200, "((((" * 300, "path " * 300, "successfully " * 100, "a b c d " * 160,
    "[x] " * 300, "12 " * 500, "<output>" * 200, "<html>" * 200,
    "<!doctype html><html" + " a" * 500,
    '{"a":' * 3000, "[" * 5000, "user " * 300, "rate limit " * 100, "not " * 400, "0 " * 600,
    "W" * 50 + ": " + "x" * 5000, "exit code " * 120, "it.has.dots " * 100, "no errors, " * 100,
]  # fmt: skip


@pytest.mark.parametrize("text", LONG)
def test_no_result_takes_long(text: str) -> None:
    rules = ToolRules(shipped_rules())
    started_s = time.process_time()
    for name in OTHER_TOOLS:
        rules.find(text, ToolUse(name, ""))
    assert time.process_time() - started_s < 2.0  # milliseconds; a runaway pattern takes minutes
