"""All dialects, by name: what reads their requests, and which one words an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clawrl_gym.gateway.dialects.chat import CHAT
from clawrl_gym.gateway.dialects.completions import COMPLETIONS
from clawrl_gym.gateway.dialects.dialect import Dialect, DialectRequest
from clawrl_gym.gateway.dialects.messages import MESSAGES, read_count
from clawrl_gym.gateway.dialects.responses import RESPONSES

DIALECTS: Mapping[str, Dialect] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETIONS,
    "/v1/messages": MESSAGES,
    "/v1/responses": RESPONSES,
}
"""By the end of their routes."""

COUNT = "count_tokens"
READERS: Mapping[str, Callable[[object], DialectRequest]] = {
    COUNT: read_count,
    **{dialect.name: dialect.read for dialect in DIALECTS.values()},
}
"""What reads a parsed body, by the name that a body is sent to another process with."""


def dialect_of(path: str) -> Dialect:
    """The dialect that an answer to a request of this path is in."""
    return next((DIALECTS[route] for route in DIALECTS if route in path), CHAT)
