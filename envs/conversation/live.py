"""Live sessions of a running gateway as conversations: this side answers in the policy's place.

The gateway gives the next new session to whoever waits for one (`live/seat.py`). Replies are not
streamed and are not the policy's: such turns are recorded without ids and never trained on.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

from clawrl_gym.agents.tool_calls import Reply
from clawrl_gym.core.errors import ConfigError, EnvError
from clawrl_gym.core.pictures import text_of
from clawrl_gym.envs.conversation.endpoint import Endpoint
from clawrl_gym.envs.conversation.partner import Info

_POLL_S = 10.0
"""How long one request waits inside the gateway."""
_SLACK_S = 10.0
"""What an answer may take beyond that."""


class LivePartner:
    """Whoever writes to the gateway next."""

    def __init__(self, gateway: Endpoint, timeout_s: float, max_turns: int) -> None:
        self._gateway = gateway
        self._timeout_s = timeout_s
        self._max_turns = max_turns
        self._seat: str | None = None
        self._session_id = ""
        self._tools: list[dict[str, Any]] = []
        self._messages: list[dict[str, Any]] = []
        self._turns = 0

    def begin(self, number: int, options: dict[str, Any]) -> tuple[str, Info]:
        """Wait for the next session that starts."""
        if options:
            raise ConfigError(f"got reset options {options!r}, expected none with source='live'")
        self.close()
        came = self._wait("POST", "/v1/seats", "seat", "no session started")
        self._seat, self._session_id = came["seat"], came["session_id"]
        self._turns = 0
        if not came.get("messages"):
            self.close()
            raise EnvError(f"the session {self._session_id!r} ended before it began")
        return self._observe(came)

    def hear(self, reply: Reply) -> tuple[str, float, bool, bool, Info]:
        """Deliver the reply and wait for what comes back, or for the session's end."""
        if self._seat is None:
            raise EnvError("got step() outside an episode, expected reset() first")
        self._turns += 1
        self._call("POST", f"/v1/seats/{self._seat}/reply", {"message": _message(reply)})
        path = f"/v1/seats/{self._seat}/next"
        came = self._wait("GET", path, "ready", "nothing came back")
        if came["ended"]:
            self._seat = None
            return "", 0.0, True, False, self._info("user")
        observation, info = self._observe(came)
        truncated = self._turns >= self._max_turns
        if truncated:
            self.close()
        return observation, 0.0, False, truncated, info

    def close(self) -> None:
        """Give the session back: from its next request on the policy answers."""
        seat, self._seat = self._seat, None
        if seat is not None:
            with suppress(EnvError):  # a gateway that is gone, or that gave the seat up itself
                self._gateway.call("DELETE", f"/v1/seats/{seat}", None, _SLACK_S)

    def _wait(self, method: str, path: str, key: str, missing: str) -> dict[str, Any]:
        """Ask again and again until the answer's `key` is set. Raises EnvError after timeout_s."""
        deadline_s = time.monotonic() + self._timeout_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            wait_s = min(_POLL_S, left_s)
            answer = self._call(method, f"{path}?timeout_s={wait_s:.3f}", None, wait_s)
            if answer.get(key):
                return answer
        raise EnvError(f"{missing} within {self._timeout_s:g} s")

    def _call(self, method: str, path: str, body: Any, wait_s: float = 0.0) -> dict[str, Any]:
        status, answer = self._gateway.call(method, path, body, wait_s + _SLACK_S)
        if status != 200 or not isinstance(answer, dict):
            self._seat = None
            raise EnvError(f"the gateway answered {status} to {path}: {str(answer)[:300]}")
        return answer

    def _observe(self, came: dict[str, Any]) -> tuple[str, Info]:
        """New messages as an observation: results of tool calls, or what was said."""
        self._tools = came["tools"]
        self._messages = messages = came["messages"]
        results = [m for m in messages if m.get("role") == "tool"]
        if results and len(results) == len(messages):
            shown = [
                {"tool_call_id": m.get("tool_call_id", ""), "content": text_of(m)} for m in results
            ]
            return json.dumps(shown), self._info("tool")
        said = [text_of(m) for m in messages if m.get("role") in ("user", "tool")]
        return "\n".join(said), self._info("user")

    def _info(self, role: str) -> Info:
        return {
            "task": self._session_id,
            "family": "live",
            "split": "train",
            "tools": self._tools,
            "messages": self._messages,
            "next_state_role": role,
            "first_reply_score": 0.0,
            "correct": False,
            "satisfied": False,
            "scores": {},
            "error": None,
        }


def _message(reply: Reply) -> dict[str, Any]:
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in reply.calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": reply.content or None}
    return message | {"tool_calls": calls} if calls else message | {"content": reply.content}
