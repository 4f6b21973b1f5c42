"""The middleware inside vLLM, as far as it needs no vLLM."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import MutableMapping
from typing import Any

from clawrl_gym.inference.vllm.middleware import PolicyRoutes


class Inner:
    """The application behind it."""

    def __init__(self) -> None:
        self.reached: list[str] = []

    async def __call__(self, scope: MutableMapping[str, Any], receive: object, send: Any) -> None:
        self.reached.append(scope.get("path", scope["type"]))


async def ask(
    streams: PolicyRoutes, path: str, kind: str = "http"
) -> list[MutableMapping[str, Any]]:
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {}

    await streams({"type": kind, "path": path, "headers": []}, receive, send)
    return sent


async def test_nothing_is_generated_before_the_weights_have_a_version() -> None:
    """A server that comes back has its port open before anybody can tell it the version."""
    inner = Inner()
    streams = PolicyRoutes(inner)
    for path in ("/inference/v1/generate", "/clawrl/stream"):
        assert (await ask(streams, path))[0]["status"] == 503
    await ask(streams, "/health")
    assert (await ask(streams, "/inference/v1/generate"))[0]["status"] == 503
    await ask(streams, "/update_weight_version")
    assert await ask(streams, "/inference/v1/generate") == []
    assert inner.reached == ["/health", "/update_weight_version", "/inference/v1/generate"]


async def test_what_is_not_ours_is_passed_on() -> None:
    inner = Inner()
    await ask(PolicyRoutes(inner), "", "lifespan")
    await ask(PolicyRoutes(inner), "/v1/models")
    assert inner.reached == ["", "/v1/models"]


def test_importing_it_loads_no_vllm_and_no_web_framework() -> None:
    code = (
        "import sys, clawrl_gym.inference.vllm.middleware; "
        "sys.exit(any(name in sys.modules for name in ('vllm', 'starlette')))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
