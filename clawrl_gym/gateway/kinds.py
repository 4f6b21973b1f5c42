"""Main or side: is a request a turn of the conversation, or one that the client makes for itself?

Only main turns get next states, verdicts and gradients. What the client says comes first (the
header `X-Turn-Type`, then `turn_type` in the body: `main`, and everything else is side); then the
rules of `live.kinds`, of which the first that holds names the turn; then it is main.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clawrl_gym.config import KindRule
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Message, TurnKind
from clawrl_gym.gateway.transient import compiled

Found = tuple[TurnKind, str]
"""A turn's kind and what told it: `header`, `body`, a rule's name, or nothing."""


class Kinds:
    """The rules, ready to be asked."""

    def __init__(self, rules: Sequence[KindRule] = ()) -> None:
        """Raises ConfigError for a rule that would hold for all or has a bad expression."""
        self._rules = [_Rule.of(rule) for rule in rules]

    def of(self, messages: list[Message], body: Mapping[str, Any], told: str | None) -> Found:
        """`messages` without transient blocks; `told` is the header's value."""
        if told is not None and told.strip():
            return _named(told), "header"
        in_body = body.get("turn_type")
        if isinstance(in_body, str) and in_body.strip():
            return _named(in_body), "body"
        request = _Looks.at(messages, body)
        rule = next((rule for rule in self._rules if rule.holds(request)), None)
        return ("main", "") if rule is None else ("side", rule.name)


@dataclass(frozen=True, slots=True)
class _Looks:
    """What rules look at."""

    system: str
    first_user: str
    last_user: str
    max_tokens: int | None
    has_tools: bool

    @classmethod
    def at(cls, messages: list[Message], body: Mapping[str, Any]) -> _Looks:
        texts: dict[str, list[str]] = {"system": [], "user": []}
        for message in messages:
            texts.setdefault(message.get("role", ""), []).append(text_of(message))
        users = texts["user"] or [""]
        limits = (body.get("max_completion_tokens"), body.get("max_tokens"))
        limit = next((limit for limit in limits if isinstance(limit, int)), None)
        system = "\n".join(texts["system"])
        return cls(system, users[0], users[-1], limit, bool(body.get("tools")))


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    patterns: list[tuple[str, re.Pattern[str]]]
    """By the name of the text in `_Looks`."""
    max_tokens: int | None
    without_tools: bool | None

    @classmethod
    def of(cls, rule: KindRule) -> _Rule:
        key = f"live.kinds: {rule.name}"
        names = ("system", "first_user", "last_user")
        given = [(name, getattr(rule, name)) for name in names if getattr(rule, name) is not None]
        patterns = [(name, compiled(pattern, f"{key}.{name}")) for name, pattern in given]
        if not patterns and rule.max_tokens_at_most is None and rule.without_tools is None:
            raise ConfigError(f"{key}: got no condition, expected one: it would hold for all turns")
        return cls(rule.name, patterns, rule.max_tokens_at_most, rule.without_tools)

    def holds(self, request: _Looks) -> bool:
        if self.without_tools is not None and self.without_tools == request.has_tools:
            return False
        limit = request.max_tokens
        if self.max_tokens is not None and (limit is None or limit > self.max_tokens):
            return False
        return all(pattern.search(getattr(request, name)) for name, pattern in self.patterns)


def _named(told: str) -> TurnKind:
    return "main" if told.strip().lower() == "main" else "side"
