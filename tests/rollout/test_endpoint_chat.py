"""Another server of the OpenAI API as the policy: what it may do, and what is made of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from clawrl_gym.core.errors import ContextError, PolicyError, RequestError
from clawrl_gym.core.types import Message, TaskRef
from clawrl_gym.rollout.episodes.chat import EndpointChat, PolicyAddress
from clawrl_gym.rollout.episodes.episode import EpisodeSpec
from tests.support.endpoint_rig import Endpoint, listening

SPEC = EpisodeSpec("e", None, TaskRef("t", 0, "heldout"), max_turns=3, timeout_s=5.0)
HELLO: list[Message] = [{"role": "user", "content": "hello"}]


@asynccontextmanager
async def chat_with(
    endpoint: Endpoint, patience_s: float = 5.0, key: str = "none", model: str = "scripted"
) -> AsyncIterator[EndpointChat]:
    async with listening(endpoint):
        address = PolicyAddress(endpoint.url, key, model, is_gateway=False, patience_s=patience_s)
        chat = EndpointChat(address, 5.0, 4)
        try:
            yield chat
        finally:
            await chat.close()


async def test_a_reply_comes_with_what_it_cost() -> None:
    async with chat_with(Endpoint(says=lambda body: "hi")) as chat:
        reply = await chat.reply(SPEC, HELLO, [])
    assert reply.message["content"] == "hi"
    assert (reply.prompt_tokens, reply.tokens, reply.finish_reason) == (11, 3, "stop")


async def test_a_server_that_does_not_count_leaves_the_cost_unknown() -> None:
    async with chat_with(Endpoint(usage=None)) as chat:
        reply = await chat.reply(SPEC, HELLO, [])
    assert (reply.prompt_tokens, reply.tokens) == (None, 0)


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_what_is_turned_away_for_now_is_asked_again_and_is_no_time_of_the_agents(
    status: int,
) -> None:
    endpoint = Endpoint(refusals=[status])
    async with chat_with(endpoint) as chat:
        waits = chat.waits_of(SPEC)
        assert (await chat.reply(SPEC, HELLO, [])).message["content"] == "nothing"
        assert len(endpoint.bodies) == 2
        assert (await waits(60.0)).outages_s >= 0.25
        await chat.end(SPEC, None, None)  # type: ignore[arg-type]
        assert (await waits(60.0)).outages_s == 0.0


async def test_patience_ends() -> None:
    endpoint = Endpoint(answers_left=0)
    async with chat_with(endpoint, patience_s=0.0) as chat:
        with pytest.raises(PolicyError, match=r"answered 503 to .*down"):
            await chat.reply(SPEC, HELLO, [])
    assert len(endpoint.bodies) == 1


@pytest.mark.parametrize(
    ("key", "model", "words"),
    [
        ("wrong", "scripted", "answered 401 to .*Incorrect API key"),
        ("none", "wrong", "answered 404 to .*`wrong` does not exist"),
    ],
)
async def test_who_is_refused_is_not_asked_again(key: str, model: str, words: str) -> None:
    endpoint = Endpoint()
    async with chat_with(endpoint, key=key, model=model) as chat:
        with pytest.raises(PolicyError, match=words):
            await chat.reply(SPEC, HELLO, [])
    assert len(endpoint.bodies) == 1


async def test_a_prompt_that_is_too_long_is_no_outage_whatever_the_status() -> None:
    class Full(Endpoint):
        async def chat(self, request: web.Request) -> web.Response:
            return web.Response(status=500, text="maximum context length is 8")

    async with chat_with(Full()) as chat:
        with pytest.raises(ContextError):
            await chat.reply(SPEC, HELLO, [])


async def test_a_bad_request_is_the_requests_fault() -> None:
    async with chat_with(Endpoint(refusals=[400])) as chat:
        with pytest.raises(RequestError):
            await chat.reply(SPEC, HELLO, [])


@pytest.mark.parametrize(
    "text",
    [
        "<html>welcome</html>",
        "[]",
        "{}",
        '{"choices": []}',
        '{"choices": [{"message": "hi"}]}',
        '{"choices": [{"message": {"content": "hi"}}], "usage": {"prompt_tokens": "many"}}',
    ],
)
async def test_an_answer_that_is_no_completion_is_told(text: str) -> None:
    class Strange(Endpoint):
        async def chat(self, request: web.Request) -> web.Response:
            return web.Response(text=text)

    async with chat_with(Strange()) as chat:
        with pytest.raises(PolicyError, match="expected a chat completion"):
            await chat.reply(SPEC, HELLO, [])


class Newer(Endpoint):
    """Takes the length of a reply by its newer name alone, as OpenAI's newest models do."""

    async def chat(self, request: web.Request) -> web.Response:
        if "max_tokens" not in await request.json():
            return await Endpoint.chat(self, request)
        self.bodies.append(await request.json())
        message = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead."
        )
        return web.json_response({"error": {"message": message}}, status=400)


async def test_a_server_that_takes_the_newer_name_of_a_length_is_asked_by_it_from_then_on() -> None:
    endpoint = Newer()
    async with listening(endpoint):
        address = PolicyAddress(endpoint.url, "none", "scripted", is_gateway=False, max_tokens=7)
        chat = EndpointChat(address, 5.0, 4)
        try:
            for _ in range(2):
                assert (await chat.reply(SPEC, HELLO, [])).message["content"] == "nothing"
        finally:
            await chat.close()
    lengths = [(b.get("max_tokens"), b.get("max_completion_tokens")) for b in endpoint.bodies]
    assert lengths == [(7, None), (None, 7), (None, 7)]


async def test_a_failure_in_an_answer_of_status_200_is_one_and_no_reply() -> None:
    """Routers in front of several providers answer so."""
    told: list[tuple[object, type[PolicyError]]] = [
        (400, RequestError),
        ("context_length_exceeded", ContextError),
        (401, PolicyError),
    ]
    for code, kind in told:

        class Router(Endpoint):
            failure: object = code

            async def chat(self, request: web.Request) -> web.Response:
                failure = {"code": self.failure, "message": "Provider returned error"}
                return web.json_response({"error": failure})

        async with chat_with(Router()) as chat:
            with pytest.raises(kind, match="Provider returned error"):
                await chat.reply(SPEC, HELLO, [])


async def test_a_busy_provider_behind_a_router_is_asked_again() -> None:
    class Busy(Endpoint):
        async def chat(self, request: web.Request) -> web.Response:
            answer = await Endpoint.chat(self, request)
            if len(self.bodies) < 3:
                return web.json_response({"error": {"code": 429, "message": "rate-limited"}})
            return answer

    endpoint = Busy()
    async with chat_with(endpoint) as chat:
        assert (await chat.reply(SPEC, HELLO, [])).message["content"] == "nothing"
    assert len(endpoint.bodies) == 3


async def test_calls_without_a_content_are_a_reply() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}

    class Terse(Endpoint):
        async def chat(self, request: web.Request) -> web.Response:
            return web.json_response({"choices": [{"message": {"tool_calls": [call]}}]})

    async with chat_with(Terse()) as chat:
        message = (await chat.reply(SPEC, HELLO, [])).message
    assert (message["content"], message["tool_calls"]) == (None, [call])
