"""Atomic, linked and private files, and where caches lie."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

_OTHERS = 0o077
"""Permissions of the group and of everybody."""


def replace_text(path: Path, text: str) -> None:
    """Write or replace a file in one step. Raises OSError; the file is then unchanged."""
    scratch = path.with_name(path.name + ".new")
    scratch.write_text(text, encoding="utf-8", errors="replace")
    scratch.replace(path)


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link or copy a file that is never written again. Raises OSError."""
    try:
        target.hardlink_to(source)
    except OSError:  # other file systems, or one that knows no hard links
        shutil.copyfile(source, target)


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """Create everything inside with access for its owner only, in this process and its children."""
    before = os.umask(_OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def make_private(folder: Path) -> bool:
    """Restrict a folder and all in it to its owner; returns whether anybody else had access.

    Links are not followed, and what belongs to another user stays as it is.
    """
    could_look = folder.stat().st_mode & _OTHERS != 0
    for place, _, names in os.walk(folder):
        for path in (Path(place), *(Path(place, name) for name in names)):
            with contextlib.suppress(OSError):
                _restrict(path)
    return could_look


def _restrict(path: Path) -> None:
    mode = path.lstat().st_mode
    if mode & _OTHERS and not stat.S_ISLNK(mode):
        path.chmod(stat.S_IMODE(mode) & ~_OTHERS)


def cache_root() -> Path:
    """The folder where this user keeps files that can be fetched again."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    if not home.is_absolute() or not _may_write(home):
        home = Path(tempfile.gettempdir(), f"clawrl-cache-{os.getuid()}")
    return home / "clawrl_gym"


def _may_write(folder: Path) -> bool:
    while not folder.exists():
        folder = folder.parent
    return os.access(folder, os.W_OK)
