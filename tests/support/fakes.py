"""Hand-written stand-ins for what tests do not start."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from clawrl_gym.core.errors import ConfigError, ContextError, PolicyError, PolicyUnavailable
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import ChatBody, Message, ToolCall
from clawrl_gym.gateway.versions import VersionJson
from clawrl_gym.inference.generation import Delta, Piece, ToolCallDelta
from clawrl_gym.inference.vllm.client import Generation, Sampling
from tests.support.merging_stream import joined, one_by_one, splits, with_calls_last
from tests.support.stepped_policy import SteppedPolicy

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


_THOUGHT = re.compile(r"\A<thought>(.*?)</thought>", re.DOTALL)
_CALL = re.compile(r"<tool_call>(\S+) (.*?)</tool_call>", re.DOTALL)


def spell(reply: Message | str) -> str:
    """A reply as the policy writes it: `<thought>REASONING</thought>`, what it says, and
    `<tool_call>NAME ARGUMENTS</tool_call>` for each call."""
    if isinstance(reply, str):
        return reply
    reasoning = reply.get("reasoning_content")
    calls = [call["function"] for call in reply.get("tool_calls") or []]
    written = [f"<tool_call>{call['name']} {call['arguments']}</tool_call>" for call in calls]
    thought = f"<thought>{reasoning}</thought>" if reasoning else ""
    return thought + text_of(reply) + "".join(written)


class FakePolicy(SteppedPolicy):
    """A policy whose chat template is `<|role:content|>` for each message and `<|assistant:`.

    Its streams merge and split as an engine's under load do, the same reply always in the same way.
    """

    def __init__(
        self, reply: Callable[[list[Message]], Message | str] | Message | str = "ok"
    ) -> None:
        self._reply = reply
        self.delay_s = 0.0
        """Delay of each generation, or of a stream's first piece."""
        self.piece_s = 0.0
        """Between two pieces of a stream, which are a token each then: a test looks at a moment."""
        self.seed = 0
        """Another one merges and splits streams in another way."""
        self.is_one_by_one = False
        """A piece a token, for tests of a stream's form."""
        self.dies_after: int | None = None
        """Tokens after which a stream fails, once."""
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
        self.bodies: list[ChatBody] = []
        self.cancelled = 0
        self.left = asyncio.Event()
        """Set when a generation was cancelled."""
        self._last: list[Message] = []

    async def render(self, body: ChatBody) -> list[int]:
        await self._reach()
        if self.refusal is not None:
            raise self.refusal
        ids: list[int] = []
        for tool in body.get("tools", []):
            ids += [START, *encode(f"tool:{tool['function']['name']}"), END]
        for at, message in enumerate(body["messages"]):
            content = spell(message)
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
        self, prompt_ids: list[int], sampling: Sampling, *, version: int
    ) -> Generation:
        messages = self._last
        await self._reach()
        with self._counting_cancelled():
            await asyncio.sleep(self.delay_s)
        return self._generation(prompt_ids, sampling, messages, version)

    async def stream(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        body: ChatBody | None,
        *,
        version: int,
        user: str = "",
        request_id: str | None = None,
        resume_from: Sequence[Piece] = (),
    ) -> AsyncGenerator[Piece, None]:
        """The reply of `generate`, in pieces."""
        messages = self._last if body is None else body["messages"]
        await self._reach()
        with self._counting_cancelled():
            await asyncio.sleep(self.delay_s)
            made = self._generation(prompt_ids, sampling, messages, version)
            for piece in self._pieces(made, resume_from, is_read=body is not None):
                yield piece
                await asyncio.sleep(self.piece_s)

    def _pieces(
        self, made: Generation, resume_from: Sequence[Piece], *, is_read: bool
    ) -> Iterator[Piece]:
        """Those after `resume_from`; `is_read`: thoughts and calls are told apart from the text."""
        draw = random.Random(f"{self.seed} {made.sampled_ids_T}")
        is_one_by_one = self.is_one_by_one or self.piece_s > 0
        deltas_T = _deltas(made, is_read=is_read)
        if draw.random() < 0.5 and not is_one_by_one:
            deltas_T = with_calls_last(deltas_T)
        first, count = sum(len(piece.ids_T) for piece in resume_from), len(made.sampled_ids_T)
        versions_T = [version for piece in resume_from for version in piece.versions_T]
        made = replace(made, versions_T=versions_T + made.versions_T[first:])
        border = self.dies_after
        way = one_by_one(first, count) if is_one_by_one else splits(first, count, draw, border)
        steps = [*way]
        for at, split in enumerate(steps, 1):
            if border is not None and split.ids.start == border:
                self.dies_after = None
                raise PolicyUnavailable("vLLM cannot be reached: it died")
            yield Piece(
                made.sampled_ids_T[split.ids],
                made.logprobs_T[split.ids],
                joined(deltas_T[split.deltas]),
                made if at == len(steps) else None,
                made.versions_T[split.ids],
            )

    async def parse(self, body: ChatBody, generation: Generation) -> Message:
        await self._reach()
        text = _text(generation)
        calls = _calls(text, generation)
        content = _CALL.sub("", _THOUGHT.sub("", text))
        reply: Message = {"role": "assistant", "content": content or (None if calls else "")}
        if calls:
            reply["tool_calls"] = calls
        if thought := _THOUGHT.match(text):
            reply["reasoning_content"] = thought[1]
        return reply

    async def tokenize(self, text: str) -> list[int]:
        await self._reach()
        return sampled(text, end=False)

    async def metrics(self) -> dict[str, float]:
        await self._reach()
        return {"running": 0.0, "waiting": 0.0, "kv_usage": 0.0}

    async def close(self) -> None:
        pass

    def _generation(
        self, prompt_ids: list[int], sampling: Sampling, messages: list[Message], version: int
    ) -> Generation:
        reply = self._reply(messages) if callable(self._reply) else self._reply
        ids_T = sampled(spell(reply), end=not self.cut)
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

    @contextmanager
    def _counting_cancelled(self) -> Iterator[None]:
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            self.left.set()
            raise

    async def _reach(self) -> None:
        if self.down > 0:
            self.down -= 1
            raise PolicyUnavailable("vLLM cannot be reached: it is not there")


