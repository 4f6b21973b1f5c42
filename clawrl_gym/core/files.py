"""Files that a reader never sees half written."""

from __future__ import annotations

from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Write a file, or write it anew, in one step. Raises OSError; the file is then as it was."""
    scratch = path.with_name(path.name + ".new")
    scratch.write_text(text, encoding="utf-8", errors="replace")
    scratch.replace(path)
