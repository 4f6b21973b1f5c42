"""Access of episodes to a policy, with typed errors.

`GatewayChat` speaks to our gateway, which records the session, over one connection for all episodes
(`link.py`); `EndpointChat` to any other server of the OpenAI API, which records nothing;
`FunctionChat` to a function of one's own.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from io import BytesIO
from typing import Any, Literal

import aiohttp

from clawrl_gym.core.errors import (
    PolicyError,
    ReplyTimeout,
    boundary,
)
from clawrl_gym.core.link import LARGEST_BODY_BYTES, in_one_line
from clawrl_gym.core.processes.slow_machine import is_slow
from clawrl_gym.core.types import Episode, Json, Message, Tool
from clawrl_gym.inference.openai.answers import (
    Wording,
    asked_again,
    completion_of,
    failure_of,
    reaching,
    refusal_of,
)
from clawrl_gym.rollout.episodes.deadline import WaitClock, Waits
from clawrl_gym.rollout.episodes.episode import EpisodeSpec, PolicyReply
from clawrl_gym.rollout.episodes.link import GatewayLink

EVALUATION_HEADER = "X-Clawrl-Evaluation"
_TOO_LONG = 504
"""The gateway's: the policy works and has not ended its reply."""
_MARGIN_S = 30.0
"""The gateway knows why a reply does not come, so it gives up this much sooner."""
_PATHS = {"chat": "/v1/chat/completions", "end": "/end"}
"""Paths below a session for what goes over the link."""
_SOON = aiohttp.ClientTimeout(total=5.0)


@dataclass(frozen=True, slots=True)
class PolicyAddress:
    """Address of a policy."""

    base_url: str
    """Address of our gateway; for any other server with its `/v1`."""
    key: str
    model: str
    is_gateway: bool = True
    """False: any server of the OpenAI API, which knows no sessions."""
    max_tokens: int | None = None
    """Longest reply; None leaves it to the server. The gateway has its own."""
    patience_s: float = 0.0
    """Seconds for which a request is repeated that another server turned away for now (429, 5xx) or
    did not get."""

    def session_url(self, session_id: str) -> str:
        """Address with /v1 for a program: the gateway's session, or the server itself."""
        if not self.is_gateway:
            return self.base_url
        return f"{self.base_url}/sessions/{session_id}/v1"


class GatewayChat:
    """Speaks the gateway's OpenAI API for many episodes at once.

    Replies and ends come on the link; what is large or rare goes over HTTP.
    """

    def __init__(self, address: PolicyAddress, timeout_s: float, limit: int) -> None:
        self._base_url = address.base_url
        self._model = address.model
        self._http = _http(address, timeout_s + _MARGIN_S, limit)
        self._link = GatewayLink(address.base_url, address.key)

    async def reply(
        self, spec: EpisodeSpec, messages: list[Message], tools: list[Tool]
    ) -> PolicyReply:
        body: dict[str, object] = {"model": self._model, "messages": messages}
        if tools:
            body["tools"] = tools
        if spec.temperature is not None:
            body["temperature"] = spec.temperature
        return _reply_of(await self._ask("chat", spec, body, _labels(spec)))

    async def begin(self, spec: EpisodeSpec) -> None:
        """Open the session, for a program that knows nothing of tasks and groups."""
        await self._post(f"/sessions/{spec.session_id}/begin", {}, _labels(spec))

    async def end(
        self, spec: EpisodeSpec, episode: Episode, next_state: list[Message] | None
    ) -> None:
        body = {
            "reward": episode.reward,
            "stop_reason": episode.stop_reason.value,
            "next_state": next_state,
            "error": episode.error,
            "solved": episode.solved,
        }
        await self._ask("end", spec, body, _labels(spec))

    async def film(self, spec: EpisodeSpec, jpeg: bytes) -> None:
        """Send the film of an episode that is over."""
        await self._post(f"/sessions/{spec.session_id}/film", jpeg, {"Content-Type": "image/jpeg"})

    def waits_of(self, spec: EpisodeSpec) -> WaitClock:
        """The gateway's counts: outages for all episodes, slow replies of this one's session."""

        async def waits(last_s: float) -> Waits:
            query = f"last_s={last_s:.3f}&session_id={spec.session_id}"
            url = f"{self._base_url}/v1/outages?{query}"
            told = await _get_json(self._http, url)
            names = ("outages_s", "slow_s", "tokens_per_s")
            return Waits(*(float(told.get(name) or 0.0) for name in names))

        return waits

    async def close(self) -> None:
        await self._link.close()
        await self._http.close()

    async def _ask(
        self, route: Literal["chat", "end"], spec: EpisodeSpec, body: Json, headers: dict[str, str]
    ) -> Any:
        path, line = f"/sessions/{spec.session_id}{_PATHS[route]}", in_one_line(body)
        if len(line) > LARGEST_BODY_BYTES:
            return await self._post(path, line, headers | {"Content-Type": "application/json"})
        url, timeout_s = self._base_url + path, self._http.timeout.total
        with reaching(url, timeout_s):
            async with asyncio.timeout(timeout_s):
                status, answer = await self._link.request(route, spec.session_id, headers, line)
        if status == 200:
            return json.loads(answer)
        raise _refusal(url, status, answer.decode())

    async def _post(self, path: str, body: Json | bytes, headers: dict[str, str]) -> Any:
        return await _post_json(self._http, self._base_url + path, body, headers)


