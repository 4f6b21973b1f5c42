"""The same conversation in every dialect, by the official SDKs: equal turns, exact next states."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

from clawrl_gym.core.types import Message, Turn
from clawrl_gym.gateway.dialects.table import DIALECTS, dialect_of
from tests.support.fakes import FakePolicy
from tests.support.gateway_rig import Bench
from tests.support.waiting import until

SYSTEM = "You add numbers."
QUESTION = "What is 2 plus 3?"
THANKS = "Right, thank you."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
}
CALL: Message = {
    "role": "assistant",
    "content": "I add them.",
    "reasoning_content": "Two numbers.",
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'},
        }
    ],
}


def adding(messages: list[Message]) -> Message | str:
    """Calls the tool, then says what it gave back, then thanks."""
    if messages[-1]["role"] == "tool":
        return f"It is {messages[-1].get('content')}."
    return CALL if messages[-1].get("content") == QUESTION else "You are welcome."


REPEATED = {"type", "call_id", "name", "arguments"}
"""Fields of a call that a client sends back."""


@dataclass
class Client(ABC):
    """One SDK; each step is told and answered in its own dialect."""

    url: str
    key: str
    streams: bool
    session: str | None = None

    @abstractmethod
    async def converse(self) -> list[str]:
        """What was said in the whole conversation."""

    @property
    def base_url(self) -> str:
        return self.url if self.session is None else f"{self.url}/sessions/{self.session}"


class Chat(Client):
    async def converse(self) -> list[str]:
        function = {"name": "add", "parameters": SCHEMA, "strict": False}
        tool = {"type": "function", "function": function}
        messages: list[Any] = [
            {"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}
        ]  # fmt: skip
        said = []
        client = openai.AsyncOpenAI(base_url=f"{self.base_url}/v1", api_key=self.key)
        async with client:
            for answer in ("5", THANKS, None):
                message = await self._message(client, messages, tool)
                said.append(message.content)
                messages.append(message.model_dump(exclude_none=True))
                for call in messages[-1].get("tool_calls", ()):
                    call.pop("index", None)  # of the stream
                if message.tool_calls:
                    call_id = message.tool_calls[0].id
                    messages.append({"role": "tool", "tool_call_id": call_id, "content": answer})
                elif answer is not None:
                    messages.append({"role": "user", "content": answer})
        return said

    async def _message(self, client: Any, messages: list[Any], tool: Any) -> Any:
        asked = {"model": "tiny", "messages": messages, "tools": [tool]}
        if not self.streams:
            return (await client.chat.completions.create(**asked)).choices[0].message
        async with client.chat.completions.stream(**asked) as stream:
            return (await stream.get_final_completion()).choices[0].message


class Messages(Client):
    async def converse(self) -> list[str]:
        tool = {"name": "add", "input_schema": SCHEMA, "strict": False}
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        said = []
        async with anthropic.AsyncAnthropic(base_url=self.base_url, api_key=self.key) as client:
            for answer in ("5", THANKS, None):
                message = await self._message(client, messages, tool)
                blocks = [block.to_dict() for block in message.content]
                said.append("".join(block.get("text", "") for block in blocks))
                messages.append({"role": "assistant", "content": blocks})
                uses = [block for block in blocks if block["type"] == "tool_use"]
                content = [
                    {"type": "tool_result", "tool_use_id": use["id"], "content": answer}
                    for use in uses
                ]
                if answer is not None:
                    messages.append({"role": "user", "content": content or answer})
        return said

    async def _message(self, client: Any, messages: list[Any], tool: Any) -> Any:
        asked = {
            "model": "tiny", "system": SYSTEM, "messages": messages, "tools": [tool],
            "max_tokens": 64,
        }  # fmt: skip
        if not self.streams:
            return await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            return await stream.get_final_message()


class Responses(Client):
    async def converse(self) -> list[str]:
        client = openai.AsyncOpenAI(base_url=f"{self.base_url}/v1", api_key=self.key)
        items: list[Any] = [{"role": "user", "content": QUESTION}]
        named: dict[str, str] = {}
        said = []
        async with client:
            for answer in ("5", THANKS, None):
                response = await self._response(client, items, **named)
                said.append(response.output_text)
                calls = [item for item in response.output if item.type == "function_call"]
                new = [
                    {"type": "function_call_output", "call_id": call.call_id, "output": answer}
                    for call in calls
                ] or [{"role": "user", "content": answer}]
                before, named = self._before(response, items, calls)
                items = [*before, *new]
        return said

    def _before(
        self, response: Any, items: list[Any], calls: list[Any]
    ) -> tuple[list[Any], dict[str, str]]:
        """What the next request repeats of the conversation, and the answer that it names."""
        return [*items, *(item.to_dict() for item in response.output)], {}

    async def _response(self, client: Any, items: list[Any], **more: Any) -> Any:
        tool = {"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}
        asked = {"model": "tiny", "instructions": SYSTEM, "input": items, "tools": [tool], **more}
        if not self.streams:
            return await client.responses.create(**asked)
        async with client.responses.stream(**asked) as stream:
            return await stream.get_final_response()


class Continued(Responses):
    """Names the answer before instead of sending it back."""

    def _before(
        self, response: Any, items: list[Any], calls: list[Any]
    ) -> tuple[list[Any], dict[str, str]]:
        return [], {"previous_response_id": response.id}


class Referring(Responses):
    """Sends references to all items of answers."""

    def _before(
        self, response: Any, items: list[Any], calls: list[Any]
    ) -> tuple[list[Any], dict[str, str]]:
        references = [{"type": "item_reference", "id": item.id} for item in response.output]
        return [*items, *references], {}


class HalfReferring(Responses):
    """Refers to the text of an answer and repeats its calls, as the Vercel AI SDK does."""

    def _before(
        self, response: Any, items: list[Any], calls: list[Any]
    ) -> tuple[list[Any], dict[str, str]]:
        texts = [item for item in response.output if item.type == "message"]
        references = [{"type": "item_reference", "id": item.id} for item in texts]
        return [*items, *references, *(call.model_dump(include=REPEATED) for call in calls)], {}


CLIENTS: list[Any] = [Chat, Messages, Responses, Continued, Referring, HalfReferring]


@pytest.fixture
async def adder(bench: Bench) -> Bench:
    bench.policy._reply = adding
    return bench


def vars_of(turn: Turn) -> dict[str, object]:
    """Without what tells two equal conversations apart: names, ids, times."""
    return asdict(replace(turn, session_id="", id=None, created_s=0.0, answer_id=""))


async def conversation(bench: Bench, client: Client) -> tuple[list[str], list[Turn], Any]:
    known = {row.id for row in await bench.store.sessions()}
    said = await client.converse()
    (session,) = {row.id for row in await bench.store.sessions()} - known
    turns = await bench.store.turns_of(session)
    await until(lambda: len(bench.told.next_states) % 2 == 0)
    states = await bench.store.next_states_of(session)
    await bench.gateway.sessions.delete(session)  # the next conversation is not this one
    return said, turns, [states.get(turn.id or 0) for turn in turns]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("is_named", [False, True], ids=["by_history", "by_path"])
async def test_a_conversation_is_the_same_turns_in_every_dialect(
    adder: Bench, streams: bool, is_named: bool
) -> None:
    results = []
    for kind in CLIENTS:
        session = kind.__name__ if is_named else None
        client = kind(adder.url, adder.gateway.key, streams, session)
        results.append(await conversation(adder, client))
    said, turns, states = results[0]
    assert said == ["I add them.", "It is 5.", "You are welcome."]
    assert [turn.kind for turn in turns] == ["main"] * 3
    assert [state and state[-1].get("content") for state in states] == ["5", THANKS, None]
    for kind, (others_said, others, others_states) in zip(CLIENTS, results, strict=True):
        assert others_said == said, kind
        for other, turn in zip(others, turns, strict=True):
            assert vars_of(other) == vars_of(turn), (kind, turn.index)
        assert others_states == states, kind


async def test_an_answer_of_which_nothing_is_stored_cannot_be_continued(adder: Bench) -> None:
    nobodys = f"resp_{'0' * 32}"
    body = {"model": "tiny", "input": "go on", "previous_response_id": nobodys}
    status, answer, _ = await adder.post("/v1/responses", body)
    assert (status, answer["error"]["code"]) == (400, "previous_response_not_found")


@pytest.mark.parametrize("path", [*DIALECTS, "/v1/messages/count_tokens"])
async def test_errors_are_in_the_words_of_their_dialect(adder: Bench, path: str) -> None:
    wrong: Any
    for wrong in ({}, [], 7, {"model": "another"}, {"messages": 3, "input": 3, "prompt": 3}):
        status, answer, _ = await adder.post(path, wrong)
        assert status == 400, (wrong, answer)
        assert answer["error"]["message"]
        assert ("type" in answer) == path.startswith("/v1/messages")
    headers = {"Authorization": "", "x-api-key": "wrong"}
    async with (
        aiohttp.ClientSession(adder.url, headers=headers) as stranger,
        stranger.post(path, json={}) as refused,
    ):
        assert refused.status == 401
        assert ("type" in await refused.json()) == path.startswith("/v1/messages")


async def test_a_key_may_come_as_anthropics_clients_send_it(adder: Bench) -> None:
    headers = {"x-api-key": adder.gateway.key, "anthropic-version": "2023-06-01"}
    async with (
        aiohttp.ClientSession(adder.url, headers=headers) as client,
        client.get("/v1/models") as answer,
    ):
        assert answer.status == 200
        assert (await answer.json())["data"][0]["id"] == "tiny"


async def test_a_count_that_the_policy_does_not_give_is_its_failure(bench: Bench) -> None:
    async def silent(body: Any) -> list[int]:
        await asyncio.sleep(60)
        return []

    bench.timeout_s = 0.2
    await bench.restart()
    bench.policy.render = silent  # type: ignore[method-assign]
    asked = {"model": "tiny", "messages": [{"role": "user", "content": QUESTION}]}
    status, answer, _ = await bench.post("/v1/messages/count_tokens", asked)
    assert (status, answer["error"]["type"]) == (502, "api_error")


async def test_a_prompt_is_counted_without_a_turn(adder: Bench) -> None:
    asked: Any = {"model": "tiny", "messages": [{"role": "user", "content": QUESTION}]}
    async with anthropic.AsyncAnthropic(base_url=adder.url, api_key=adder.gateway.key) as client:
        counted = await client.messages.count_tokens(**asked)
    rendered = await FakePolicy().render({"messages": [{"role": "user", "content": QUESTION}]})
    assert counted.input_tokens == len(rendered)
    assert await adder.store.sessions() == []


def test_the_dialect_of_an_error_is_told_by_its_path() -> None:
    assert dialect_of("/sessions/a/v1/messages/count_tokens").name == "messages"
    assert dialect_of("/v1/completions").name == "completions"
    assert dialect_of("/v1/chat/completions").name == "chat"
    assert dialect_of("/metrics").name == "chat"
