"""Packages of other people, installed once from a lock file: never beside the project's own.

A folder in this user's cache holds what one lock names. It is whole or not there at all, each file
has been checked against the lock's digest, and nothing of a package ran while it was installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from clawrl_gym.core.files.files import cache_root
from tests.e2e.npm_packages import TOOLS

_INSTALL_S = 280


def python_of(lock: Path) -> Path:
    """Python of a virtual environment with the packages of a requirements.txt with hashes."""
    return _installed(lock, _venv) / "bin" / "python"


def node_modules_of(lock: Path) -> Path:
    """The `node_modules` of a package-lock.json, which lies beside its package.json."""
    return _installed(lock, _npm) / "node_modules"


def _installed(lock: Path, install: Callable[[Path, Path], None]) -> Path:
    name = f"{lock.parent.name}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    folder = cache_root() / "test-packages" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not (folder / "whole").exists():
            shutil.rmtree(folder, ignore_errors=True)
            install(lock, folder)
            (folder / "whole").touch()
    return folder


def _venv(lock: Path, folder: Path) -> None:
    uv = _found("uv")
    _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
    python = str(folder / "bin" / "python")
    checks = ["--no-deps", "--only-binary", ":all:", "--require-hashes"]
    _run([uv, "pip", "install", "--quiet", "--python", python, *checks, "-r", str(lock)])


def _npm(lock: Path, folder: Path) -> None:
    folder.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(lock.parent / name, folder)
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    _run([_found("npm"), "ci", *flags, "--prefix", str(folder)])


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command,
        env={**os.environ, "PATH": TOOLS},
        capture_output=True,
        text=True,
        timeout=_INSTALL_S,
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stderr[-2000:]}"


def _found(name: str) -> str:
    found = shutil.which(name, path=TOOLS)
    assert found, f"needs {name}: make develop"
    return found
