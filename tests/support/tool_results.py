"""Written results of tools, which the tests and bench/judge_tools.py read."""

from __future__ import annotations

import contextlib
import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.judge.interface import Case
from clawrl_gym.judge.rules import RuleJudge
from tests.support.fakes_judge import reply, shipped_rules, tool

FOLDER = Path(__file__).parents[1] / "fixtures" / "judge_tools"
LISTS = (
    "failures_dev",
    "failures_check",
    "failures_terse",
    "failures_later",
    "successes_dev",
    "successes_check",
    "successes_later",
)
_ESCAPED = re.compile(r"\\(\\|n|t|r)")
_SIGNS = {"\\": "\\", "n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gave back."""

    tool: str
    text: str


def of_list(name: str) -> list[ToolResult]:
    """The results of a list, one a line: `TOOL | RESULT`; JSON of one line stays as it is."""
    lines = (FOLDER / f"{name}.txt").read_text().splitlines()
    parts = (line.partition(" | ") for line in lines if line and not line.startswith("#"))
    return [ToolResult(name.strip(), _unescaped(text)) for name, _, text in parts]


@functools.cache  # its thousands of patterns take a second
def rule_judge(hints: bool = False) -> RuleJudge:
    """The rules that are shipped."""
    return RuleJudge(shipped_rules(), hints=hints)


async def value_of(judge: RuleJudge, result: ToolResult) -> int | None:
    """The verdict on the call that brought the result, in a live conversation."""
    call = reply(None, ("call_1", result.tool, "{}"))
    verdict = await judge.judge(Case(1, "Do it.", call, [tool(result.text, "call_1")]))
    return verdict.value


def _unescaped(text: str) -> str:
    with contextlib.suppress(ValueError):
        json.loads(text)
        return text
    return _ESCAPED.sub(lambda match: _SIGNS[match.group(1)], text)