class EndpointChat:
    """Speaks the OpenAI API of any server. Each request says that it measures (a header that our
    gateway knows), so that a policy that learns while it serves learns nothing of it.

    What the server turns away for now is asked again, with growing pauses, or when it says; these
    seconds are none of the agent's.
    """

    def __init__(self, address: PolicyAddress, timeout_s: float, limit: int) -> None:
        self._base_url = address.base_url.rstrip("/")
        self._address = address
        self._http = _http(address, timeout_s, limit)
        self._waited_s: defaultdict[str, float] = defaultdict(float)
        """Seconds waited, by open session."""
        self._wording = Wording()

    async def reply(
        self, spec: EpisodeSpec, messages: list[Message], tools: list[Tool]
    ) -> PolicyReply:
        fields: dict[str, object] = {
            "tools": tools or None,
            "temperature": spec.temperature,
            "max_tokens": self._address.max_tokens,
        }
        body: dict[str, object] = {"model": self._address.model, "messages": messages}
        body |= {name: value for name, value in fields.items() if value is not None}

        def waited(seconds: float) -> None:
            self._waited_s[spec.session_id] += seconds

        ask = partial(self._ask, spec.session_id)
        return await asked_again(
            lambda: self._wording.asked(ask, body), self._address.patience_s, waited
        )

    async def _ask(self, session_id: str, body: Json) -> PolicyReply:
        url = f"{self._base_url}/chat/completions"
        headers = {EVALUATION_HEADER: "1", "X-Session-Id": session_id}
        try:
            with reaching(url, self._http.timeout.total):
                async with self._http.post(url, json=body, headers=headers) as answer:
                    text = await answer.text()
        except ReplyTimeout as late:
            await _require_answer(self._http, f"{self._base_url}/models")
            timeout_s = self._http.timeout.total or math.inf
            if is_slow(self._address.max_tokens, timeout_s):
                raise PolicyError(
                    f"the server is too slow: a reply of at most {self._address.max_tokens} tokens "
                    f"had not ended after {timeout_s:g} s"
                ) from late
            raise
        if answer.status != 200:
            raise failure_of(url, answer.status, text, answer.headers.get("Retry-After"))
        completion = completion_of(url, text)
        with boundary(PolicyError, f"{url} answered {text[:100]!r}, expected a chat completion"):
            reply = _checked(_reply_of(completion))
        return replace(reply, version=_version(answer.headers.get("X-Weight-Version")))

    async def begin(self, spec: EpisodeSpec) -> None:
        """Do nothing: there are no sessions."""

    async def end(
        self, spec: EpisodeSpec, episode: Episode, next_state: list[Message] | None
    ) -> None:
        """Do nothing: there is nothing to record."""
        self._waited_s.pop(spec.session_id, None)

    async def film(self, spec: EpisodeSpec, jpeg: bytes) -> None:
        """Do nothing: films are not kept."""

    def waits_of(self, spec: EpisodeSpec) -> WaitClock:
        """An episode's clock of waits for a server that turned it away."""

        async def waits(last_s: float) -> Waits:
            return Waits(self._waited_s.get(spec.session_id, 0.0))

        return waits

    async def close(self) -> None:
        await self._http.close()


