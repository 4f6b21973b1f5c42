from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import pytest

from clawrl_gym.inference.vllm.middleware import RequireKey


class Inner:
    """The application behind the guard."""

    def __init__(self) -> None:
        self.reached = 0

    async def __call__(self, scope: object, receive: object, send: object) -> None:
        self.reached += 1


async def ask(
    guard: RequireKey, headers: list[tuple[bytes, bytes]], kind: str = "http"
) -> list[MutableMapping[str, Any]]:
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {}

    await guard({"type": kind, "headers": headers, "path": "/pause"}, receive, send)
    return sent


@pytest.fixture
def inner() -> Inner:
    return Inner()


@pytest.fixture
def guard(inner: Inner, monkeypatch: pytest.MonkeyPatch) -> RequireKey:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    return RequireKey(inner)


async def test_the_key_opens(guard: RequireKey, inner: Inner) -> None:
    assert await ask(guard, [(b"host", b"h"), (b"authorization", b"Bearer secret")]) == []
    assert inner.reached == 1


@pytest.mark.parametrize("given", [None, b"", b"secret", b"Bearer secre", b"Bearer secret2"])
async def test_anything_else_is_refused(
    guard: RequireKey, inner: Inner, given: bytes | None
) -> None:
    headers = [] if given is None else [(b"authorization", given)]
    assert (await ask(guard, headers))[0]["status"] == 401
    assert inner.reached == 0


async def test_a_websocket_needs_the_key_too_and_the_lifespan_does_not(
    guard: RequireKey, inner: Inner
) -> None:
    assert (await ask(guard, [], "websocket"))[0]["type"] == "websocket.close"
    assert inner.reached == 0
    await ask(guard, [], "lifespan")
    assert inner.reached == 1
