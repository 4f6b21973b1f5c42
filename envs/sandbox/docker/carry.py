"""What an agent changed in a container, carried into a fresh one of the same image.

Not carried: the system's own programs and libraries, and what steers loaders and login shells, so
that nothing which was replaced there can answer for a grader. Only files, folders and links
travel. Nothing may run in the old container meanwhile.
"""

from __future__ import annotations

import shlex
import tarfile
import tempfile
from collections.abc import Callable
from typing import IO, Protocol

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.docker import archive

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


def is_copied(path: str) -> bool:
    """Whether what is at this path of a container may follow into the next."""
    if below(path, _OWN_PROGRAMS):
        return True
    return not any(below(path, refused) for refused in (*_SYSTEM, *_STEERING))


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
    """What changed in a container, of what is carried."""

    @property
    def deleted(self) -> tuple[str, ...]:
        """What has to go before anything is unpacked."""
        ...

    def pack(self, parcel: ChangesArchive) -> None:
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
        parcel = ChangesArchive(packed, disk_bytes + _SPARE_BYTES)
        with parcel.archive:
            changes.pack(parcel)
        if parcel.count:
            packed.seek(0)
            archive.put(new, "/", packed, "could not carry files into a fresh sandbox")
