"""A call that no client can carry out is -1, with what was wrong as its hint, whoever judges."""

from __future__ import annotations

from typing import Any

import pytest

from clawrl_gym.config import JudgeConfig
from clawrl_gym.core.types import INTERRUPTED, Message, Turn, Verdict, VerdictKind
from clawrl_gym.judge.interface import Case
from clawrl_gym.judge.verdicts import VerdictMaker

READ: Any = {"type": "function", "function": {"name": "read", "parameters": {}}}
WRONG: list[Message] = [{"role": "user", "content": "Thanks, great!"}]


class Pleased:
    """Judges everything as good."""

    kind: VerdictKind = "model"
    asked = 0

    async def judge(self, case: Case) -> Verdict:
        self.asked += 1
        return Verdict(case.turn_id, "model", 1, 1.0, {}, 0.0)


def turn(reply: Any, **more: Any) -> Turn:
    fields: dict[str, Any] = {"finish_reason": "stop", "id": 7, "tools": [READ]} | more
    messages: list[Message] = [{"role": "user", "content": "read it"}]
    return Turn(
        "s",
        0,
        "main",
        [1],
        [2],
        [-0.5],
        [3],
        messages=messages,
        reply=reply,
        created_s=0.0,
        **fields,
    )


def calling(arguments: str, name: str = "read") -> Any:
    call = {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


@pytest.mark.parametrize(
    ("reply", "hint"),
    [
        (calling("{oops"), "'{oops'"),
        (calling('"text"'), "expected one JSON object"),
        (calling("{}", "write"), "there is no tool 'write'"),
        ({"role": "assistant", "content": "<tool_call>x", "unread_calls": ["x is none"]}, "x is"),
    ],
)
async def test_it_is_a_failure_whatever_came_back(reply: Message, hint: str) -> None:
    judge = Pleased()
    maker = VerdictMaker(judge, JudgeConfig())
    verdict = await maker.verdict(turn(reply), WRONG)
    assert (verdict.kind, verdict.value, verdict.reward, verdict.weight) == ("rule", -1, -1.0, 1.0)
    assert verdict.detail["rule"] == "unexecutable call"
    (one,) = verdict.hints
    assert one.startswith("The tool call could not be carried out: ")
    assert hint in one
    assert judge.asked == 0
    assert maker.counters["negative"] == maker.counters["hints"] == 1


async def test_what_can_be_carried_out_is_left_to_the_judge() -> None:
    judge = Pleased()
    maker = VerdictMaker(judge, JudgeConfig())
    for reply in (calling("{}"), calling(""), {"role": "assistant", "content": "hi"}):
        assert (await maker.verdict(turn(reply), WRONG)).value == 1
    assert judge.asked == 3


async def test_without_a_next_state_or_a_whole_reply_nothing_is_judged() -> None:
    maker = VerdictMaker(Pleased(), JudgeConfig())
    assert (await maker.verdict(turn(calling("{oops")), [])).value is None
    cut = turn(calling("{oops"), finish_reason=INTERRUPTED)
    assert (await maker.verdict(cut, WRONG)).value is None
