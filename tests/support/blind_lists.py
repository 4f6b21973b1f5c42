"""Lists of writers who have not seen the rules, as the rule judge reads them.

`dev` is among what the judge's weights are made from; `test` was read by nobody before it was
measured.
"""

from __future__ import annotations

import asyncio
import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from clawrl_gym.judge.interface import Case
from tests.support.answers import speech
from tests.support.fakes_judge import reply, tool
from tests.support.tool_results import rule_judge

FOLDER = Path(__file__).parents[1] / "fixtures" / "judge_blind"


@dataclass(frozen=True, slots=True)
class Read:
    """One item and its verdict."""

    label: str
    group: str
    """The language of talk; of tools everything is in one group."""
    text: str
    value: Literal[-1, 0, 1] | None
    rule: str


@functools.cache
def read_talk(part: str) -> tuple[Read, ...]:
    """What people say next; labels: complaint, praise, short, neutral."""
    found = [
        (row, speech().find(row["next"], row["request"], row["reply"]))
        for row in _rows(f"{part}_talk")
    ]
    return tuple(
        Read(row["label"], row["lang"], row["next"], one.value, str(one.detail["rule"]))
        for row, one in found
    )


@functools.cache
def read_tools(part: str) -> tuple[Read, ...]:
    """What tools give back; labels: failed, succeeded. Parts: test, dev, and dev_second."""
    part, _, number = part.partition("_")
    name = "_".join(filter(None, (part, "tools", number)))
    return tuple(asyncio.run(_read_all(_rows(name))))


async def _read_all(rows: list[dict[str, Any]]) -> list[Read]:
    read = []
    for row in rows:
        call = reply(None, ("call_1", row["name"], json.dumps(row["arguments"])))
        content = row["content"]
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        verdict = await rule_judge().judge(Case(1, "Do it.", call, [tool(text, "call_1")]))
        label = "failed" if row["failed"] else "succeeded"
        read.append(Read(label, "tools", text, verdict.value, str(verdict.detail["rule"])))
    return read


def _rows(name: str) -> list[dict[str, Any]]:
    lines = (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]
