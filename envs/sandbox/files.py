"""Files into and out of a sandbox, from outside, by paths that its inmates may have arranged.

Each path is resolved by the kernel inside the sandbox's root (`openat2`), so no symbolic link
leads out; only regular files are touched, sizes are bounded, nothing ever blocks.
"""

from __future__ import annotations

import os
import posixpath
import stat

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox import kernel

_RESOLVE = kernel.RESOLVE_IN_ROOT | kernel.RESOLVE_NO_MAGICLINKS


def read_file(root_fd: int, path: str, max_bytes: int) -> bytes:
    """FileNotFoundError when absent; SandboxError for what is not a regular file or too large."""
    fd = _open(root_fd, path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        size = _regular_size(fd, path)
        if size > max_bytes:
            raise SandboxError(f"{path!r} in the sandbox has {size} bytes, at most {max_bytes}")
        chunks: list[bytes] = []
        left = max_bytes + 1  # it may grow while it is read
        while left > 0 and (chunk := os.read(fd, min(left, 1 << 20))):
            chunks.append(chunk)
            left -= len(chunk)
    finally:
        os.close(fd)
    if left <= 0:
        raise SandboxError(f"{path!r} in the sandbox has more than {max_bytes} bytes")
    return b"".join(chunks)


def file_mode(root_fd: int, path: str) -> int:
    """Permission bits of whatever is there. FileNotFoundError when absent."""
    fd = _open(root_fd, path, os.O_PATH)
    try:
        return stat.S_IMODE(os.fstat(fd).st_mode)
    finally:
        os.close(fd)


def list_tree(root_fd: int, path: str, max_entries: int) -> dict[str, int]:
    """`st_mode` of all that is below a folder, by relative path; no link is followed.

    FileNotFoundError when absent; SandboxError for what is no folder or holds more.
    """
    modes: dict[str, int] = {}
    folders = [""]
    while folders:
        folder = folders.pop()
        fd = _open(root_fd, posixpath.join(path, folder), os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    below = posixpath.join(folder, entry.name)
                    modes[below] = entry.stat(follow_symlinks=False).st_mode
                    if len(modes) > max_entries:
                        raise too_many(path, max_entries)
                    if stat.S_ISDIR(modes[below]):
                        folders.append(below)
        finally:
            os.close(fd)
    return modes


def too_many(path: str, max_entries: int) -> SandboxError:
    """The error for a folder that holds more than was expected."""
    return SandboxError(f"{path!r} in the sandbox holds more than {max_entries} files")


def write_file(
    root_fd: int, path: str, data: bytes, mode: int, owner: tuple[int, int] | None
) -> None:
    """Write a file and its missing parents; `owner`: the host's ids of the sandbox's user and
    group."""
    parent = make_parents(root_fd, path, owner)
    name = posixpath.basename(path.rstrip("/"))
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY
    try:
        fd = _open(root_fd, posixpath.join(parent, name), flags, mode)
    except FileNotFoundError as error:
        raise SandboxError(f"cannot write {path!r} in the sandbox: {error}") from error
    try:
        _regular_size(fd, path)
        if owner is not None:
            os.fchown(fd, *owner)
        os.fchmod(fd, mode)
        os.ftruncate(fd, 0)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
    except OSError as error:
        raise SandboxError(f"cannot write {path!r} in the sandbox: {error}") from error
    finally:
        os.close(fd)


def make_parents(root_fd: int, path: str, owner: tuple[int, int] | None) -> str:
    """Make the folders above `path`; returns the folder that holds it."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        raise SandboxError(f"cannot write {path!r} in the sandbox: expected a path without '..'")
    folder = "/"
    for part in parts[:-1]:
        above, folder = folder, posixpath.join(folder, part)
        try:
            os.close(_open(root_fd, folder, os.O_PATH | os.O_DIRECTORY))
        except FileNotFoundError:
            _make_folder(root_fd, above, part, owner)
    return folder


def _make_folder(root_fd: int, above: str, name: str, owner: tuple[int, int] | None) -> None:
    parent_fd = _open(root_fd, above, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.mkdir(name, 0o755, dir_fd=parent_fd)
        if owner is not None:
            os.chown(name, *owner, dir_fd=parent_fd, follow_symlinks=False)
    except FileExistsError:
        pass  # a dangling link, or somebody inside was faster: opening decides
    except OSError as error:
        raise SandboxError(f"cannot make {above}/{name} in the sandbox: {error}") from error
    finally:
        os.close(parent_fd)


def _open(root_fd: int, path: str, flags: int, mode: int = 0) -> int:
    try:
        return kernel.openat2(root_fd, path, flags, mode, _RESOLVE)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise SandboxError(f"cannot open {path!r} in the sandbox: {error}") from error


def _regular_size(fd: int, path: str) -> int:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise SandboxError(f"{path!r} in the sandbox is not a regular file")
    return status.st_size
