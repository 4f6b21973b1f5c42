"""The committed HEAD of somebody's repository, read and never written.

Contents come from git's objects, so that no hook, filter or setting of the repository runs.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.swe.rows.archive import MAX_BYTES, PackedFile

MAX_FILES = 20_000
_GIT_TIMEOUT_S = 120.0
_SUBMODULE = 0o160000
_QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}
_SETTINGS = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "core.quotePath=false")
_POINTER = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, slots=True)
class Head:
    """Contents of a repository's last commit."""

    name: str
    commit: str
    files: Mapping[str, PackedFile]
    notes: tuple[str, ...]
    """Notes on surprises: changes that are not committed, submodules."""


def read_head(where: str) -> Head:
    """Raises ConfigError for what is no repository, has no commit, or is too large."""
    folder = Path(where).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"got {where!r}, expected the folder of a git repository")
    top = _git(folder, "rev-parse", "--show-toplevel").decode(errors="surrogateescape").strip()
    if not top:
        raise ConfigError(f"got {where!r}, a repository without a work tree, expected a checkout")
    if Path(top).resolve() != folder.resolve():
        raise ConfigError(
            f"got {where!r}, which is inside of the repository {top!r}: give that one"
        )
    try:
        commit = _git(folder, "rev-parse", "--verify", "-q", "HEAD^{commit}").decode().strip()
    except ConfigError as error:
        raise ConfigError(f"the repository {where!r} has no commit yet: commit first") from error
    entries = _entries(_git(folder, "ls-tree", "-r", "-z", "-l", "--full-tree", "HEAD"))
    files = {path: entry for path, entry in entries.items() if entry.mode != _SUBMODULE}
    _refuse_huge(where, files)
    contents = _contents(folder, [entry.blob for entry in files.values()])
    packed = {
        path: PackedFile(content, entry.mode)
        for (path, entry), content in zip(files.items(), contents, strict=True)
    }
    notes = _notes(folder, [path for path in entries if path not in files], packed)
    return Head(_name(Path(top)), commit, packed, notes)


@dataclass(frozen=True, slots=True)
class _Entry:
    mode: int
    blob: str
    size: int


def _entries(listing: bytes) -> dict[str, _Entry]:
    entries = dict[str, _Entry]()
    for line in listing.decode(errors="surrogateescape").split("\0"):
        if line:
            head, _, path = line.partition("\t")
            mode, _, blob, size = head.split()
            entries[path] = _Entry(int(mode, 8), blob, int(size) if size.isdecimal() else 0)
    return entries


def _refuse_huge(where: str, files: Mapping[str, _Entry]) -> None:
    size = sum(entry.size for entry in files.values())
    if size > MAX_BYTES or len(files) > MAX_FILES:
        folders = dict[str, int]()
        for path, entry in files.items():
            folder = path.partition("/")[0]
            folders[folder] = folders.get(folder, 0) + entry.size
        largest = max(folders, key=folders.__getitem__)
        raise ConfigError(
            f"the repository {where!r} has {len(files):,} files of {size >> 20:,} MB together, "
            f"expected at most {MAX_FILES:,} of {MAX_BYTES >> 20} MB, for each episode has a copy; "
            f"the most is in {largest!r}: commit a copy without what tests do not need"
        )


def _contents(folder: Path, blobs: Sequence[str]) -> list[bytes]:
    output = _git(folder, "cat-file", "--batch", stdin="\n".join(blobs).encode() + b"\n")
    contents, at = list[bytes](), 0
    for blob in blobs:
        head, _, _ = output[at : at + 200].partition(b"\n")
        words = head.split()
        if len(words) != 3:
            raise ConfigError(f"git does not have the object {blob} (a shallow or partial clone?)")
        start = at + len(head) + 1
        at = start + int(words[2]) + 1
        contents.append(output[start : at - 1])
    return contents


def _notes(
    folder: Path, submodules: Sequence[str], files: Mapping[str, PackedFile]
) -> tuple[str, ...]:
    notes = list[str]()
    status = _git(folder, "status", "--porcelain", "-z", "--ignore-submodules=all")
    changed = [entry for entry in status.decode(errors="replace").split("\0") if entry]
    if changed:
        some = f"{len(changed)} ({changed[0].strip()!r}{', ...' if len(changed) > 1 else ''})"
        notes.append(f"HEAD is used; changes that are not committed and not looked at: {some}")
    if submodules:
        notes.append(f"submodules are left out, their folders are empty: {', '.join(submodules)}")
    pointers = [path for path, file in files.items() if file.data.startswith(_POINTER)]
    if pointers:
        notes.append(f"files of git-lfs that stay pointers: {len(pointers)} ({pointers[0]!r})")
    return tuple(notes)


def _name(top: Path) -> str:
    return re.sub(r"[^\w.-]+", "-", top.resolve().name).strip("-.") or "repository"


def _git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *settings, *arguments],
            input=stdin,
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
            env={name: value for name, value in os.environ.items() if name[:4] != "GIT_"} | _QUIET,
        )
    except FileNotFoundError as error:
        raise ConfigError("git is not installed: apt-get install git") from error
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"git {arguments[0]} took over {_GIT_TIMEOUT_S:g} s in {folder}"
        ) from error
    if result.returncode != 0:
        reason = " ".join(result.stderr.decode(errors="replace").split())[-300:]
        raise ConfigError(
            f"got {str(folder)!r}, expected a git repository: {reason or 'git failed'}"
        )
    return result.stdout