def _text(generation: Generation) -> str:
    return decode([token for token in generation.sampled_ids_T if token != END])


def _calls(text: str, generation: Generation) -> list[ToolCall]:
    """The calls in a text, with ids that differ from turn to turn."""
    return [
        {
            "id": f"call_{len(generation.prompt_ids_T)}_{index}",
            "type": "function",
            "function": {"name": found[1], "arguments": found[2]},
        }
        for index, found in enumerate(_CALL.finditer(text))
    ]


def _deltas(generation: Generation, *, is_read: bool) -> list[Delta]:
    """One for each sampled id; the marks of a thought or a call and the end token add nothing."""
    text = _text(generation)
    deltas: list[Delta] = [{"content": char} for char in text]
    thought = _THOUGHT.match(text) if is_read else None
    if thought is not None:
        for at in range(thought.end()):
            deltas[at] = {}
        for at in range(*thought.span(1)):
            deltas[at] = {"reasoning_content": text[at]}
    found = list(_CALL.finditer(text)) if is_read else []
    for index, (match, call) in enumerate(zip(found, _calls(text, generation), strict=False)):
        for at in range(*match.span()):
            deltas[at] = {}
        opening: ToolCallDelta = {
            **call,
            "index": index,
            "function": {"name": match[1], "arguments": ""},
        }
        deltas[match.start(2) - 1] = {"tool_calls": [opening]}
        for at in range(*match.span(2)):
            more: ToolCallDelta = {"index": index, "function": {"arguments": text[at]}}
            deltas[at] = {"tool_calls": [more]}
    return deltas + [{}] * (len(generation.sampled_ids_T) - len(text))


class FakeKeeper:
    """Keeps versions 0 and 3 of everybody, and one more of each user."""

    def __init__(self) -> None:
        self.pins: dict[str, int] = {}
        self.kept = {"": [0, 3], "anna": [0, 3, 4], "ben": [0, 3, 5]}

    async def versions(self, user: str) -> list[VersionJson]:
        return [
            {"version": version, "created_s": 1.5, "returned_to": None}
            for version in self._kept(user)
        ]

    async def rollback(self, version: int, user: str) -> int:
        if version not in self._kept(user):
            raise ConfigError(f"got version {version}, expected one that is kept")
        return 9

    async def pin(self, version: int, name: str, user: str) -> None:
        if version not in self._kept(user):
            raise ConfigError(f"got version {version}, expected one that is kept")
        self.pins[name] = version

    async def unpin(self, name: str, user: str) -> None:
        if self.pins.pop(name, None) is None:
            raise ConfigError(f"got the name {name!r}, expected one that is pinned")

    def _kept(self, user: str) -> list[int]:
        if user not in self.kept:
            raise ConfigError(f"there is no user {user!r}")
        return self.kept[user]
