"""The gateway's client inside a Ray worker: one shared connection pool, typed errors."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import aiohttp

from clawrl_gym.agents.base import Tool
from clawrl_gym.core.errors import ContextError, PolicyError
from clawrl_gym.core.types import Episode, Message
from clawrl_gym.rollout.episode import Answer, EpisodeSpec


class GatewayChat:
    """Speaks the gateway's OpenAI API for many episodes at once."""

    def __init__(self, base_url: str, key: str, model: str, timeout_s: float, limit: int) -> None:
        self._base_url = base_url
        self._model = model
        self._http = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {key}"},
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            connector=aiohttp.TCPConnector(limit=limit),
        )

    async def reply(self, spec: EpisodeSpec, messages: list[Message], tools: list[Tool]) -> Answer:
        body: dict[str, Any] = {"model": self._model, "messages": messages}
        if tools:
            body["tools"] = tools
        if spec.temperature is not None:
            body["temperature"] = spec.temperature
        path = f"/sessions/{spec.session_id}/v1/chat/completions"
        answer = await self._post(path, body, _labels(spec))
        usage = answer.get("usage") or {}
        return Answer(answer["choices"][0]["message"], int(usage.get("completion_tokens", 0)))

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
        }
        await self._post(f"/sessions/{spec.session_id}/end", body, {})

    async def film(self, spec: EpisodeSpec, jpeg: bytes) -> None:
        """Send the film of an episode that is over."""
        await self._post(f"/sessions/{spec.session_id}/film", jpeg, {"Content-Type": "image/jpeg"})

    async def close(self) -> None:
        await self._http.close()

    async def _post(self, path: str, body: dict[str, Any] | bytes, headers: dict[str, str]) -> Any:
        sent: dict[str, Any] = (
            {"data": BytesIO(body)} if isinstance(body, bytes) else {"json": body}
        )
        try:
            async with self._http.post(self._base_url + path, headers=headers, **sent) as answer:
                if answer.status == 200:
                    return await answer.json()
                text = await answer.text()
        except (TimeoutError, aiohttp.ClientError) as error:
            raise PolicyError(f"the gateway did not answer {path}: {error!r}") from error
        if "context_length_exceeded" in text:
            raise ContextError(text[:300])
        raise PolicyError(f"the gateway answered {answer.status} to {path}: {text[:300]}")


def _labels(spec: EpisodeSpec) -> dict[str, str]:
    labels = {
        "X-Task-Id": spec.task.id or f"seed-{spec.task.seed}",
        "X-Split": spec.task.split,
    }
    if spec.group_id is not None:
        labels["X-Group-Id"] = str(spec.group_id)
    return labels
