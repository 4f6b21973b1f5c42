"""A Docker engine for the session's tests: the one that answers, or one of our own.

Workers of a session share it: one starts it while the others wait, the last one ends it.
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.docker.engine import engine
from clawrl_gym.envs.sandbox.docker.images import SWE_IMAGE, TERMINAL_IMAGE, ensure_image
from clawrl_gym.envs.sandbox.docker.ownership import OWNER_LABEL, own_name

_ROOT = Path(__file__).resolve().parents[2]
_SCRIPT = _ROOT / "docker" / "engine.sh"
_FOLDER = _ROOT / ".docker"
_CHANGES = _FOLDER / "tests.lock"
"""Locked by whoever starts or ends the engine, or makes its images."""
_USERS = _FOLDER / "tests.users"
"""Locked, shared, by each process that uses the engine; not empty when tests have started it."""
_using: IO[str] | None = None


def begin() -> None:
    """Have an engine and images made by a process that is nobody's child, as root.

    Who needs them before they are there waits, and is told what is wrong.
    """
    if os.geteuid() == 0:
        with _changing():
            _use()  # the last one ends it
        command = ["setsid", "--fork", sys.executable, "-m", "tests.support.docker_engine"]
        nothing = subprocess.DEVNULL
        subprocess.run(
            command,
            cwd=_ROOT,
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            check=True,
            timeout=60,
        )


def missing() -> str | None:
    """Have an engine with our images (the first time takes a minute); says why there is none."""
    try:
        with _changing():
            _prepare()
            _use()
    except (SandboxError, subprocess.SubprocessError) as error:
        return f"needs a Docker engine: {error}"
    return None


def stop() -> None:
    """End the engine that tests started when nobody uses it any more; its images stay."""
    global _using
    if _using is None:
        return
    with _changing(), _using as using:
        _using = None
        engine().close()
        os.environ.pop("DOCKER_HOST", None)
        try:
            fcntl.flock(using, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if _USERS.read_text():
            _USERS.write_text("")
            _run("stop", str(_FOLDER))


def own_containers() -> set[str]:
    """Ids of the containers that this process owns."""
    labels = {"label": f"{OWNER_LABEL}={own_name()}"}
    return {found["Id"] for found in engine().api.containers(all=True, filters=labels)}


def _prepare() -> None:
    if not _answers() and os.geteuid() == 0:
        _start()
    for image in (TERMINAL_IMAGE, SWE_IMAGE):
        ensure_image(image)


def _answers() -> bool:
    try:
        engine()
    except SandboxError:
        return False
    return True


def _use() -> None:
    global _using
    if _using is None and os.geteuid() == 0:
        _using = _USERS.open("a")
        fcntl.flock(_using, fcntl.LOCK_SH)


@contextmanager
def _changing() -> Iterator[None]:
    """Alone with the engine, where root may start one."""
    if os.geteuid() != 0:
        yield
        return
    _FOLDER.mkdir(exist_ok=True)
    with _CHANGES.open("w") as changes:
        fcntl.flock(changes, fcntl.LOCK_EX)
        yield


def _start() -> None:
    if os.environ.get("CI") == "true":
        _run("install")
    os.environ["DOCKER_HOST"] = _run("start", str(_FOLDER))
    _USERS.write_text("started by tests\n")


def _run(*arguments: str) -> str:
    done = subprocess.run(
        [str(_SCRIPT), *arguments], capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode:
        raise SandboxError(f"docker/engine.sh {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    with _changing():
        _prepare()
