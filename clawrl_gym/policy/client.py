"""PolicyClient: the only code that speaks to vLLM's HTTP. Token ids in, token ids out.

Prompt ids come from vLLM's own chat template, sampled ids and log-probs from its engine, messages
from its own parsers; nothing is ever tokenised again. It records nothing and retries nothing.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

import aiohttp

from clawrl_gym.errors import ContextError, PolicyError, RequestError
from clawrl_gym.policy.generation import (
    Generation,
    Sampling,
    read_generation,
    sampling_params,
)
from clawrl_gym.types import Message

__all__ = ["Generation", "PolicyClient", "PolicyUnavailable", "Sampling"]

_TOO_LONG = ("maximum context length", "maximum model length", "max_model_len")
_UNAVAILABLE = (429, 502, 503, 504)
_METRICS = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "kv_usage",
}


class PolicyUnavailable(PolicyError):
    """vLLM is starting, dying or overloaded: the same request may succeed later."""


class PolicyClient:
    """A connection pool to one vLLM. Use it from one event loop and close it."""

    def __init__(
        self,
        base_url: str,
        key: str,
        model: str,
        timeout_s: float,
        max_connections: int,
        *,
        always_parse: bool = False,
    ) -> None:
        """`always_parse`: vLLM has a reasoning parser, so no reply is plain text."""
        self._base_url = base_url.rstrip("/")
        self._key = key
        self._model = model
        self._timeout_s = timeout_s
        self._max_connections = max_connections
        self._always_parse = always_parse
        self._session: aiohttp.ClientSession | None = None

    async def render(self, body: dict[str, Any]) -> list[int]:
        """Prompt ids of a chat request, by vLLM's chat template; ContextError when too long."""
        answer = await self._post("/v1/chat/completions/render", self._chat(body))
        ids: list[int] = answer["token_ids"]
        return ids

    async def generate(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        *,
        version: int,
        request_id: str | None = None,
    ) -> Generation:
        """Sample a reply. `version` keeps prefix caches of different weights apart."""
        body = {
            "request_id": request_id or uuid.uuid4().hex,
            "model": self._model,
            "token_ids": prompt_ids,
            "cache_salt": str(version),
            "output_mode": "text",
            "sampling_params": sampling_params(sampling),
        }
        answer = await self._post("/inference/v1/generate", body)
        return read_generation(prompt_ids, answer["choices"][0])

    async def parse(self, body: dict[str, Any], generation: Generation) -> Message:
        """The reply as a chat message, tool calls and reasoning included, by vLLM's parsers.

        Without tools and without a reasoning parser the message is the text that came with the
        ids: no second request.
        """
        plain = not body.get("tools") and not self._always_parse
        if not generation.spoken_ids_T:
            return {"role": "assistant", "content": ""}
        if plain and generation.text is not None:
            return {"role": "assistant", "content": generation.text}
        answer = await self._post("/v1/chat/completions/derender", self._derender(body, generation))
        return _message(answer["choices"][0]["message"])

    async def metrics(self) -> dict[str, float]:
        """vLLM's own count of running and waiting requests, and its cache usage (0 to 1)."""
        values = dict.fromkeys(_METRICS.values(), 0.0)
        for line in (await self._request("GET", "/metrics", None, 5.0)).splitlines():
            name, _, rest = line.partition("{")
            if name in _METRICS:
                values[_METRICS[name]] += float(rest.rpartition(" ")[2])
        return values

    async def healthy(self, timeout_s: float = 2.0) -> bool:
        """Whether the server answers and its engine lives."""
        try:
            await self._request("GET", "/health", None, timeout_s)
        except PolicyError:
            return False
        return True

    async def pause(self, timeout_s: float) -> None:
        """Hold all requests between two tokens; none is refused or aborted."""
        await self._request("POST", "/pause?mode=keep&clear_cache=false", None, timeout_s)

    async def resume(self, timeout_s: float) -> None:
        """Let requests go on; harmless when nothing is paused."""
        await self._request("POST", "/resume", None, timeout_s)

    async def reload_weights(self, timeout_s: float) -> None:
        """Read the weights again from the folder that the server was started with."""
        body = {"method": "reload_from_disk"}
        await self._request("POST", "/collective_rpc", body, timeout_s)

    async def set_version(self, version: int, timeout_s: float) -> None:
        """Stamp `version` on all tokens sampled from now on."""
        body = {"new_version": str(version)}
        await self._request("POST", "/update_weight_version", body, timeout_s)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _chat(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**body, "model": self._model, "stream": False}

    def _derender(self, body: dict[str, Any], generation: Generation) -> dict[str, Any]:
        choice = {
            "index": 0,
            "finish_reason": generation.finish_reason,
            "token_ids": generation.spoken_ids_T,
        }
        return {
            "model": self._model,
            "generate_response": {"choices": [choice]},
            "prompt_token_ids": generation.prompt_ids_T,
            "chat_request": self._chat(body),
        }

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(
            await self._request("POST", path, body, self._timeout_s)
        )
        return answer

    async def _request(
        self, method: str, path: str, body: dict[str, Any] | None, timeout_s: float
    ) -> str:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        url = self._base_url + path
        try:
            async with self._open().request(method, url, json=body, timeout=timeout) as response:
                text = await response.text()
                if response.status == 200:
                    return text
        except TimeoutError as error:
            raise PolicyUnavailable(f"vLLM did not answer {path} within {timeout_s:g} s") from error
        except aiohttp.ClientError as error:
            raise PolicyUnavailable(
                f"vLLM cannot be reached for {path}: {type(error).__name__}: {error}"
            ) from error
        raise _refusal(path, response.status, text)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._max_connections, keepalive_timeout=60),
                headers={"Authorization": f"Bearer {self._key}"},
            )
        return self._session


def _message(raw: dict[str, Any]) -> Message:
    message: Message = {"role": "assistant", "content": raw.get("content")}
    if raw.get("tool_calls"):
        message["tool_calls"] = raw["tool_calls"]
    reasoning = raw.get("reasoning") or raw.get("reasoning_content")
    if reasoning:
        message["reasoning_content"] = reasoning
    return message


def _refusal(path: str, status: int, text: str) -> PolicyError:
    try:
        answer = json.loads(text)
        said = str(answer.get("error", {}).get("message") or answer.get("detail") or answer)
    except (ValueError, AttributeError):
        said = text.strip()
    kind: type[PolicyError] = PolicyUnavailable if status in _UNAVAILABLE else PolicyError
    if status in (400, 422):
        kind = ContextError if any(sign in said for sign in _TOO_LONG) else RequestError
    return kind(f"vLLM answered {path} with {status}: {said[:500]}")
