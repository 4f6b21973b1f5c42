"""The root file system of a sandbox, mounted in the mount namespace that it starts from.

All that can be written lies on one tmpfs with a size and a number of files. The default root is a
small generated tree over the host's own /usr; a folder given as `rootfs` is the lower layer
instead. Where the kernel can show the lower layer's owners through the sandbox's user map, all of
it can be written (in the upper layer), and read, files for root only included; elsewhere /usr is
read-only.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.envs.sandbox import kernel
from clawrl_gym.envs.sandbox.interface import Limits
from clawrl_gym.envs.sandbox.tree import (
    ALTERNATIVES,
    host_alternatives,
    host_loader_cache,
    is_plain,
    make_alternatives,
    make_common,
    make_folder,
    make_links,
    make_tree,
    set_aside,
)

STAGE = "/tmp"
"""Where the tmpfs is mounted: a folder that every host has, hidden in this namespace only."""
ROOT = f"{STAGE}/root"
SHARED_MEMORY = f"{STAGE}/shm"
_LOWER = f"{STAGE}/lower"
_FILES_PER_MB = 512
_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64")
"""Where a root file system keeps its programs; each may be a link into /usr."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Owner of a sandbox's files on the host, and the user namespace that shows them as root's."""

    uid: int
    gid: int
    namespace_fd: int | None
    """For id-mapped mounts; None when this process is not real root and has none to give."""


def build(
    limits: Limits, rootfs: str | None, workdir: str, owner: Owner, mounts: Mapping[str, str]
) -> None:
    """Mount the root at `ROOT`. The calling process is in its own private mount namespace.

    `mounts` are files and folders of the host, shown read-only by their paths inside.
    """
    # Taken first: the stage may hide the paths.
    trees = {inside: _read_only_tree(path, owner) for inside, path in mounts.items()}
    lower = rootfs or "/usr"
    lower_tree = _mapped_tree(lower, owner)
    lower_fd = os.open(lower, os.O_PATH | os.O_DIRECTORY)
    _mount_stage(limits, owner)
    with _as_owner(owner):
        for name in ("root", "shm", "lower"):
            Path(f"{STAGE}/{name}").mkdir()
        Path(SHARED_MEMORY).chmod(0o1777)
        if rootfs is None:
            make_tree(Path(ROOT))
    if lower_tree is not None:
        kernel.move_mount(lower_tree, _LOWER)
    elif rootfs is not None:
        kernel.mount(f"/proc/self/fd/{lower_fd}", _LOWER, None, kernel.MS_BIND | kernel.MS_REC)
    if rootfs is not None:
        _overlay(ROOT, _LOWER, owner)
    elif lower_tree is not None:
        _overlay(f"{ROOT}/usr", _LOWER, owner)
    for fd in (lower_fd, lower_tree):
        if fd is not None:
            os.close(fd)
    with _as_owner(owner):
        make_common(Path(ROOT), workdir)
    for inside, tree in trees.items():
        with _as_owner(owner):
            _make_mount_point(inside, is_folder=stat.S_ISDIR(os.fstat(tree).st_mode))
        kernel.move_mount(tree, f"{ROOT}{inside}")
        os.close(tree)


def renew(limits: Limits, rootfs: str | None, owner: Owner) -> None:
    """Put the system's programs back, whatever was done to them and to the names that they are
    found by (/etc/alternatives); /usr/local stays as it was left.

    Graders run in such a root: a replaced shell, interpreter or loader must not answer for them,
    and a disk that was filled must not stop them. No process is left that could interfere, but
    every name may be a link that leads to the host: none is followed.
    """
    _make_room(limits)
    root = Path(ROOT)
    if rootfs is None:
        with _as_owner(owner):
            _renew_loader(root, host_loader_cache())
            if is_plain(root, "etc"):
                make_alternatives(root, host_alternatives())
            make_links(root)
        if not bindings(rootfs):
            _renew_folder("usr", _LOWER, owner)
        return
    cache = Path(_LOWER, "etc/ld.so.cache")
    with _as_owner(owner):
        _renew_loader(root, cache.read_bytes() if cache.is_file() else b"")
    for name in _SYSTEM:
        lower = Path(_LOWER, name)
        if lower.is_symlink():
            with _as_owner(owner):
                set_aside(root / name)
                (root / name).symlink_to(lower.readlink())
        elif lower.is_dir():
            _renew_folder(name, str(lower), owner)
    if is_plain(Path(_LOWER), ALTERNATIVES) and is_plain(root, "etc"):
        _renew_folder(ALTERNATIVES, f"{_LOWER}/{ALTERNATIVES}", owner)


