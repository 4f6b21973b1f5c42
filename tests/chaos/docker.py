"""A Docker engine of the harness's own, whose daemon can be hit; as root only."""

from __future__ import annotations

import subprocess
from pathlib import Path

from clawrl_gym.envs.sandbox.docker.ownership import OWNER_LABEL
from tests.e2e.runs import ROOT

_SCRIPT = ROOT / "docker" / "engine.sh"
_START_S = 120.0


class DockerEngine:
    """Below one folder, with its images, which stay for the next time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def start(self) -> str:
        """Unless it runs; returns its address."""
        done = subprocess.run(
            [_SCRIPT, "start", self._folder], capture_output=True, text=True, timeout=_START_S
        )
        if done.returncode:
            raise RuntimeError(f"no Docker engine: {done.stderr.strip()}")
        return done.stdout.strip()

    @property
    def pid(self) -> int:
        """Process id of the daemon."""
        return int((self._folder / "pid").read_text())

    def containers(self) -> list[str]:
        """Ids of all containers of this package on it."""
        line = ["docker", "-H", self.start(), "ps", "-aq", "--filter", f"label={OWNER_LABEL}"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.split()

    def stop(self) -> None:
        """End it; its images stay."""
        subprocess.run([_SCRIPT, "stop", self._folder], capture_output=True, timeout=60)
