"""A server of the OpenAI API as the engine: what it says, what it cannot be asked, what is kept."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

import clawrl_gym as cg
from clawrl_gym.config import EndpointConfig
from clawrl_gym.core.errors import ConfigError, PolicyError, PolicyUnavailable, RequestError
from clawrl_gym.core.types import ChatBody, Message
from clawrl_gym.inference.generation import Piece, Sampling, message_of
from clawrl_gym.inference.openai.client import OpenAiClient
from clawrl_gym.inference.structured import Structured
from clawrl_gym.preflight.preflight import (
    preflight_evaluation,
    preflight_serving,
    preflight_training,
)
from clawrl_gym.run.policy import ServedPolicy
from clawrl_gym.store.reader import StoreReader
from clawrl_gym.ui.transcripts import read_transcript
from tests.support.endpoint_rig import Endpoint, listening

HELLO: ChatBody = {"messages": [{"role": "user", "content": "hello"}]}
WARM = Sampling(1.0, 1.0, 8)
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}


@dataclass(slots=True)
class Server(Endpoint):
    """Answers with log-probs, in pieces where it is asked to."""

    words: tuple[str, ...] = ("well", ", ", "hi")
    calls: list[dict[str, Any]] = field(default_factory=list)
    breaks_off: bool = False
    tells_logprobs: bool = True

    async def chat(self, request: web.Request) -> web.StreamResponse:  # type: ignore[override]
        body = await request.json()
        if self.refusals or not body.get("stream"):
            answer = await super(Server, self).chat(request)
            return self._whole() if answer.status == 200 else answer
        self.bodies.append(body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for at, word in enumerate(self.words):
            await self._send(response, {"content": word}, self._logprobs(at, at + 1))
        for at, call in enumerate(self.calls):
            await self._send(response, {"tool_calls": [{"index": at, **call}]}, None)
        if not self.breaks_off:
            await self._send(response, {}, None, "tool_calls" if self.calls else "stop")
            usage: dict[str, Any] = {"choices": [], "usage": self.usage}
            await response.write(f": ping\r\n\r\ndata: {json.dumps(usage)}\r\n\r\n".encode())
            await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    def _whole(self) -> web.Response:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self.words) or None}
        if self.calls:
            message["tool_calls"] = self.calls
        reason = "tool_calls" if self.calls else "stop"
        choice: dict[str, Any] = {"message": message, "finish_reason": reason}
        choice["logprobs"] = self._logprobs(0, len(self.words))
        return web.json_response({"choices": [choice], "usage": self.usage})

    def _logprobs(self, start: int, end: int) -> dict[str, Any] | None:
        if not self.tells_logprobs:
            return None
        tokens = [{"token": w, "logprob": -0.5 - at} for at, w in enumerate(self.words)]
        return {"content": tokens[start:end]}

    @staticmethod
    async def _send(
        response: web.StreamResponse, delta: Any, logprobs: Any, reason: str | None = None
    ) -> None:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        await response.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())


@asynccontextmanager
async def client_of(server: Endpoint, **options: Any) -> AsyncIterator[OpenAiClient]:
    async with listening(server):
        endpoint = EndpointConfig(base_url=server.url, model="scripted", **options)
        client = OpenAiClient(endpoint, 5.0, 4)
        try:
            yield client
        finally:
            await client.close()


async def pieces_of(client: OpenAiClient) -> list[Piece]:
    return [piece async for piece in client.stream_chat(HELLO, WARM, version=0)]


async def test_a_reply_has_log_probs_as_many_tokens_as_are_counted_and_no_ids() -> None:
    async with client_of(Server(usage={"prompt_tokens": 5, "completion_tokens": 4})) as client:
        reply = await client.generate_chat(HELLO, WARM, version=3)
        streamed = await pieces_of(client)
    assert reply.whole is not None
    generation, message = reply.whole
    assert message == {"role": "assistant", "content": "well, hi"}
    assert generation.prompt_ids_T == [-1] * 5
    assert generation.sampled_ids_T == [-1] * 4
    assert generation.logprobs_T == [-0.5, -1.5, -2.5, None], "the last one is not told"
    assert generation.versions_T == [-1] * 4
    assert (generation.finish_reason, generation.untrainable) == ("stop", "unknown_ids")
    assert streamed[0].prompt_ids_T == [-1]
    assert [piece.delta.get("content") for piece in streamed[1:-1]] == ["well", ", ", "hi"]
    assert [piece.logprobs_T for piece in streamed[1:-1]] == [[-0.5], [-1.5], [-2.5]]
    assert streamed[-1].generation == generation
    assert message_of(piece.delta for piece in streamed) == message


async def test_calls_and_a_server_that_tells_no_log_probs() -> None:
    server = Server(words=(), calls=[CALL], tells_logprobs=False, usage=None)
    async with client_of(server, max_tokens=5) as client:
        reply = await client.generate_chat(HELLO, WARM, version=0)
        streamed = await pieces_of(client)
    assert reply.whole is not None
    generation, message = reply.whole
    assert message["tool_calls"] == [CALL]
    assert (generation.logprobs_T, generation.finish_reason) == ([None], "stop")
    assert message_of(piece.delta for piece in streamed) == message
    whole, stream = server.bodies
    assert (whole["max_tokens"], whole["logprobs"], whole["model"]) == (5, True, "scripted")
    assert stream["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    "sampling",
    [Sampling(1.0, 1.0, 8, top_k=3), Sampling(1.0, 1.0, 8, logit_bias=((5, 1.0),))],
)
async def test_a_setting_that_the_api_has_not_is_refused_by_name(sampling: Sampling) -> None:
    name = "top_k" if sampling.top_k else "logit_bias"
    server = Server()
    async with client_of(server) as client:
        with pytest.raises(RequestError, match=f"got {name}, which .* cannot be asked for"):
            await client.generate_chat(HELLO, sampling, version=0)
        with pytest.raises(RequestError, match="takes no token ids"):
            await client.generate([1], WARM, version=0)
    assert server.bodies == []


@pytest.mark.parametrize(
    ("form", "sent"),
    [
        (Structured.of("response_format", "json_object", True), {"type": "json_object"}),
        (
            Structured.of("guided_json", "json", {"type": "object"}),
            {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": {"type": "object"}, "strict": True},
            },
        ),
        (Structured.of("tool_choice", "tool_call", "required"), None),
    ],
)
async def test_a_form_that_the_api_has_is_asked_for(form: Structured, sent: Any) -> None:
    server = Server()
    async with client_of(server) as client:
        await client.generate_chat(HELLO, replace(WARM, structured=form), version=0)
    (body,) = server.bodies
    assert body.get("response_format") == sent
    assert "guided_json" not in body


@pytest.mark.parametrize("kind", ["regex", "choice", "grammar"])
async def test_a_form_that_the_api_has_not_is_refused_by_name(kind: Any) -> None:
    form, server = Structured.of("structured_outputs", kind, "a"), Server()
    async with client_of(server) as client:
        with pytest.raises(RequestError, match=r"got structured_outputs, which .* cannot be asked"):
            await client.generate_chat(HELLO, replace(WARM, structured=form), version=0)
    assert server.bodies == []


async def test_a_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PROVIDERS_KEY", "sk-1")
    async with client_of(Server(key="sk-1"), key="env:SOME_PROVIDERS_KEY") as client:
        assert (await client.generate_chat(HELLO, WARM, version=0)).whole is not None
    asked = ["endpoint.base_url=http://a/v1", "endpoint.key=env:SOME_PROVIDERS_KEY"]
    assert cg.load_config(asked, "evaluate").endpoint.key == "sk-1"
    monkeypatch.delenv("SOME_PROVIDERS_KEY")
    with pytest.raises(ConfigError, match="the environment has no SOME_PROVIDERS_KEY"):
        cg.load_config(asked, "evaluate")


async def test_what_is_turned_away_for_now_is_asked_again() -> None:
    server = Server(refusals=[429, 503])
    async with client_of(server) as client:
        reply = await client.generate_chat(HELLO, WARM, version=0)
        assert len(await pieces_of(client)) == 5
    assert reply.whole is not None
    assert len(server.bodies) == 4


async def test_a_stream_that_breaks_off_is_no_whole_reply() -> None:
    async with client_of(Server(breaks_off=True)) as client:
        with pytest.raises(PolicyUnavailable, match="broke the stream off"):
            await pieces_of(client)


async def test_who_does_not_answer_or_refuses_the_key_is_not_ready() -> None:
    async with client_of(Server(key="another")) as client:
        with pytest.raises(PolicyError, match="answered 401"):
            await client.metrics()
    with pytest.raises(PolicyUnavailable):
        await client.metrics()
    await client.close()


# Behind the gateway.


def serving(server: Endpoint, *overrides: str) -> Any:
    options = [f"policy.options.base_url={server.url}", "policy.options.model=scripted"]
    base = ["policy.engine=openai", *options, "gateway.port=0", "learn=false", *overrides]
    return cg.load_config(base, "serve")


async def asked(policy: ServedPolicy, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {policy.address.key}"}
    url = f"{policy.address.base_url}/sessions/s1/v1/{path}"
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.post(url, json=body) as answer,
    ):
        if body.get("stream"):
            return answer.status, await answer.text()
        return answer.status, await answer.json()


async def test_served_turns_are_kept_with_their_log_probs_and_are_never_trained_on(
    tmp_path: Path,
) -> None:
    messages: list[Message] = [{"role": "user", "content": "hello"}]
    counted = Server(usage={"prompt_tokens": 5, "completion_tokens": 3})
    async with (
        listening(counted) as server,
        ServedPolicy(serving(server), tmp_path) as policy,
    ):
        status, first = await asked(policy, "chat/completions", {"messages": messages})
        assert status == 200
        assert first["usage"]["total_tokens"] == 8
        messages += [first["choices"][0]["message"], {"role": "user", "content": "and now?"}]
        status, text = await asked(
            policy, "chat/completions", {"messages": messages, "stream": True}
        )
        assert status == 200
        assert [word in text for word in ("well", ", ", "hi", "[DONE]")] == [True] * 4
        assert server.bodies[1]["messages"][0] == messages[0]
        status, refusal = await asked(policy, "completions", {"prompt": "Once"})
        assert status == 400
        assert "takes no token ids and tells none" in refusal["error"]["message"]
        wish = {"messages": messages, "top_k": 5}
        status, refusal = await asked(policy, "chat/completions", wish)
        assert status == 400
        assert "got top_k" in refusal["error"]["message"]
        assert policy.gateway.stats.untrainable == {"unknown_ids": 2}
    reader = StoreReader(tmp_path)
    (session,) = reader.sessions()
    turns = reader.turns_of("s1")
    shown = read_transcript(reader, session, None)
    reader.close()
    assert [turn.untrainable for turn in turns] == ["unknown_ids"] * 2
    assert [turn.logprobs_T for turn in turns] == [[-0.5, -1.5, -2.5]] * 2
    assert [turn.sampled_ids_T for turn in turns] == [[-1] * 3] * 2
    assert [turn.kind for turn in turns] == ["main"] * 2
    assert [token.text for token in shown.turns[0].tokens] == ["well, hi", "", ""]


async def test_what_cannot_be_served_is_said_before_anything_starts(tmp_path: Path) -> None:
    folder = f"run.dir={tmp_path / 'run'}"
    async with listening(Server()) as server:
        config = serving(server, folder)
        plan = preflight_serving(config)
        assert plan.model is None
        train = cg.load_config(
            ["policy.engine=openai", f"policy.options.base_url={server.url}", folder]
        )
        with pytest.raises(ConfigError, match=r"policy.engine=openai, which has no token_ids \("):
            preflight_training(train)
        with pytest.raises(ConfigError, match=r"and no weights \(.*serve with learn=true"):
            preflight_serving(serving(server, folder, "learn=true"))
        with pytest.raises(ConfigError, match=r"expected policy\.servers=1"):
            preflight_serving(serving(server, folder, "policy.servers=2"))
    with pytest.raises(ConfigError, match=r"policy.options.base_url=.* where no server answers"):
        preflight_serving(config)
    nameless = cg.load_config(["policy.engine=openai", "learn=false", folder], "serve")
    with pytest.raises(ConfigError, match=r"policy\.options\.base_url: got nothing"):
        preflight_serving(nameless)


async def test_an_evaluation_with_it_is_one_of_the_endpoint(tmp_path: Path) -> None:
    rest = ["env=gym", "env.target=tests.support.guess_env:GuessEnv", "eval.tasks=2"]
    async with listening(Server()) as server:
        there = [server.url, "scripted"]
        one, other = (
            cg.load_config([*keys, *rest, f"run.dir={tmp_path}"], "evaluate")
            for keys in (
                [f"endpoint.base_url={there[0]}", f"endpoint.model={there[1]}"],
                [
                    "policy.engine=openai", f"policy.options.base_url={there[0]}",
                    f"policy.options.model={there[1]}",
                ],
            )
        )  # fmt: skip
        assert one == other
        assert preflight_evaluation(one).model is None
    both = ["policy.engine=openai", "policy.options.base_url=http://a/v1"]
    with pytest.raises(ConfigError, match="expected one of them"):
        cg.load_config([*both, "endpoint.base_url=http://b/v1"], "evaluate")
