"""Live sessions of a running gateway as conversations: this side answers in the policy's place.

The gateway gives the next new session to a client that waits for one (`/v1/seats`). Replies are not
streamed and are not the policy's: such turns are recorded without ids and never trained on.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TypedDict, TypeGuard

from clawrl_gym.agents.tool_calls import Reply, message_of
from clawrl_gym.core.errors import ConfigError, EnvError
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Json, Message, Tool
from clawrl_gym.envs.conversation.endpoint import Endpoint
from clawrl_gym.envs.task_env import Info

_POLL_S = 10.0
"""Seconds that one request waits inside the gateway."""
_SLACK_S = 10.0
"""Seconds that an answer may take beyond that."""


class _ResponderUpdate(TypedDict, total=False):
    """The gateway's update on a session that is answered from here."""

    seat: str | None
    session_id: str
    messages: list[Message]
    """New ones."""
    tools: list[Tool]
    ready: bool
    ended: bool


class LivePartner:
    """The next client that writes to the gateway."""

    def __init__(self, gateway: Endpoint, timeout_s: float, max_turns: int) -> None:
        self._gateway = gateway
        self._timeout_s = timeout_s
        self._max_turns = max_turns
        self._responder_id: str | None = None
        self._session_id = ""
        self._tools: list[Tool] = []
        self._messages: list[Message] = []
        self._turns = 0

    def begin(self, number: int, options: Json) -> tuple[str, Info]:
        """Wait for the next session that starts."""
        if options:
            raise ConfigError(f"got reset options {options!r}, expected none with source='live'")
        self.close()
        update = self._wait("POST", "/v1/seats", "seat", "no session started")
        self._responder_id, self._session_id = update["seat"], update["session_id"]
        self._turns = 0
        if not update.get("messages"):
            self.close()
            raise EnvError(f"the session {self._session_id!r} ended before it began")
        return self._observe(update)

    def hear(self, reply: Reply) -> tuple[str, float, bool, bool, Info]:
        """Deliver the reply and wait for what comes back, or for the session's end."""
        if self._responder_id is None:
            raise EnvError("got step() outside an episode, expected reset() first")
        self._turns += 1
        self._call("POST", f"/v1/seats/{self._responder_id}/reply", {"message": message_of(reply)})
        path = f"/v1/seats/{self._responder_id}/next"
        update = self._wait("GET", path, "ready", "nothing came back")
        if update["ended"]:
            self._responder_id = None
            return "", 0.0, True, False, self._info("user")
        observation, info = self._observe(update)
        truncated = self._turns >= self._max_turns
        if truncated:
            self.close()
        return observation, 0.0, False, truncated, info

    def close(self) -> None:
        """Give the session back: from its next request on the policy answers."""
        responder_id, self._responder_id = self._responder_id, None
        if responder_id is not None:
            with suppress(EnvError):  # a gateway that is gone, or that gave the place up itself
                self._gateway.call("DELETE", f"/v1/seats/{responder_id}", None, _SLACK_S)

    def _wait(self, method: str, path: str, key: str, missing: str) -> _ResponderUpdate:
        """Ask again and again until the answer's `key` is set. Raises EnvError after timeout_s."""
        deadline_s = time.monotonic() + self._timeout_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            wait_s = min(_POLL_S, left_s)
            answer = self._call(method, f"{path}?timeout_s={wait_s:.3f}", None, wait_s)
            if answer.get(key):
                return answer
        raise EnvError(f"{missing} within {self._timeout_s:g} s")

    def _call(
        self, method: str, path: str, body: Json | None, wait_s: float = 0.0
    ) -> _ResponderUpdate:
        status, answer = self._gateway.call(method, path, body, wait_s + _SLACK_S)
        if status != 200 or not _is_update(answer):
            self._responder_id = None
            raise EnvError(f"the gateway answered {status} to {path}: {str(answer)[:300]}")
        return answer

    def _observe(self, update: _ResponderUpdate) -> tuple[str, Info]:
        """New messages as an observation: results of tool calls, or what was said."""
        self._tools = update["tools"]
        self._messages = messages = update["messages"]
        results = [m for m in messages if m.get("role") == "tool"]
        if results and len(results) == len(messages):
            contents = [
                {"tool_call_id": m.get("tool_call_id", ""), "content": text_of(m)} for m in results
            ]
            return json.dumps(contents), self._info("tool")
        texts = [text_of(m) for m in messages if m.get("role") in ("user", "tool")]
        return "\n".join(texts), self._info("user")

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


def _is_update(answer: object) -> TypeGuard[_ResponderUpdate]:
    return isinstance(answer, dict)
