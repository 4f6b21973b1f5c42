"""Hand-written stand-ins for what tests do not start."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

from clawrl_gym.errors import ContextError, PolicyError
from clawrl_gym.policy.client import Generation, Sampling
from clawrl_gym.types import Message

START, END = 1, 2
_FIRST_CHAR = 16
_PAIR = "ab"
_PAIR_ID = _FIRST_CHAR + 0x110000


def encode(text: str) -> list[int]:
    """One id a character, but the pair `ab` is one id, and so is a spelt-out end token `|>`."""
    parts = re.findall(r"ab|\|>|.", text, re.DOTALL)
    special = {_PAIR: _PAIR_ID, "|>": END}
    return [special.get(part) or _FIRST_CHAR + ord(part) for part in parts]


def decode(ids: list[int]) -> str:
    names = {START: "<|", END: "|>", _PAIR_ID: _PAIR}
    return "".join(names.get(i) or chr(i - _FIRST_CHAR) for i in ids)


def sampled(text: str, end: bool = True) -> list[int]:
    """How the policy spells a text: character by character, so `ab` never comes as its pair."""
    return [_FIRST_CHAR + ord(char) for char in text] + ([END] if end else [])


class FakePolicy:
    """A policy whose chat template is `<|role:content|>` for each message and `<|assistant:`."""

    def __init__(self, reply: Callable[[list[Message]], str] | str = "ok") -> None:
        self._reply = reply
        self.delay_s = 0.0
        """Of each generation."""
        self.down = 0
        """Next calls that find the policy unreachable."""
        self.max_prompt: int | None = None
        """Longest prompt that fits."""
        self.cut = False
        """Replies are cut off before their end token."""
        self.forgets_replies = False
        """The template writes `...` for all replies but the last message: not append-only."""
        self.refusal: PolicyError | None = None
        """What every render raises."""
        self.prompts: list[list[int]] = []
        self.samplings: list[Sampling] = []
        self.versions: list[int] = []
        self.bodies: list[dict[str, Any]] = []
        self.cancelled = 0
        self.left = asyncio.Event()
        """Set when a generation was cancelled."""
        self._last: list[Message] = []

    async def render(self, body: dict[str, Any]) -> list[int]:
        await self._reach()
        if self.refusal is not None:
            raise self.refusal
        ids: list[int] = []
        for tool in body.get("tools", []):
            ids += [START, *encode(f"tool:{tool['function']['name']}"), END]
        for at, message in enumerate(body["messages"]):
            content = message.get("content") or ""
            hidden = message["role"] == "assistant" and at + 1 < len(body["messages"])
            content = "..." if hidden and self.forgets_replies else content
            ids += [START, *encode(f"{message['role']}:{content}"), END, *encode("\n")]
        ids += [START, *encode("assistant:")]
        if self.max_prompt is not None and len(ids) > self.max_prompt:
            raise ContextError(
                f"{len(ids)} tokens, the maximum context length is {self.max_prompt}"
            )
        self.bodies.append(body)
        self._last = body["messages"]
        return ids

    async def generate(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        *,
        version: int,
        request_id: str | None = None,
    ) -> Generation:
        messages = self._last
        await self._reach()
        try:
            await asyncio.sleep(self.delay_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            self.left.set()
            raise
        text = self._reply if isinstance(self._reply, str) else self._reply(messages)
        ids_T = sampled(text, end=not self.cut)
        self.prompts.append(prompt_ids)
        self.samplings.append(sampling)
        self.versions.append(version)
        return Generation(
            prompt_ids_T=prompt_ids,
            sampled_ids_T=ids_T,
            logprobs_T=[-0.5] * len(ids_T),
            versions_T=[version] * len(ids_T),
            finish_reason="length" if self.cut else "stop",
        )

    async def parse(self, body: dict[str, Any], generation: Generation) -> Message:
        await self._reach()
        ids_T = [token for token in generation.sampled_ids_T if token != END]
        return {"role": "assistant", "content": decode(ids_T)}

    async def metrics(self) -> dict[str, float]:
        await self._reach()
        return {"running": 0.0, "waiting": 0.0, "kv_usage": 0.0}

    async def close(self) -> None:
        pass

    async def _reach(self) -> None:
        if self.down > 0:
            self.down -= 1
            raise PolicyError("vLLM cannot be reached: it is not there")
