"""PolicyClient: the only code that speaks to vLLM's HTTP. Token ids in, token ids out.

Prompt ids come from vLLM's own chat template, sampled ids and log-probs from its engine, messages
from its own parsers; nothing is ever tokenised again. It records nothing and retries nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import Literal, cast

from clawrl_gym.core.errors import PolicyError, PolicyUnavailable
from clawrl_gym.core.pictures import pictures_of
from clawrl_gym.core.types import ChatBody, JsonObject, Message
from clawrl_gym.inference.generation import ChatReply, Generation, Piece, Sampling, message_of
from clawrl_gym.inference.vllm.connections import VllmConnections
from clawrl_gym.inference.vllm.launch import PROBE_PRIORITY
from clawrl_gym.inference.vllm.wire import (
    ReplyAnswer,
    ReplyStream,
    StreamEvent,
    sampling_params,
    whole_generation,
)
from clawrl_gym.inference.weights.adapters import Adapters

__all__ = ["Generation", "PolicyClient", "PolicyUnavailable", "Sampling"]

Health = Literal["healthy", "unresponsive", "dead"]
WithPictures = Callable[[list[Message]], list[Message]]
"""Puts the bytes of pictures in the place of their hashes."""
_METRICS = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "kv_usage",
    "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:generation_tokens_total": "tokens",
    "vllm:num_preemptions_total": "preemptions",
    "vllm:request_success_total": "requests",
}
_CACHE = "vllm:cache_config_info"
_CONTEXTS = 'kv_cache_max_concurrency="'


class PolicyClient:
    """A connection pool to one vLLM. Use it from one event loop and close it."""

    def __init__(
        self,
        base_url: str | Callable[[], str],
        key: str,
        model: str,
        timeout_s: float,
        max_connections: int,
        *,
        always_parse: bool = False,
        unspoken: Sequence[int] = (),
        with_pictures: WithPictures | None = None,
        adapters: Adapters | None = None,
    ) -> None:
        """`base_url` is asked for at every request if it can be called: an engine may move.
        `always_parse`: vLLM has a reasoning parser, so no reply is plain text.

        `unspoken` are ids that stand for pictures and are never sampled; `with_pictures` puts
        the bytes in. `adapters` are those that are served; None: one set of weights is.
        """
        self._connections = VllmConnections(base_url, key, timeout_s, max_connections)
        self._model = model
        self._always_parse = always_parse
        self._unspoken = tuple(unspoken)
        self._with_pictures = with_pictures
        self._adapters = adapters

    async def render(self, body: ChatBody) -> list[int]:
        """Prompt ids of a chat request, by vLLM's chat template; ContextError when too long.

        Special tokens inside the texts stay text: what a person or a tool wrote cannot end a turn.
        """
        answer = await self._connections.post(
            "/clawrl/render", {"chat": self._chat_with_pictures(body)}
        )
        ids: list[int] = answer["token_ids"]
        return ids

    async def tokenize(self, text: str) -> list[int]:
        """Prompt ids of a text; special tokens in it stay text."""
        ids: list[int] = (await self._connections.post("/clawrl/tokenize", {"text": text}))[
            "token_ids"
        ]
        return ids

    async def generate(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        *,
        version: int,
        user: str = "",
        request_id: str | None = None,
    ) -> Generation:
        """Sample a reply to exact ids. `version` keeps prefix caches of different weights apart; of
        adapters it is the one that answers, of this user's (`""`: the run's own), which lives
        meanwhile.

        Raises PolicyUnavailable for an adapter that has left.
        """
        request: JsonObject = {
            "generate": self._generate(prompt_ids, sampling, version, request_id),
            "chat": None,
            "parse": False,
        }
        return _generation_in(*await self._reply(request, user, version), prompt_ids)

    async def generate_chat(
        self,
        body: ChatBody,
        sampling: Sampling,
        *,
        version: int,
        user: str = "",
        prompt_ids: list[int] | None = None,
        required_prefix: Sequence[int] = (),
        request_id: str | None = None,
    ) -> ChatReply:
        """`render`, `generate`, and what vLLM's parsers make of the reply, tool calls and reasoning
        included, in one call: it is what the deltas of a stream make together.

        Nothing is generated when the prompt does not begin with `required_prefix`: the caller
        decides on it, and calls again with `prompt_ids`, which are taken as they are.
        """
        reads = self._reads(body)
        request: JsonObject = {
            "generate": self._generate(prompt_ids, sampling, version, request_id),
            "chat": self._chat_with_pictures(body) if prompt_ids is None else self._chat(body),
            "parse": reads,
        }
        if prompt_ids is None:
            request["required_prefix"] = list(required_prefix)
        answer, stamp = await self._reply(request, user, version)
        if not answer["prefix_matched"]:
            return ChatReply(answer["prompt_ids"], None)
        whole_ids = [
            *(required_prefix if prompt_ids is None else prompt_ids),
            *answer["prompt_ids"],
        ]
        generation = _generation_in(answer, stamp, whole_ids)
        message = message_of(answer["deltas"] or []) if reads else _plain_message(generation)
        return ChatReply(whole_ids, (generation, message))

    async def logprobs(self, ids: list[int], *, version: int, user: str = "") -> list[float]:
        """Log-probs of all ids but the first, by the weights alone without sampling settings;
        computed afresh, whatever the cache holds, and before all that runs or waits."""
        sampling: JsonObject = {"temperature": 1.0, "max_tokens": 1, "prompt_logprobs": 0}
        body = self._generate(ids, Sampling(1.0, 1.0, 1), version, None)
        with self._holding(user, version) as name:
            answer = await self._connections.post(
                "/inference/v1/generate",
                body
                | {
                    "model": name or self._model,
                    "sampling_params": sampling,
                    "priority": PROBE_PRIORITY,
                },
            )
        rows = answer["prompt_logprobs"] or []
        if len(rows) != len(ids):
            raise PolicyError(f"vLLM sent log-probs of {len(rows)} ids, expected {len(ids)}")
        return [row[str(token)]["logprob"] for row, token in zip(rows[1:], ids[1:], strict=True)]

    def stream(
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
        """Sample a reply, piece by piece; the last piece holds it whole. `body` None: plain text.

        Closing the iterator aborts the generation. `resume_from` are the pieces of a reply that
        another server began: this one continues where they end.
        """
        parse = body is not None and self._reads(body)
        reply = ReplyStream(prompt_ids, resume_from, plain=not parse)
        if resume_from:
            sampling = sampling.after(len(reply.sampled_ids_T))
        request: JsonObject = {
            "generate": self._generate(prompt_ids, sampling, version, request_id),
            "chat": self._chat(body) if body is not None and parse else None,
            "parse": parse,
            "resume_from": list(reply.sampled_ids_T),
        }
        if body is not None and pictures_of(body["messages"]):
            request["seen"] = self._chat_with_pictures(body)
        return self._pieces(request, reply, user, version)

    def stream_chat(
        self,
        body: ChatBody,
        sampling: Sampling,
        *,
        version: int,
        user: str = "",
        required_prefix: Sequence[int] = (),
        request_id: str | None = None,
    ) -> AsyncGenerator[Piece, None]:
        """`render` and `stream` in one call, which brings the first token sooner.

        The first piece has the prompt ids. When they do not begin with `required_prefix`, it is the
        only one: nothing was generated, and the caller decides on the prompt.
        """
        reply = ReplyStream([], plain=not self._reads(body))
        request: JsonObject = {
            "generate": self._generate(None, sampling, version, request_id),
            "chat": self._chat_with_pictures(body),
            "parse": self._reads(body),
            "required_prefix": list(required_prefix),
        }
        return self._pieces(request, reply, user, version)

    async def metrics(self) -> dict[str, float]:
        """vLLM's own count of running and waiting requests, its cache usage (0 to 1), and since its
        start the tokens that it read and sampled, the requests that ended and its preemptions.
        `contexts`: as long as the model takes them, that fit into the cache; 0 when not said."""
        values = dict.fromkeys((*_METRICS.values(), "contexts"), 0.0)
        for line in (await self._connections.request("GET", "/metrics", None, 5.0)).splitlines():
            name, _, rest = line.partition("{")
            if name == _CACHE:
                values["contexts"] += _contexts(rest)
            if name in _METRICS:
                values[_METRICS[name]] += float(rest.rpartition(" ")[2])
        return values

    async def healthy(self, timeout_s: float = 2.0) -> bool:
        """Whether the server answers and its engine lives."""
        return await self.health(timeout_s) == "healthy"

    async def health(self, timeout_s: float) -> Health:
        """`dead`: it says at once that its engine has died, or refuses connections."""
        try:
            await self._connections.request("GET", "/health", None, timeout_s)
        except PolicyError as error:
            return "unresponsive" if isinstance(error.__cause__, TimeoutError) else "dead"
        return "healthy"

    async def pause(self, timeout_s: float) -> None:
        """Hold all requests between two tokens; none is refused or aborted."""
        await self._connections.request(
            "POST", "/pause?mode=keep&clear_cache=false", None, timeout_s
        )

    async def resume(self, timeout_s: float) -> None:
        """Resume requests; harmless when nothing is paused."""
        await self._connections.request("POST", "/resume", None, timeout_s)

    async def drop_cache(self, timeout_s: float) -> None:
        """Forget what the weights have read, of requests that are paused too: they resume once all
        before is read again. Only while paused, or what is dropped comes back at once."""
        path = "/reset_prefix_cache?reset_running_requests=true"
        answer = await self._connections.request("POST", path, None, timeout_s)
        if not json.loads(answer)["success"]:
            raise PolicyError("vLLM did not drop what its old weights have read (it says no more)")
        await self._connections.request("POST", "/reset_encoder_cache", None, timeout_s)

    async def reload_weights(self, timeout_s: float) -> None:
        """Read the weights again from the folder that the server was started with."""
        body = {"method": "reload_from_disk"}
        await self._connections.request("POST", "/collective_rpc", body, timeout_s)

    async def set_version(self, version: int, timeout_s: float) -> None:
        """Stamp `version` on all tokens sampled from now on."""
        body = {"new_version": str(version)}
        await self._connections.request("POST", "/update_weight_version", body, timeout_s)

    async def load_adapter(self, name: str, folder: str, timeout_s: float) -> None:
        """Have an adapter beside the others; it takes a few steps' time from nobody."""
        body = {"lora_name": name, "lora_path": folder}
        await self._connections.request("POST", "/v1/load_lora_adapter", body, timeout_s)

    async def unload_adapter(self, name: str, timeout_s: float) -> None:
        """Forget an adapter; those whom it answers are answered to the end."""
        body = {"lora_name": name}
        await self._connections.request("POST", "/v1/unload_lora_adapter", body, timeout_s)

    async def close(self) -> None:
        """Close all connections; idempotent, and a later call opens them again."""
        await self._connections.close()

    def _chat(self, body: ChatBody) -> JsonObject:
        return {**body, "model": self._model, "stream": False}

    def _chat_with_pictures(self, body: ChatBody) -> JsonObject:
        """A chat with the bytes of its pictures."""
        messages = body["messages"]
        if self._with_pictures is None or not pictures_of(messages):
            return self._chat(body)
        return self._chat(body) | {"messages": self._with_pictures(messages)}

    def _reads(self, body: ChatBody) -> bool:
        """Whether vLLM's parsers have anything to find in the reply."""
        return bool(body.get("tools")) or self._always_parse

    def _generate(
        self,
        prompt_ids: list[int] | None,
        sampling: Sampling,
        version: int,
        request_id: str | None,
    ) -> JsonObject:
        """vLLM's request to generate; without prompt ids it is not whole."""
        prompt = {} if prompt_ids is None else {"token_ids": prompt_ids}
        return prompt | {
            "request_id": request_id or uuid.uuid4().hex,
            "model": self._model,
            "cache_salt": str(version),
            "output_mode": "text",
            "sampling_params": sampling_params(sampling, self._unspoken),
        }

    def _holding(self, user: str, version: int) -> AbstractContextManager[str | None]:
        """Hold an adapter that answers; yields its name."""
        return nullcontext() if self._adapters is None else self._adapters.hold(user, version)

    @staticmethod
    def _name_adapter(request: JsonObject, name: str | None) -> None:
        """Have an adapter answer a request of ours."""
        if name is not None:
            request["generate"] = cast(JsonObject, request["generate"]) | {"model": name}

    async def _reply(
        self, request: JsonObject, user: str, version: int
    ) -> tuple[ReplyAnswer, int | None]:
        """The answer, and the version of the adapter that gave it; None: vLLM says which weights
        did."""
        with self._holding(user, version) as name:
            self._name_adapter(request, name)
            answer = await self._connections.post("/clawrl/reply", request)
        return cast(ReplyAnswer, answer), None if name is None else version

    async def _pieces(
        self, body: JsonObject, reply: ReplyStream, user: str, version: int
    ) -> AsyncGenerator[Piece, None]:
        with self._holding(user, version) as name:
            self._name_adapter(body, name)
            if name is not None:
                reply.version = version
            async with aclosing(self._connections.events("/clawrl/stream", body)) as events:
                async for event in events:
                    yield reply.piece(cast(StreamEvent, event))
        if not reply.ended:
            raise PolicyUnavailable("vLLM broke the stream off: it died or was stopped")


def _generation_in(answer: ReplyAnswer, stamp: int | None, prompt_ids: list[int]) -> Generation:
    """`stamp`: of the adapter that sampled all of it."""
    return whole_generation(
        prompt_ids, answer["ids"], answer["logprobs"], answer, answer["text"], version=stamp
    )


def _plain_message(generation: Generation) -> Message:
    """Message of a reply without anything to parse."""
    text = generation.text if generation.spoken_ids_T else ""
    return {"role": "assistant", "content": text or ""}


def _contexts(labels: str) -> float:
    """Number of contexts by the labels of `_CACHE`."""
    try:
        return float(labels.partition(_CONTEXTS)[2].partition('"')[0])
    except ValueError:
        return 0.0
