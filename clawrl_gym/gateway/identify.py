"""Which session does a request belong to, and is it a turn of the conversation?

In this order: the path, the header `X-Session-Id`, the body (`session_id`, or `session_id` in its
`metadata`), a line that the client writes into its first message (`live.runtime_session`), the
history, a fresh id. OpenAI's `user` names a person, not a conversation: it never is a session id,
but histories of different users are never matched.

By history: a request belongs to the session that made its last known reply after the same messages.
A request without any reply is new, whatever it says, unless the client says that it asks again.
Where several sessions fit, because two people had the same conversation so far: the one that asked
the same before, else one whose reply waits for an answer, else the last used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

from clawrl_gym.config import LiveConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Message, TurnKind
from clawrl_gym.dialogue.graph import Branch, TurnNode, digest_of_request
from clawrl_gym.dialogue.history import SessionIndex
from clawrl_gym.gateway.kinds import Kinds
from clawrl_gym.gateway.transient import Transient, compiled
from clawrl_gym.gateway.wire import Refusal, session_id_of

MatchedBy = Literal["path", "header", "body", "runtime", "history", "new"]
_TRUE = ("1", "true", "yes", "on")
_NOT_COMPARED = ("messages", "stream", "stream_options", "session_done")
"""Fields that two requests for the same reply may differ in, or that are compared apart."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a request is."""

    session_id: str
    matched_by: MatchedBy
    kind: TurnKind
    rule: str
    """What told the kind: `header`, `body`, a rule's name, or nothing."""
    done: bool
    """The client says that its session is over after this turn."""
    is_retry: bool | None
    """The client says that it asks again, or that it does not; None when it says nothing."""
    trail: Branch = field(repr=False)
    same: bytes = field(repr=False)
    """Hash of the whole request."""

    @property
    def is_explicit(self) -> bool:
        """The client itself named the session."""
        return self.matched_by in ("path", "header", "body")


class Identifier:
    """Tells sessions apart; remembers hashes of conversations, never their words."""

    def __init__(self, config: LiveConfig) -> None:
        """Raises ConfigError for rules and patterns that cannot be used."""
        self.transient = Transient(config.transient)
        self._kinds = Kinds(config.kinds)
        key = "live.runtime_session"
        self._runtime = [compiled(pattern, key) for pattern in config.runtime_session]
        if any(pattern.groups == 0 for pattern in self._runtime):
            raise ConfigError(f"{key}: got a pattern without a group, expected the id in one")
        self._history = SessionIndex()

    def identify(
        self,
        messages: list[Message],
        body: Mapping[str, Any],
        headers: Mapping[str, str],
        path_id: str | None,
    ) -> Identity:
        """Raises Refusal (400) when the client names a session that cannot be one."""
        told = {name.lower(): value for name, value in headers.items()}
        stable = self.transient.stable(messages)
        user = body.get("user")
        trail = Branch.of(stable, user if isinstance(user, str) else "")
        kind, rule = self._kinds.of(stable, body, told.get("x-turn-type"))
        is_retry = _is_retry(told)
        session_id, matched_by = (
            _named(path_id, told, body)
            or self._by_runtime(trail)
            or self._by_history(trail, kind, is_retry)
        )
        compared = {name: body[name] for name in body if name not in _NOT_COMPARED}
        return Identity(
            session_id=session_id,
            matched_by=matched_by,
            kind=kind,
            rule=rule,
            done=_is_true(told.get("x-session-done")) or _is_true(body.get("session_done")),
            is_retry=is_retry,
            trail=trail,
            same=digest_of_request([kind, messages, compared]),
        )

    def learn(self, session_id: str, mark: TurnNode, is_waiting: bool = True) -> None:
        """A main turn was recorded; a later request without any id may go on from it."""
        self._history.learn(session_id, mark, is_waiting)

    def answered(self, session_id: str, mark: TurnNode) -> None:
        """A turn has got its next state."""
        self._history.answered(session_id, mark)

    def forget(self, session_id: str) -> None:
        self._history.forget(session_id)

    def _by_runtime(self, trail: Branch) -> tuple[str, MatchedBy] | None:
        """By a line in the first message; later ones may quote anybody's."""
        if not trail.messages or trail.messages[0].get("role") != "user":
            return None
        text = text_of(trail.messages[0])
        for pattern in self._runtime:
            found = pattern.search(text)
            named = _valid(found[1]) if found is not None else None
            if named is not None:
                return named, "runtime"
        return None

    def _by_history(
        self, trail: Branch, kind: TurnKind, is_retry: bool | None
    ) -> tuple[str, MatchedBy]:
        session_id = self._history.find(trail, claims=kind == "main", is_retry=bool(is_retry))
        if session_id is not None:
            return session_id, "history"
        fresh = uuid4().hex
        if kind == "main":
            self._history.begun(fresh, trail)
        return fresh, "new"


def _named(
    path_id: str | None, headers: Mapping[str, str], body: Mapping[str, Any]
) -> tuple[str, MatchedBy] | None:
    """As the client names it. What stands in `metadata` may be meant for somebody else."""
    in_header = headers.get("x-session-id", "").strip()
    in_body = body.get("session_id")
    if path_id is not None:
        return session_id_of(path_id), "path"
    if in_header:
        return session_id_of(in_header), "header"
    if isinstance(in_body, str | int) and in_body != "":
        return session_id_of(str(in_body)), "body"
    metadata = body.get("metadata")
    named = _valid(metadata.get("session_id")) if isinstance(metadata, dict) else None
    return None if named is None else (named, "body")


def _valid(told: object) -> str | None:
    try:
        return session_id_of(told) if isinstance(told, str) else None
    except Refusal:
        return None


def _is_retry(headers: Mapping[str, str]) -> bool | None:
    count = headers.get("x-stainless-retry-count", "").strip()
    return int(count) > 0 if re.fullmatch(r"[0-9]{1,9}", count) else None


def _is_true(told: object) -> bool:
    return str(told).strip().lower() in _TRUE