class FunctionChat:
    """A function as the policy: messages and tools in, a message or its text out; may be async."""

    def __init__(self, function: Callable[[list[Message], list[Tool]], object]) -> None:
        self._function = function

    async def reply(
        self, spec: EpisodeSpec, messages: list[Message], tools: list[Tool]
    ) -> PolicyReply:
        """Raises PolicyError for whatever the function raises or gives that is not a message."""
        with boundary(PolicyError, "the policy's function"):
            is_coroutine = iscoroutinefunction(self._function)
            if is_coroutine:
                reply = self._function(messages, tools)
            else:  # in a thread: a slow one must not hold up the episode's deadline
                reply = await asyncio.to_thread(self._function, messages, tools)
            if isawaitable(reply):
                reply = await reply
        if isinstance(reply, str):
            return PolicyReply({"role": "assistant", "content": reply})
        if not isinstance(reply, dict) or not _is_reply(reply):
            raise PolicyError(
                f"got a reply {reply!r:.200} of type {type(reply).__name__} from the policy's "
                "function, expected a text or a message such as "
                "{'role': 'assistant', 'content': '...'}"
            )
        message: Message = {**reply, "role": "assistant"}  # type: ignore[typeddict-item]
        return PolicyReply(message)

    async def end(
        self, spec: EpisodeSpec, episode: Episode, next_state: list[Message] | None
    ) -> None:
        """Do nothing: there is nothing to record."""


def _is_reply(message: Json) -> bool:
    content, calls = message.get("content"), message.get("tool_calls")
    if calls is not None and not (
        isinstance(calls, list) and all(isinstance(call, dict) for call in calls)
    ):
        return False
    return isinstance(content, str | list) or (content is None and bool(calls))


PolicyChat = GatewayChat | EndpointChat


def chat_of(address: PolicyAddress, timeout_s: float, limit: int) -> PolicyChat:
    """The client that an address wants, with at most `limit` connections."""
    kind = GatewayChat if address.is_gateway else EndpointChat
    return kind(address, timeout_s, limit)


def _http(address: PolicyAddress, timeout_s: float, limit: int) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {address.key}"},
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        connector=aiohttp.TCPConnector(limit=limit),
    )


def _reply_of(completion: Any) -> PolicyReply:
    usage, choice = completion.get("usage") or {}, completion["choices"][0]
    prompt_tokens = usage.get("prompt_tokens")
    return PolicyReply(
        choice["message"],
        int(usage.get("completion_tokens") or 0),
        None if prompt_tokens is None else int(prompt_tokens),
        choice.get("finish_reason"),
    )


def _checked(reply: PolicyReply) -> PolicyReply:
    """A reply of anybody's server. Raises ValueError for what is not a message. Some leave the
    content of one that calls tools out."""
    message = reply.message
    if not isinstance(message, dict) or not ("content" in message or message.get("tool_calls")):
        raise ValueError("its choices[0].message is no message with a content")
    return reply if "content" in message else replace(reply, message={**message, "content": None})


def _version(text: str | None) -> int | None:
    """The weight version that our gateway says in a header."""
    return int(text) if text is not None and text.isdecimal() else None


async def _post_json(
    http: aiohttp.ClientSession, url: str, body: Json | bytes, headers: dict[str, str]
) -> Any:
    """The JSON answer. Raises ContextError, RequestError, ReplyTimeout or PolicyError."""
    data = BytesIO(body) if isinstance(body, bytes) else None
    fields = body if data is None else None
    with reaching(url, http.timeout.total):
        async with http.post(url, headers=headers, json=fields, data=data) as answer:
            if answer.status == 200:
                return await answer.json()
            text = await answer.text()
    raise _refusal(url, answer.status, text)


def _refusal(url: str, status: int, text: str) -> PolicyError:
    """The error for a refusal of the gateway."""
    if status == _TOO_LONG:
        return ReplyTimeout(f"the policy answered {status} to {url}: {text[:300]}")
    return refusal_of(url, status, text)


async def _get_json(http: aiohttp.ClientSession, url: str) -> Any:
    """Get JSON. Raises PolicyError when it does not come at once."""
    with _answering(url):
        async with http.get(url, timeout=_SOON, raise_for_status=True) as answer:
            return await answer.json()


async def _require_answer(http: aiohttp.ClientSession, url: str) -> None:
    """Raises PolicyError where a server says nothing at all, not even 404."""
    with _answering(url):
        async with http.get(url, timeout=_SOON):
            pass


@contextmanager
def _answering(url: str) -> Iterator[None]:
    try:
        yield
    except (TimeoutError, ValueError, aiohttp.ClientError) as error:
        raise PolicyError(f"the policy did not answer {url}: {error!r}") from error


def _labels(spec: EpisodeSpec) -> dict[str, str]:
    labels = {
        "X-Task-Id": spec.task.id or f"seed-{spec.task.seed}",
        "X-Split": spec.task.split,
    }
    if spec.group_id is not None:
        labels["X-Group-Id"] = str(spec.group_id)
    return labels
