"""A reply is the same however its stream is split and merged on the way: over HTTP, in the store,
beside one that was not streamed, and in what the client asks next."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawrl_gym.core.types import INTERRUPTED, ChatBody, Message, Tool, ToolCall
from clawrl_gym.inference.generation import Generation, Piece, Sampling
from tests.support.fakes import FakePolicy, sampled, spell
from tests.support.gateway_rig import Bench, user

TOOLS: list[Tool] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("read", "write")
]
NAMES = [tool["function"]["name"] for tool in TOOLS]
WORDS = st.text(st.sampled_from([*"ab é\n.{}\"'|>", "\U0001f600"]), max_size=40)
"""Without `<`, which begins the marks of the fake policy."""
CALL = st.builds(
    lambda name, given: {"name": name, "arguments": json.dumps(given, ensure_ascii=False)},
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(["path", "text"]), WORDS | st.integers(), max_size=2),
)


class CountingPolicy(FakePolicy):
    """Each token has a log-prob of its own."""

    def _generation(
        self, prompt_ids: list[int], sampling: Sampling, messages: list[Message], version: int
    ) -> Generation:
        made = super()._generation(prompt_ids, sampling, messages, version)
        return replace(made, logprobs_T=logprobs(len(made.sampled_ids_T)))


def logprobs(count: int) -> list[float | None]:
    return [-(at + 1) / 1024 for at in range(count)]


@st.composite
def replies(draw: st.DrawFn) -> Message:
    reply: Message = {"role": "assistant", "content": draw(WORDS)}
    calls = draw(st.lists(CALL, max_size=3))
    thoughts = draw(WORDS)
    if calls:
        made: list[ToolCall] = [{"type": "function", "function": call} for call in calls]  # type: ignore[typeddict-item]
        reply["tool_calls"] = made
    if thoughts:
        reply["reasoning_content"] = thoughts
    return reply


@dataclass(slots=True)
class Desk:
    """A gateway that outlives the examples, and the loop that they run in."""

    bench: Bench
    runner: asyncio.Runner
    sessions: int = 0

    def new_session(self, reply: Message, seed: int) -> str:
        """The first words of a session whose first reply this is, its pieces split by the seed."""
        self.sessions += 1
        policy = self.bench.policy
        policy._reply = lambda messages: reply if len(messages) == 1 else "ok"
        policy.seed, policy.dies_after = seed, None
        return f"words {self.sessions}"

    async def streamed(self, messages: list[Message], **fields: Any) -> tuple[Message, str]:
        """What a client makes of the deltas, and the session that it is told."""
        body = {"model": "tiny", "messages": messages, "tools": TOOLS, "stream": True, **fields}
        async with self.bench.http.post("/v1/chat/completions", json=body) as answer:
            raw = (await answer.read()).decode()
            session = answer.headers.get("X-Session-Id", "")
        events = [line.removeprefix("data: ") for line in raw.split("\n\n") if line[:1] == "d"]
        told = [json.loads(event) for event in events if event != "[DONE]"]
        said: Message = {"role": "assistant", "content": ""}
        for event in told:
            for choice in event.get("choices", []):
                add(said, choice["delta"])
        return said, session


def add(said: Message, delta: dict[str, Any]) -> None:
    """A delta to a message, as a client of the OpenAI API does it."""
    said["content"] = str(said["content"]) + (delta.get("content") or "")
    if delta.get("reasoning_content"):
        thoughts = said.get("reasoning_content", "")
        said["reasoning_content"] = thoughts + delta["reasoning_content"]
    for part in delta.get("tool_calls", []):
        calls = said.setdefault("tool_calls", [])
        if part["index"] == len(calls):
            function = {"name": part["function"]["name"], "arguments": ""}
            calls.append({"id": part["id"], "type": "function", "function": function})  # type: ignore[typeddict-item]
        function = calls[part["index"]]["function"]
        function["arguments"] += part["function"].get("arguments") or ""


def as_said(reply: Message) -> Message:
    """A reply with "" for no content, and without what only the API adds."""
    named = {key: value for key, value in reply.items() if key != "reasoning"}
    return {**named, "content": reply["content"] or ""}  # type: ignore[typeddict-item]


def answers_to(reply: Message) -> list[Message]:
    """What follows: a result for each call, or the user's words."""
    results: list[Message] = [
        {"role": "tool", "tool_call_id": call["id"], "content": f"result {at}"}
        for at, call in enumerate(reply.get("tool_calls", []))
    ]
    return results or [user("and now?")]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with asyncio.Runner() as runner:
        bench = Bench(tmp_path_factory.mktemp("splits"))
        bench.policy = CountingPolicy()
        runner.run(bench.start())
        yield Desk(bench, runner)
        runner.run(bench.stop())


@settings(max_examples=150, deadline=None, derandomize=True)
@given(reply=replies(), seed=st.integers(0, 2**32))
def test_a_reply_is_the_same_however_its_stream_is_split(
    desk: Desk, reply: Message, seed: int
) -> None:
    desk.runner.run(_is_the_same(desk, reply, seed))