def _renew_folder(name: str, lower: str, owner: Owner) -> None:
    root = Path(ROOT)
    with _as_owner(owner):
        if not is_plain(root, name):
            set_aside(root / name)
            (root / name).mkdir()
    local = f"{name}/local"
    local_tree = kernel.open_tree(f"{ROOT}/{local}") if is_plain(root, local) else None
    _overlay(f"{ROOT}/{name}", lower, owner)
    if local_tree is not None:
        if is_plain(root, local):
            kernel.move_mount(local_tree, f"{ROOT}/{local}")
        os.close(local_tree)


def _renew_loader(root: Path, cache: bytes) -> None:
    """Files that the dynamic loader reads first: nothing to preload, the old cache."""
    if not is_plain(root, "etc"):
        return
    for name in ("etc/ld.so.preload", "etc/ld.so.cache"):
        set_aside(root / name)
    if cache:
        (root / "etc/ld.so.cache").write_bytes(cache)


def _make_room(limits: Limits) -> None:
    """Make as much free space as a fresh disk has, beside what is used."""
    status = os.statvfs(STAGE)
    used_bytes = (status.f_blocks - status.f_bfree) * status.f_frsize
    size = used_bytes + (limits.disk_mb << 20)
    files = status.f_files - status.f_ffree + limits.disk_mb * _FILES_PER_MB
    flags = kernel.MS_REMOUNT | kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("sandbox", STAGE, None, flags, f"size={size},nr_inodes={files}")


def bindings(rootfs: str | None) -> list[str]:
    """bubblewrap's binds beside the root: /usr, where it could not be laid under it."""
    overlaid = rootfs is not None or Path(f"{ROOT}/usr").is_mount()
    return [] if overlaid else ["--ro-bind", "/usr", "/usr"]


def _mapped_tree(path: str, owner: Owner) -> int | None:
    if owner.namespace_fd is None:
        return None
    tree = kernel.open_tree(path)
    try:
        kernel.id_map(tree, owner.namespace_fd)
    except OSError:  # this file system or this kernel cannot
        os.close(tree)
        return None
    return tree


def _make_mount_point(inside: str, *, is_folder: bool) -> None:
    """A folder, or an empty file, below the root; none is made where a link leads elsewhere."""
    root, name = Path(ROOT), inside.lstrip("/")
    folder = name if is_folder else os.path.dirname(name)  # noqa: PTH120 (a name)
    if not make_folder(root, folder) and not is_plain(root, folder):
        raise NotADirectoryError(f"{inside!r} in the root file system leads elsewhere")
    if not is_folder:
        os.close(os.open(root / name, os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))


def _read_only_tree(path: str, owner: Owner) -> int:
    """A file or folder of the host; the sandbox's user reads it where the kernel can map owners."""
    tree = _mapped_tree(path, owner)
    if tree is None:
        tree = kernel.open_tree(path)
    kernel.make_read_only(tree)
    return tree


def _mount_stage(limits: Limits, owner: Owner) -> None:
    options = f"size={limits.disk_mb}m,nr_inodes={limits.disk_mb * _FILES_PER_MB},mode=755"
    if owner.namespace_fd is not None:
        options += f",uid={owner.uid},gid={owner.gid}"
    kernel.mount("sandbox", STAGE, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)


def _overlay(target: str, lower: str, owner: Owner) -> None:
    """A writable view of `lower`; acts with the rights of who mounts it, so not as the owner."""
    with _as_owner(owner):
        upper, work = (tempfile.mkdtemp(prefix=name, dir=STAGE) for name in ("upper.", "work."))
        Path(upper).chmod(0o755)
    data = f"lowerdir={lower},upperdir={upper},workdir={work}"
    if owner.namespace_fd is None:
        data += ",userxattr"
    kernel.mount("sandbox", target, "overlay", kernel.MS_NOSUID | kernel.MS_NODEV, data)


@contextlib.contextmanager
def _as_owner(owner: Owner) -> Iterator[None]:
    """Make files that belong to the sandbox's user."""
    if owner.namespace_fd is None:  # which this process is already
        yield
        return
    kernel.set_fs_ids(owner.uid, owner.gid)
    try:
        yield
    finally:
        kernel.set_fs_ids(0, 0)
