"""Agents installed once in this user's cache, from their lock files, for sandboxes to show.

No install script of a package runs, every file is checked against the lock's digest, and a folder
is whole or not there at all. An agent that must be started once before its folder is read-only says
so in its recipe.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from clawrl_gym.agents.cli.recipe import AGENT_FOLDER, PYTHON_FOLDER, Guest, Recipe, filled
from clawrl_gym.agents.cli.recipes import RECIPES
from clawrl_gym.config import AgentConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files.files import cache_root

_LOCKS = Path(__file__).parent / "locks"
_INSTALL_S = 900.0
_SHOWN_CHARS = 300


def _silent(line: str) -> None:
    """Say nothing."""


def guest_of(config: AgentConfig, say: Callable[[str], None] = _silent) -> Guest:
    """The agent of a configuration, installed. Raises ConfigError where that cannot be done."""
    if config.name is not None:
        guest = Guest(RECIPES[config.name], mounts_of(config.name, say), timeout_s=config.timeout_s)
    else:
        folder = None if config.folder is None else Path(config.folder).expanduser().resolve()
        if folder is not None and not folder.is_dir():
            raise ConfigError(
                f"got agent.folder={config.folder!r}, expected a folder that is there"
            )
        guest = Guest(
            Recipe(tuple(config.command)),
            {} if folder is None else {AGENT_FOLDER: str(folder)},
            timeout_s=config.timeout_s,
        )
    return guest.with_env(config.env)


def mounts_of(name: str, say: Callable[[str], None] = _silent) -> dict[str, str]:
    """Folders of a known agent by their paths inside; it is installed where it is missing."""
    mounts = {AGENT_FOLDER: str(installed(name, say))}
    if RECIPES[name].packages == "pypi":
        mounts[PYTHON_FOLDER] = str(Path(sys.base_prefix).resolve())
    return mounts


def installed(name: str, say: Callable[[str], None] = _silent) -> Path:
    """Folder of a known agent, made when it is first asked for. Raises ConfigError."""
    lock = _lock_of(name)
    folder = _root() / f"{name}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder.with_suffix(".lock")):
            if not folder.is_dir():
                say(f"agent.name={name}: it is installed in {folder}")
                _install(name, lock, folder)
    except OSError as error:
        raise ConfigError(f"agent.name={name} cannot be installed in {folder}: {error}") from error
    return folder


def _root() -> Path:
    return cache_root() / "agents"


def _lock_of(name: str) -> Path:
    file = "package-lock.json" if RECIPES[name].packages == "npm" else "requirements.txt"
    return _LOCKS / name / file


def _install(name: str, lock: Path, folder: Path) -> None:
    """Install beside the folder and rename: whoever sees it sees all of it."""
    part = folder.with_suffix(f".{os.getpid()}.part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(lock.parent, part)
    try:
        _run(name, _npm(part) if RECIPES[name].packages == "npm" else _pip(lock, part), part)
        names = {"agent": str(part), "node": str(part / "node_modules/.bin/node")}
        completing = [filled(text, names) for text in RECIPES[name].completed_by]
        if completing:
            _run(name, completing, part, {"HOME": str(part), "PATH": os.defpath})
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _npm(folder: Path) -> list[str]:
    npm = _found("npm")
    if npm is None:
        raise OSError("there is no npm: install Node.js (apt-get install npm)")
    flags = ["--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund", "--loglevel=error"]
    return [npm, "ci", *flags, "--prefix", str(folder)]


def _pip(lock: Path, folder: Path) -> list[str]:
    """uv, where there is one, else pip."""
    uv = _found("uv")
    if uv is not None:
        command = [uv, "pip", "install", "--quiet", "--python", sys.executable]
    else:
        command = [sys.executable, "-m", "pip", "install", "--quiet"]
    return [*command, "--no-deps", "--only-binary", ":all:", "--require-hashes",
            "--target", str(folder / "site"), "-r", str(lock)]  # fmt: skip


def _found(program: str) -> str | None:
    """A program of this machine, else of this Python's environment."""
    return shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))


def _run(name: str, command: list[str], folder: Path, env: Mapping[str, str] | None = None) -> None:
    """`env`: all variables; None: those of this process."""
    try:
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=_INSTALL_S,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise OSError(f"no end within {_INSTALL_S:.0f} s") from error
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())[:_SHOWN_CHARS]
        raise OSError(f"{Path(command[0]).name} ended with exit code {done.returncode}: {said}")


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One installation at a time, over all processes of this machine."""
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
