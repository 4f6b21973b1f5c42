"""A folder that takes the place of another whole: a reader sees the old one or the new one, never a
part, after a crash too."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from clawrl_gym.core.files import link_or_copy


def begin_folder(folder: Path) -> Path:
    """The place, nothing there yet, in which what shall be `folder` is made."""
    finish_folder(folder)
    partial, _ = _beside(folder)
    shutil.rmtree(partial, ignore_errors=True)
    return partial


def end_folder(folder: Path) -> None:
    """What was made since `begin_folder` takes the place of `folder`, flushed to the disk."""
    partial, old = _beside(folder)
    for path in (*partial.rglob("*"), partial):
        _flush(path)
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    _flush(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def link_folder(source: Path, target: Path) -> None:
    """The same files in a second place: for files that are never written again."""
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
    """Where the new folder grows, and where the old one waits for it."""
    return folder.with_name(f".{folder.name}.partial"), folder.with_name(f".{folder.name}.old")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
