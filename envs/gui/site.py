"""A web site that lives inside an episode: it answers requests in this process, on no port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the browser."""

    method: str
    path: str
    """Decoded, begins with a slash."""
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    """Fields of a URL-encoded body; the last value of a name counts."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    """A response of the site."""

    body: bytes | str = ""
    status: int = 200
    content_type: str = "text/html; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


class Site(Protocol):
    """One episode's server behind one host name. Called by one thread at a time."""

    def handle(self, request: Request) -> Response:
        """Answer a request; whatever it raises is shown to the browser as status 500."""
        ...

    def state(self) -> object:
        """Stored state as JSON values, which the grade reads. Nothing else changes a grade."""
        ...
