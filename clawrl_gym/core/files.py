"""Files that a reader never sees half written, and files in two places."""

from __future__ import annotations

import shutil
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Write a file, or write it anew, in one step. Raises OSError; the file is then as it was."""
    scratch = path.with_name(path.name + ".new")
    scratch.write_text(text, encoding="utf-8", errors="replace")
    scratch.replace(path)


def link_or_copy(source: Path, target: Path) -> None:
    """The same file in a second place: for files that are never written again. Raises OSError."""
    try:
        target.hardlink_to(source)
    except OSError:  # other file systems, or one that knows no hard links
        shutil.copyfile(source, target)
