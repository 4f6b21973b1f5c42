"""Changes that an agent made in a container, copied into a fresh one of the same image.

Not copied: the system's own programs and libraries, and what steers loaders and login shells, so
that nothing which was replaced there can answer for a grader. Only files, folders and links are
copied, and nothing may run in the old container meanwhile. Changes are read from the container's
own layer on this machine, which costs milliseconds, or from the engine, which lists in a second
and packs file by file.
"""

from __future__ import annotations

import os
import posixpath
import shlex
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.docker import archive
from clawrl_gym.envs.sandbox.docker.engine import engine, engine_call

_MOST_FILES = 200_000
_SPARE_BYTES = 64 << 20
_PATHS_A_COMMAND = 200
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sys", "/dev")
_STEERING = (
    *("/etc/ld.so.preload", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/profile", "/etc/profile.d", "/etc/bash.bashrc", "/etc/environment"),
    *("/etc/alternatives", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/.dockerenv"),
)
_OWN_PROGRAMS = "/usr/local"
_SHOWN = ("/opt/clawrl",)
"""Folders of this machine that containers are shown; the next one is shown them again."""
_CHANGED, _DELETED = 0, 2
"""The engine's numbers; 1 is added."""
_OPAQUE = "trusted.overlay.opaque"
_POINTERS = frozenset({"trusted.overlay.redirect", "trusted.overlay.metacopy"})
"""On what was renamed or got another mode, where the kernel is set to leave its content below."""


def is_copied(path: str) -> bool:
    """Whether what is at this path of a container may follow into the next."""
    if below(path, _OWN_PROGRAMS):
        return True
    return not any(below(path, refused) for refused in (*_SYSTEM, *_STEERING, *_SHOWN))


def may_hold_copied(folder: str) -> bool:
    """Whether something below a folder may be carried."""
    return is_copied(folder) or below(_OWN_PROGRAMS, folder)


def below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


class ChangesArchive:
    """The archive that travels, bounded."""

    def __init__(self, file: IO[bytes], most_bytes: int) -> None:
        self.archive = tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self._most_bytes = most_bytes
        self._bytes = 0
        self.count = 0

    def add(self, member: tarfile.TarInfo, content: IO[bytes] | None) -> None:
        self.count += 1
        self._bytes += member.size
        if self.count > _MOST_FILES or self._bytes > self._most_bytes:
            raise SandboxError(
                f"more than {self._most_bytes >> 20} MB or {_MOST_FILES} files changed in a"
                " sandbox, too much to carry into a fresh one; raise its disk_mb"
            )
        self.archive.addfile(member, content)


class ContainerChanges(Protocol):
    """Changes in a container, limited to the files that are carried."""

    @property
    def deleted(self) -> tuple[str, ...]:
        """Paths to remove before anything is unpacked."""
        ...

    def pack(self, sink: ChangesArchive) -> None:
        """Everything that is there and changed, folders before what they hold."""
        ...


def copy_changes(
    changes: ContainerChanges, new: str, disk_bytes: int, run: Callable[[str], int | None]
) -> None:
    """Make `new` hold what changed; `run` executes a command in it and returns its code.

    What was deleted goes first, while all programs in the new one are still the image's own.
    """
    deleted = changes.deleted
    for start in range(0, len(deleted), _PATHS_A_COMMAND):
        paths = shlex.join(deleted[start : start + _PATHS_A_COMMAND])
        if run(f"command rm -rf -- {paths}") != 0:
            raise SandboxError("could not delete in a fresh sandbox what was deleted in the old")
    with tempfile.TemporaryFile() as packed:
        sink = ChangesArchive(packed, disk_bytes + _SPARE_BYTES)
        with sink.archive:
            changes.pack(sink)
        if sink.count:
            packed.seek(0)
            archive.put(new, "/", packed, "could not carry files into a fresh sandbox")


class LayerChanges:
    """An overlay's upper folder; nothing may write to it meanwhile. Only for root."""

    def __init__(self, container: str, volumes: tuple[str, ...], folder: str) -> None:
        self._container = container
        self._volumes = volumes
        self._folder = folder
        self.is_whole = True
        """No entry leaves content of its own in the image's layers, where it is not looked for."""
        self._entries = list(self._walk("/"))

    @property
    def deleted(self) -> tuple[str, ...]:
        return tuple(path for path, status in self._entries if self._hides(path, status))

    def pack(self, sink: ChangesArchive) -> None:
        for path, status in self._entries:
            if stat.S_IFMT(status.st_mode) not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
                continue
            member = sink.archive.gettarinfo(self._folder + path, path.lstrip("/"))
            if member.isreg():
                with Path(self._folder + path).open("rb") as content:
                    sink.add(member, content)
            else:
                sink.add(member, None)
        _pack_volumes(self._container, self._volumes, sink)

    def _walk(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        with os.scandir(self._folder + folder) as entries:
            names = sorted(entry.name for entry in entries)
        for name in names:
            path = posixpath.join(folder, name)
            status = os.lstat(self._folder + path)
            if not _POINTERS.isdisjoint(_attributes(self._folder + path)):
                self.is_whole = False
            if is_copied(path):
                yield path, status
            if stat.S_ISDIR(status.st_mode) and may_hold_copied(path):
                yield from self._walk(path)

    def _hides(self, path: str, status: os.stat_result) -> bool:
        """Whether an overlay's entry hides what the image has there."""
        if stat.S_ISDIR(status.st_mode):
            return _attribute(self._folder + path, _OPAQUE) == b"y"
        return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _attribute(path: str, name: str) -> bytes:
    try:
        return os.getxattr(path, name, follow_symlinks=False)
    except OSError:
        return b""


def _attributes(path: str) -> list[str]:
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError:
        return []


class EngineChanges:
    """Changes as the engine reports them, from anywhere."""

    def __init__(self, container: str, volumes: tuple[str, ...]) -> None:
        self._container = container
        self._volumes = volumes
        with engine_call(f"could not list what changed in the container {container[:12]}"):
            diff = engine().api.diff(container) or []
        copied = sorted(
            (entry["Path"], entry["Kind"]) for entry in diff if is_copied(entry["Path"])
        )
        self._left = [(path, kind) for path, kind in copied if kind != _DELETED]
        self.deleted = tuple(path for path, kind in copied if kind == _DELETED)

    def pack(self, sink: ChangesArchive) -> None:
        packed_paths: set[str] = set()
        paths = [*(path for path, _ in self._left), *self.deleted]
        parents = {posixpath.dirname(path) for path in paths}
        for path, kind in self._left:
            if path in packed_paths:
                continue  # came with the folder that it is in
            folder_only = kind == _CHANGED and path in parents
            for member, content in _members(self._container, path, folder_only=folder_only):
                packed_paths.add(f"/{member.name}")
                sink.add(member, content)
        _pack_volumes(self._container, self._volumes, sink)


def _pack_volumes(container: str, volumes: tuple[str, ...], sink: ChangesArchive) -> None:
    """All of them: what changed in a volume is listed nowhere."""
    for path in volumes:
        for member, content in _members(container, path, folder_only=False):
            sink.add(member, content)


def _members(
    container: str, path: str, *, folder_only: bool
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """The files and folders at a path, by full name.

    `folder_only`: a folder without what it holds, whose own changes are listed too.
    """
    above = posixpath.dirname(path).strip("/")
    with (
        archive.get(container, path) as stream,
        tarfile.open(fileobj=stream, mode="r|") as packed,
    ):
        for number, member in enumerate(packed):
            if number and folder_only:
                return
            _rename(member, above)
            if is_copied(f"/{member.name}"):
                if member.isreg():
                    yield member, packed.extractfile(member)
                elif member.isdir() or member.issym() or member.islnk():
                    yield member, None


def _rename(member: tarfile.TarInfo, above: str) -> None:
    member.name = posixpath.join(above, member.name.strip("/"))
    if member.islnk():
        member.linkname = posixpath.join(above, member.linkname.strip("/"))
    member.pax_headers = {}
