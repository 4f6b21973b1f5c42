"""Atomic replacement of a folder: a reader sees the old one or the new one, never a part, after a
crash too."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from clawrl_gym.core.files.files import link_or_copy


def begin_folder(folder: Path) -> Path:
    """Return an empty place in which to make what shall become `folder`."""
    finish_folder(folder)
    partial, _ = _beside(folder)
    shutil.rmtree(partial, ignore_errors=True)
    return partial


def end_folder(folder: Path) -> None:
    """Replace `folder` with what was made since `begin_folder`, flushed to the disk."""
    partial, old = _beside(folder)
    for path in (*partial.rglob("*"), partial):
        _flush(path)
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    _flush(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def link_folder(source: Path, target: Path) -> None:
    """Hard-link or copy a folder whose files are never written again."""
    partial = begin_folder(target)
    partial.mkdir(parents=True)
    for path in source.rglob("*"):
        if path.is_file():
            place = partial / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(path, place)
    end_folder(target)


def finish_folder(folder: Path) -> None:
    """Complete a replacement that a crash cut between its two renames; the new one was whole."""
    partial, old = _beside(folder)
    if old.exists() and not folder.exists():
        (partial if partial.exists() else old).rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _beside(folder: Path) -> tuple[Path, Path]:
    """The place of the new folder while it is made, and of the old one meanwhile."""
    return folder.with_name(f".{folder.name}.partial"), folder.with_name(f".{folder.name}.old")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
