"""What changed in a container: read from its own layer on this machine, or asked of the engine.

The layer's folder costs milliseconds; the engine lists in a second and packs file by file.
"""

from __future__ import annotations

import os
import posixpath
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from clawrl_gym.envs.sandbox.docker import archive
from clawrl_gym.envs.sandbox.docker.carry import ChangesArchive, is_copied, may_hold_copied
from clawrl_gym.envs.sandbox.docker.engine import engine, engine_call

_CHANGED, _DELETED = 0, 2
"""The engine's numbers; 1 is added."""
_OPAQUE = "trusted.overlay.opaque"


class LayerChanges:
    """An overlay's upper folder; nothing may write to it meanwhile. Only for root."""

    def __init__(self, container: str, volumes: tuple[str, ...], folder: str) -> None:
        self._container = container
        self._volumes = volumes
        self._folder = folder
        self._found = list(self._walk("/"))

    @property
    def deleted(self) -> tuple[str, ...]:
        return tuple(path for path, status in self._found if self._hides(path, status))

    def pack(self, parcel: ChangesArchive) -> None:
        for path, status in self._found:
            if stat.S_IFMT(status.st_mode) not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
                continue
            member = parcel.archive.gettarinfo(self._folder + path, path.lstrip("/"))
            if member.isreg():
                with Path(self._folder + path).open("rb") as content:
                    parcel.add(member, content)
            else:
                parcel.add(member, None)
        _pack_volumes(self._container, self._volumes, parcel)

    def _walk(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        with os.scandir(self._folder + folder) as entries:
            names = sorted(entry.name for entry in entries)
        for name in names:
            path = posixpath.join(folder, name)
            status = os.lstat(self._folder + path)
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


class EngineChanges:
    """What the engine says, from anywhere."""

    def __init__(self, container: str, volumes: tuple[str, ...]) -> None:
        self._container = container
        self._volumes = volumes
        with engine_call(f"could not list what changed in the container {container[:12]}"):
            listed = engine().api.diff(container) or []
        kept = sorted(
            (entry["Path"], entry["Kind"]) for entry in listed if is_copied(entry["Path"])
        )
        self._left = [(path, kind) for path, kind in kept if kind != _DELETED]
        self.deleted = tuple(path for path, kind in kept if kind == _DELETED)

    def pack(self, parcel: ChangesArchive) -> None:
        seen: set[str] = set()
        paths = [*(path for path, _ in self._left), *self.deleted]
        parents = {posixpath.dirname(path) for path in paths}
        for path, kind in self._left:
            if path in seen:
                continue  # came with the folder that it is in
            alone = kind == _CHANGED and path in parents
            for member, content in _members(self._container, path, alone=alone):
                seen.add(f"/{member.name}")
                parcel.add(member, content)
        _pack_volumes(self._container, self._volumes, parcel)


def _pack_volumes(container: str, volumes: tuple[str, ...], parcel: ChangesArchive) -> None:
    """All of them: what changed in a volume is listed nowhere."""
    for path in volumes:
        for member, content in _members(container, path, alone=False):
            parcel.add(member, content)


def _members(
    container: str, path: str, *, alone: bool
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """The files and folders at a path, by full name.

    `alone`: a folder without what it holds, whose own changes are listed too.
    """
    above = posixpath.dirname(path).strip("/")
    with (
        archive.get(container, path) as stream,
        tarfile.open(fileobj=stream, mode="r|") as found,
    ):
        for number, member in enumerate(found):
            if number and alone:
                return
            _rename(member, above)
            if is_copied(f"/{member.name}"):
                if member.isreg():
                    yield member, found.extractfile(member)
                elif member.isdir() or member.issym() or member.islnk():
                    yield member, None


def _rename(member: Any, above: str) -> None:
    member.name = posixpath.join(above, member.name.strip("/"))
    if member.islnk():
        member.linkname = posixpath.join(above, member.linkname.strip("/"))
    member.pax_headers = {}
