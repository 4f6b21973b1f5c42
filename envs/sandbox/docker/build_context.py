"""The context of an image build: a folder less what `.dockerignore` leaves out, within bounds."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from clawrl_gym.core.errors import TaskError

MAX_BYTES = 1 << 30
MAX_FILES = 100_000


def bases(dockerfile: Path) -> Iterator[str]:
    """The images that a Dockerfile stands on, as far as they are named plainly."""
    for line in dockerfile.read_text(errors="replace").splitlines():
        words = line.split()
        if len(words) > 1 and words[0].upper() == "FROM":
            yield words[1]


def _paths(context: Path, dockerfile: str) -> list[str]:
    """Files that a build may see, by path relative to the context. Raises TaskError."""
    from docker.utils import exclude_paths

    if not (context / dockerfile).resolve().is_relative_to(context.resolve()):
        raise TaskError(f"got dockerfile {dockerfile!r}, expected one inside {str(context)!r}")
    if not (context / dockerfile).is_file():
        raise TaskError(f"there is no {dockerfile!r} in {str(context)!r}")
    ignore = context / ".dockerignore"
    patterns = ignore.read_text(errors="replace").splitlines() if ignore.is_file() else []
    rules = [line.strip() for line in patterns if line.strip() and not line.startswith("#")]
    paths = sorted(path for path in exclude_paths(str(context), rules, dockerfile) if path)
    if len(paths) > MAX_FILES:
        raise TaskError(
            f"the build context {str(context)!r} holds {len(paths)} files, expected at most "
            f"{MAX_FILES}: leave some out in .dockerignore"
        )
    return paths


def archive(context: Path, dockerfile: str) -> bytes:
    """The build context as the engine takes it; links are kept as links, never followed."""
    buffer = io.BytesIO()
    size = 0
    with tarfile.open(fileobj=buffer, mode="w") as packed:
        for path in _paths(context, dockerfile):
            entry = packed.gettarinfo(context / path, path)
            if entry is None or not (entry.isreg() or entry.isdir() or entry.issym()):
                raise TaskError(f"the build context holds {path!r}, no file, folder or link")
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            size += entry.size
            if size > MAX_BYTES:
                raise TaskError(f"the build context {str(context)!r} is larger than 1 GiB")
            if entry.isreg():
                with (context / path).open("rb") as file:
                    packed.addfile(entry, file)
            else:
                packed.addfile(entry)
    return buffer.getvalue()


def digest(context: Path, dockerfile: str, args: Mapping[str, str]) -> str:
    """A name for what a build would make: modes and contents, no times."""
    hasher = hashlib.sha256(json.dumps([dockerfile, sorted(args.items())]).encode())
    for path in _paths(context, dockerfile):
        file = context / path
        mode = file.lstat().st_mode
        hasher.update(f"{path}\0{mode:o}\0".encode(errors="surrogateescape"))
        if file.is_symlink():
            hasher.update(os.fsencode(file.readlink()))
        elif file.is_file():
            hasher.update(hashlib.sha256(file.read_bytes()).digest())
    return hasher.hexdigest()[:24]