async def _is_the_same(desk: Desk, reply: Message, seed: int) -> None:
    asked = [user(desk.new_session(reply, seed))]
    said, session = await desk.streamed(asked)
    (turn,) = await desk.bench.store.turns_of(session)
    ids_T = sampled(spell(reply))
    assert said == as_said(turn.reply)
    assert (turn.sampled_ids_T, turn.logprobs_T) == (ids_T, logprobs(len(ids_T)))

    answers = answers_to(said)
    _, found = await desk.streamed([*asked, said, *answers])
    assert found == session
    first, second = await desk.bench.store.turns_of(session)
    assert first.id is not None
    assert await desk.bench.store.next_state_of(first.id) == answers
    used_T = first.prompt_ids_T + first.sampled_ids_T
    assert second.prompt_ids_T[: len(used_T)] == used_T

    whole = await desk.bench.say(asked, f"whole-{desk.sessions}", tools=TOOLS)
    assert as_said(whole) == said


@settings(max_examples=40, deadline=None, derandomize=True)
@given(reply=replies(), seed=st.integers(0, 2**32), dies_after=st.integers(1, 60))
def test_a_reply_that_goes_on_after_a_failure_is_the_same(
    desk: Desk, reply: Message, seed: int, dies_after: int
) -> None:
    desk.runner.run(_is_the_same_after_a_failure(desk, reply, seed, dies_after))


async def _is_the_same_after_a_failure(
    desk: Desk, reply: Message, seed: int, dies_after: int
) -> None:
    asked = [user(desk.new_session(reply, seed))]
    desk.bench.policy.dies_after = dies_after
    said, session = await desk.streamed(asked)
    (turn,) = await desk.bench.store.turns_of(session)
    ids_T = sampled(spell(reply))
    assert said == as_said(turn.reply)
    assert (turn.sampled_ids_T, turn.logprobs_T) == (ids_T, logprobs(len(ids_T)))
    assert turn.finish_reason == "stop"
    whole = await desk.bench.say(asked, f"whole-{desk.sessions}", tools=TOOLS)
    assert as_said(whole) == said


@settings(max_examples=60, deadline=None, derandomize=True)
@given(reply=replies(), seed=st.integers(0, 2**32), dies_after=st.integers(1, 60))
def test_what_came_of_a_reply_that_broke_off_is_stored_as_the_client_saw_it(
    desk: Desk, reply: Message, seed: int, dies_after: int
) -> None:
    desk.runner.run(_is_stored_as_seen(desk, reply, seed, dies_after))


async def _is_stored_as_seen(desk: Desk, reply: Message, seed: int, dies_after: int) -> None:
    asked = [user(desk.new_session(reply, seed))]
    desk.bench.policy.dies_after = dies_after
    said, _ = await desk.streamed(asked, presence_penalty=0.5)  # cannot go on elsewhere
    (turn,) = await desk.bench.store.turns_of(desk.bench.told.turns[-1].session_id)
    ids_T = sampled(spell(reply))
    breaks_off = dies_after < len(ids_T)
    came_T = ids_T[:dies_after] if breaks_off else ids_T
    assert said == as_said(turn.reply)
    assert (turn.sampled_ids_T, turn.logprobs_T) == (came_T, logprobs(len(came_T)))
    if dies_after != len(ids_T):  # the end may come with the last token or after it
        assert (turn.finish_reason == INTERRUPTED) is breaks_off


def test_streams_merge_and_split_in_every_way() -> None:
    """The tests above rely on it: each form of a piece comes, and a seed always gives the same."""
    reply: Message = {"role": "assistant", "content": "so", "reasoning_content": "hm"}
    reply["tool_calls"] = [
        {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    ]
    forms = set()
    for seed in range(300):
        pieces = asyncio.run(_pieces(reply, seed))
        assert pieces == asyncio.run(_pieces(reply, seed))
        for at, piece in enumerate(pieces):
            forms.add((min(len(piece.ids_T), 2), *sorted(piece.delta), at + 1 == len(pieces)))
    kinds = [("content", "reasoning_content"), ("content", "tool_calls"), ("content",), ()]
    assert {(2, *kind, False) for kind in kinds} <= forms, "several tokens"
    assert {(0, *kind, True) for kind in [(), ("tool_calls",)]} <= forms, "the end after all ids"
    assert (2, "content", "reasoning_content", "tool_calls", True) in forms, "all at once"
    assert (0, False) in forms, "nothing at all"


async def _pieces(reply: Message, seed: int) -> list[Piece]:
    policy = FakePolicy(reply)
    policy.seed = seed
    body: ChatBody = {"messages": [user("x")]}
    pieces = policy.stream([1], Sampling(1.0, 1.0, 9), body, version=0)
    return [piece async for piece in pieces]
