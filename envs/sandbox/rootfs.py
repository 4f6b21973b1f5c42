"""The root file system of a sandbox, mounted in the mount namespace that it starts from.

All that can be written lies on one tmpfs with a size and a number of files. The default root is a
small generated tree over the host's own /usr; a folder given as `rootfs` is the lower layer
instead. Where the kernel can show the lower layer's owners through the sandbox's user map, all of
it can be written (in the upper layer), and read, files for root only included; elsewhere /usr is
read-only.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.envs.sandbox import kernel
from clawrl_gym.envs.sandbox.base import Limits

STAGE = "/tmp"
"""Where the tmpfs is mounted: a folder that every host has, hidden in this namespace only."""
ROOT = f"{STAGE}/root"
SHARED_MEMORY = f"{STAGE}/shm"
_LOWER = f"{STAGE}/lower"
_FILES_PER_MB = 512
_ETC_FILES = {
    "passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "group": "root:x:0:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "hostname": "sandbox\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "timezone": "Etc/UTC\n",
    "profile": "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n",
}
_FOLDERS = (
    *("etc", "root", "home", "opt", "run", "srv", "mnt", "proc", "dev", "usr"),
    *("var", "var/log", "var/lib", "var/cache"),
)
_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib"}
_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64")
"""Where a root file system keeps its programs; each may be a link into /usr."""
_LINKS_IF_PRESENT = {"lib64": "usr/lib64", "lib32": "usr/lib32"}


@dataclass(frozen=True, slots=True)
class Owner:
    """Who owns a sandbox's files on the host, and the user namespace that shows them as root's."""

    uid: int
    gid: int
    namespace_fd: int | None
    """For id-mapped mounts; None when this process is no real root and has none to give."""


def build(limits: Limits, rootfs: str | None, workdir: str, owner: Owner) -> None:
    """Mount the root at `ROOT`. The calling process is in its own private mount namespace."""
    # Taken first: the stage may hide the path.
    lower = rootfs or "/usr"
    lower_tree = _mapped_tree(lower, owner)
    lower_fd = os.open(lower, os.O_PATH | os.O_DIRECTORY)
    _mount_stage(limits, owner)
    with _as_owner(owner):
        for name in ("root", "shm", "lower"):
            Path(f"{STAGE}/{name}").mkdir()
        Path(SHARED_MEMORY).chmod(0o1777)
        if rootfs is None:
            _make_tree(Path(ROOT))
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
        _make_common(Path(ROOT), workdir)


def renew(limits: Limits, rootfs: str | None, owner: Owner) -> None:
    """Put the system's programs back, whatever was done to them; /usr/local stays as it was left.

    Graders run in such a root: a replaced shell, interpreter or loader must not answer for them,
    and a disk that was filled must not stop them. No process is left that could interfere, but
    every name may be a link that leads to the host: none is followed.
    """
    _make_room(limits)
    root = Path(ROOT)
    if rootfs is None:
        with _as_owner(owner):
            _renew_loader(root, _host_loader_cache())
            _make_links(root)
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
                _set_aside(root / name)
                (root / name).symlink_to(lower.readlink())
        elif lower.is_dir():
            _renew_folder(name, str(lower), owner)


def _renew_folder(name: str, lower: str, owner: Owner) -> None:
    root = Path(ROOT)
    with _as_owner(owner):
        if not _is_plain(root, name):
            _set_aside(root / name)
            (root / name).mkdir()
    local = f"{name}/local"
    kept = kernel.open_tree(f"{ROOT}/{local}") if _is_plain(root, local) else None
    _overlay(f"{ROOT}/{name}", lower, owner)
    if kept is not None:
        if _is_plain(root, local):
            kernel.move_mount(kept, f"{ROOT}/{local}")
        os.close(kept)


def _renew_loader(root: Path, cache: bytes) -> None:
    """What the dynamic loader reads before any program: nothing to preload, the old cache."""
    if not _is_plain(root, "etc"):
        return
    for name in ("etc/ld.so.preload", "etc/ld.so.cache"):
        _set_aside(root / name)
    if cache:
        (root / "etc/ld.so.cache").write_bytes(cache)


def _make_room(limits: Limits) -> None:
    """As much free space as a fresh disk has, beside what is used."""
    status = os.statvfs(STAGE)
    used_bytes = (status.f_blocks - status.f_bfree) * status.f_frsize
    size = used_bytes + (limits.disk_mb << 20)
    files = status.f_files - status.f_ffree + limits.disk_mb * _FILES_PER_MB
    flags = kernel.MS_REMOUNT | kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("sandbox", STAGE, None, flags, f"size={size},nr_inodes={files}")


def bindings(rootfs: str | None) -> list[str]:
    """What bubblewrap must bind beside the root: /usr, where it could not be laid under it."""
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


def _make_tree(root: Path) -> None:
    """The generated part of the default root."""
    for name in _FOLDERS:
        (root / name).mkdir()
    (root / "root").chmod(0o700)
    _make_links(root)
    for name, text in _ETC_FILES.items():
        (root / "etc" / name).write_text(text)
    (root / "etc/localtime").symlink_to("/usr/share/zoneinfo/Etc/UTC")
    (root / "etc/mtab").symlink_to("/proc/self/mounts")
    (root / "var/run").symlink_to("../run")
    (root / "etc/alternatives").mkdir()
    for name, target in _alternatives():
        os.symlink(target, f"{root}/etc/alternatives/{name}")  # noqa: PTH211 (hundreds of them)
    (root / "etc/ld.so.cache").write_bytes(_host_loader_cache())


def _make_links(root: Path) -> None:
    links = dict(_LINKS)
    links |= {k: v for k, v in _LINKS_IF_PRESENT.items() if Path("/", v).is_dir()}
    for name, target in links.items():
        _set_aside(root / name)
        (root / name).symlink_to(target)


def _set_aside(path: Path) -> None:
    """Take away whatever has this name, links and deep trees too; the folder above is plain."""
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            path.rename(Path(tempfile.mkdtemp(prefix=".replaced-", dir=path.parent), path.name))
        else:
            path.unlink()


def _is_plain(root: Path, path: str) -> bool:
    """Whether `path` is a folder below `root` with no link on the way."""
    parts = Path(path).parts
    steps = [root.joinpath(*parts[: i + 1]) for i in range(len(parts))]
    return all(step.is_dir() and not step.is_symlink() for step in steps)


@functools.cache
def _alternatives() -> list[tuple[str, str]]:
    """awk, vi and others are links through /etc/alternatives on Debian and its children."""
    source = Path("/etc/alternatives")
    if not source.is_dir():
        return []
    links = [(link.name, str(link.readlink())) for link in source.iterdir() if link.is_symlink()]
    return [(n, to) for n, to in links if to.startswith("/usr/") and "/man/" not in to]


@functools.cache
def _host_loader_cache() -> bytes:
    cache = Path("/etc/ld.so.cache")
    return cache.read_bytes() if cache.is_file() else b""


def prepare() -> None:
    """Read once what every default root needs, before the first start."""
    _alternatives()
    _host_loader_cache()


def _make_common(root: Path, workdir: str) -> None:
    """What every root has, a given one included."""
    for name in ("tmp", "var/tmp"):
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o1777)
    for name in ("root", "proc", "dev", os.path.normpath(workdir).lstrip("/")):
        (root / name).mkdir(parents=True, exist_ok=True)
