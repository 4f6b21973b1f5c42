"""Hand-written judges, and live turns as the gateway would have stored them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from clawrl_gym.config import JudgeConfig
from clawrl_gym.judge.base import Case
from clawrl_gym.store import SessionRow, Store
from clawrl_gym.types import Message, Turn, Verdict, VerdictKind

RULES = Path(__file__).parent.parent / "conf" / "judge" / "rule.yaml"


def shipped_rules(**changes: Any) -> JudgeConfig:
    """What `judge=rule` runs with."""
    return JudgeConfig.model_validate(yaml.safe_load(RULES.read_text()) | changes)


class ScriptedJudge:
    """Judges by a function of the last message that came back."""

    kind: VerdictKind = "rule"

    def __init__(self, value: Callable[[str], Any] = lambda text: 1) -> None:
        self._value = value
        self.cases: list[Case] = []
        self.asking = 0
        self.most_asking = 0
        self.go = asyncio.Event()
        """Cleared: every question waits."""
        self.go.set()
        self._came = asyncio.Event()

    async def asked(self, count: int) -> None:
        """Wait until so many questions are open."""
        async with asyncio.timeout(20):
            while self.asking < count:
                self._came.clear()
                await self._came.wait()

    async def judge(self, case: Case) -> Verdict:
        self.cases.append(case)
        self.asking += 1
        self.most_asking = max(self.most_asking, self.asking)
        self._came.set()
        try:
            await asyncio.sleep(0)
            await self.go.wait()
            value = self._value(case.next_state[-1]["content"] or "")
            if isinstance(value, Exception):
                raise value
            return Verdict(case.turn_id, "rule", value, float(value), {}, time.time())
        finally:
            self.asking -= 1


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def tool(text: str, call_id: str = "") -> Message:
    return {"role": "tool", "content": text, "tool_call_id": call_id}


def reply(text: str | None, *calls: tuple[str, str, str]) -> Message:
    """A reply; calls are id, name and arguments."""
    message: Message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": given}}
            for call_id, name, given in calls
        ]
    return message


def a_turn(session_id: str = "s", index: int = 0, **changes: Any) -> Turn:
    turn = Turn(
        session_id=session_id,
        index=index,
        kind="main",
        prompt_ids_T=[1, 2, 3],
        sampled_ids_T=[4, 5],
        logprobs_T=[-0.5, -0.25],
        versions_T=[0, 0],
        finish_reason="stop",
        messages=[user("plan my day")],
        reply=reply("Get up, then work."),
        created_s=time.time(),
    )
    return replace(turn, **changes)


async def live_session(store: Store, session_id: str = "s", source: Any = "live") -> None:
    await store.add_session(SessionRow(session_id, None, None, "train", source, time.time()))


async def stored(store: Store, turn: Turn, *next_state: Message) -> Turn:
    """The turn as stored, with its next state when there is one."""
    kept = replace(turn, id=await store.add_turn(turn))
    assert kept.id is not None
    if next_state:
        await store.add_next_state(kept.id, list(next_state))
    return kept
