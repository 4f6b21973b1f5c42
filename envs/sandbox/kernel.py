"""The kernel calls that Python 3.11 lacks: namespaces, mounts, id-mapped mounts, openat2.

Thin and typed: each function is one call and raises OSError with what it was asked to do. No policy
is kept here. The numbers are those above 424, which every architecture of Linux shares.
"""

from __future__ import annotations

import array
import ctypes
import os
import socket
import struct

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWNET = 0x4000_0000

MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x4_0000
MS_NOSUID = 0x2
MS_NODEV = 0x4

RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_IN_ROOT = 0x10

_SYS_OPEN_TREE = 428
_SYS_MOVE_MOUNT = 429
_SYS_CLOSE_RANGE = 436
_SYS_OPENAT2 = 437
_SYS_MOUNT_SETATTR = 442
_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_OPEN_TREE_CLONE = 0x1
_MOVE_MOUNT_F_EMPTY_PATH = 0x4
_MOUNT_ATTR_RDONLY = 0x1
_MOUNT_ATTR_NOSUID = 0x2
_MOUNT_ATTR_NODEV = 0x4
_MOUNT_ATTR_IDMAP = 0x0010_0000
_NS_GET_USERNS = 0xB701
_CLOSE_RANGE_CLOEXEC = 0x4
_LAST_FD = 0x7FFF_FFFF
_PR_SET_DUMPABLE = 4

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, operation: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{operation}: {os.strerror(number)}")
    return result


def _syscall(number: int, operation: str, *args: int | bytes | ctypes.Array[ctypes.c_char]) -> int:
    wide = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return _checked(_libc.syscall(ctypes.c_long(number), *wide), operation)


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), f"unshare({flags:#x})")


def setns(fd: int, kind: int) -> None:
    _checked(_libc.setns(fd, kind), f"setns({kind:#x})")


def owning_user_namespace(namespace_fd: int) -> int:
    """A new descriptor of the user namespace that owns a namespace."""
    return _checked(_libc.ioctl(namespace_fd, _NS_GET_USERNS), "ioctl(NS_GET_USERNS)")


def mount(source: str, target: str, kind: str | None, flags: int = 0, data: str = "") -> None:
    result = _libc.mount(
        source.encode(),
        os.fsencode(target),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        os.fsencode(data) if data else None,
    )
    _checked(result, f"mount {kind or 'flags'} on {target} ({data})")


def make_mounts_private() -> None:
    """Cut this mount namespace off, so that nothing mounted here is seen on the host."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def open_tree(path: str) -> int:
    """A detached copy of the mount at `path`, without what is mounted below it."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC
    return _syscall(_SYS_OPEN_TREE, f"open_tree {path}", _AT_FDCWD, os.fsencode(path), flags)


def id_map(tree_fd: int, user_namespace_fd: int) -> None:
    """Show a detached mount's owners through a user namespace's map."""
    _set_attributes(tree_fd, _MOUNT_ATTR_IDMAP, user_namespace_fd, "id-map a mount")


def make_read_only(tree_fd: int) -> None:
    """Let nothing be written through a detached mount, nor anything in it give rights."""
    attributes = _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV
    _set_attributes(tree_fd, attributes, 0, "make a mount read-only")


def _set_attributes(tree_fd: int, attributes: int, namespace_fd: int, operation: str) -> None:
    packed = struct.pack("=QQQQ", attributes, 0, 0, namespace_fd)
    buffer, size = ctypes.create_string_buffer(packed, len(packed)), len(packed)
    _syscall(_SYS_MOUNT_SETATTR, operation, tree_fd, b"", _AT_EMPTY_PATH, buffer, size)


def move_mount(tree_fd: int, target: str) -> None:
    path = os.fsencode(target)
    flags = _MOVE_MOUNT_F_EMPTY_PATH
    _syscall(_SYS_MOVE_MOUNT, f"move_mount to {target}", tree_fd, b"", _AT_FDCWD, path, flags)


def openat2(directory_fd: int, path: str, flags: int, mode: int, resolve: int) -> int:
    if "\0" in path:
        raise ValueError(f"open {path!r}: a path cannot hold a NUL character")
    open_how = struct.pack("=QQQ", flags | os.O_CLOEXEC, mode, resolve)
    buffer = ctypes.create_string_buffer(open_how, len(open_how))
    name = os.fsencode(path)
    return _syscall(_SYS_OPENAT2, f"open {path}", directory_fd, name, buffer, len(open_how))


def set_fs_ids(uid: int, gid: int) -> None:
    """Act on files as this user from here on (new files belong to it)."""
    _libc.setfsgid(gid)
    _libc.setfsuid(uid)


def set_dumpable() -> None:
    """Give /proc/self back to the process's own user after its ids changed."""
    _checked(_libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl(PR_SET_DUMPABLE)")


def close_on_exec_from(first_fd: int) -> None:
    """Let no descriptor from `first_fd` on reach the next program."""
    operation = f"close_range from {first_fd}"
    _syscall(_SYS_CLOSE_RANGE, operation, first_fd, _LAST_FD, _CLOSE_RANGE_CLOEXEC)


def receive(channel: socket.socket, max_bytes: int, max_fds: int) -> tuple[bytes, list[int]]:
    """One message and its descriptors, never inheritable (`socket.recv_fds` drops that flag)."""
    fds = array.array("i")
    room = socket.CMSG_SPACE(max_fds * fds.itemsize)
    data, ancillary, _, _ = channel.recvmsg(max_bytes, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return data, list(fds)
