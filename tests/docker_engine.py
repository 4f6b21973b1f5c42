"""A Docker engine for the session's tests: the one that answers, or one of our own."""

import os
import subprocess
from pathlib import Path

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.docker.engine import engine
from clawrl_gym.envs.sandbox.docker.images import SWE_IMAGE, TERMINAL_IMAGE, ensure_image
from clawrl_gym.envs.sandbox.docker.ownership import OWNER_LABEL, own_name

_ROOT = Path(__file__).resolve().parents[1]
_SCRIPT = _ROOT / "docker" / "engine.sh"
_FOLDER = _ROOT / ".docker"
_started = False


def missing() -> str | None:
    """Have an engine with our images (the first time takes a minute); says why there is none."""
    try:
        if not _answers() and os.geteuid() == 0:
            _start()
        for image in (TERMINAL_IMAGE, SWE_IMAGE):
            ensure_image(image)
    except (SandboxError, subprocess.SubprocessError) as error:
        return f"needs a Docker engine: {error}"
    return None


def stop() -> None:
    """End the engine that `missing` started; its images stay for the next time."""
    global _started
    if _started:
        _started = False
        engine().close()
        del os.environ["DOCKER_HOST"]
        _run("stop", str(_FOLDER))


def own_containers() -> set[str]:
    """Ids of the containers that this process owns."""
    labels = {"label": f"{OWNER_LABEL}={own_name()}"}
    return {found["Id"] for found in engine().api.containers(all=True, filters=labels)}


def _answers() -> bool:
    try:
        engine()
    except SandboxError:
        return False
    return True


def _start() -> None:
    global _started
    if os.environ.get("CI") == "true":
        _run("install")
    os.environ["DOCKER_HOST"] = _run("start", str(_FOLDER))
    _started = True


def _run(*arguments: str) -> str:
    done = subprocess.run(
        [str(_SCRIPT), *arguments], capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode:
        raise SandboxError(f"docker/engine.sh {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()
