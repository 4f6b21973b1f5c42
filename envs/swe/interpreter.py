"""The Python that runs a repository's tests in a sandbox without an image.

Either this machine's own below /usr, shown the pytest that is installed beside this package, or
that of a virtual environment, which is shown read-only at its own path together with the
installation that it was made from. Nothing else of this machine is shown, and a path that is no
such environment is refused: it may come from a row of somebody else's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.core.errors import TaskError

SYSTEM_PYTHON = "/usr/bin/python3"
_SYSTEM = ("/usr", "/bin", "/lib")
"""Folders that every sandbox has."""
_MARKS = ("pyvenv.cfg", "conda-meta")
"""Files that mark a Python environment and no other folder."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python as a sandbox is shown it."""

    path: str
    mounts: Mapping[str, str]
    """Folders of this machine, by their paths in a sandbox."""
    is_system: bool

    @property
    def env(self) -> dict[str, str]:
        """Variables with which commands take it."""
        if self.is_system:
            return {}
        folder = Path(self.path).parent
        return {"PATH": f"{folder}:{_PATH}", "VIRTUAL_ENV": str(folder.parent)}


def interpreter_at(path: str) -> Interpreter:
    """The Python of an environment, `ENVIRONMENT/bin/python`, or the system's own.

    Raises TaskError for what is neither.
    """
    if path == SYSTEM_PYTHON:
        return Interpreter(path, {}, True)
    python = Path(path)
    prefix = python.parent.parent
    if not (python.is_absolute() and python.parent.name == "bin" and _is_environment(prefix)):
        raise TaskError(
            f"got the Python {path!r}, expected bin/python of a virtual environment (a folder with "
            "pyvenv.cfg) on this machine, with the repository's dependencies and pytest in it; "
            "to make one: python3 -m venv FOLDER && FOLDER/bin/pip install pytest ..."
        )
    if not os.access(python, os.X_OK):
        raise TaskError(f"got the Python {path!r}, which is not a program here")
    folders = [prefix, *_bases(prefix, python)]
    outside = [folder for folder in folders if not folder.is_relative_to("/usr")]
    return Interpreter(path, {str(folder): str(folder.resolve()) for folder in outside}, False)


def _is_environment(prefix: Path) -> bool:
    return len(prefix.parts) > 2 and any((prefix / mark).exists() for mark in _MARKS)


def _bases(prefix: Path, python: Path) -> list[Path]:
    """The installation that an environment was made from, by each name that leads to it."""
    homes = [python.resolve().parent, *_home(prefix / "pyvenv.cfg")]
    if python.is_symlink():
        homes.append((python.parent / python.readlink()).parent)
    bases = dict.fromkeys(Path(os.path.normpath(home)).parent for home in homes)
    return [
        base
        for base in bases
        if base != prefix and not str(base).startswith(_SYSTEM) and any(base.glob("lib/python3*"))
    ]


def _home(settings: Path) -> list[Path]:
    try:
        lines = settings.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    values = (line.partition("=") for line in lines)
    return [Path(value.strip()) for key, _, value in values if key.strip() == "home"]
