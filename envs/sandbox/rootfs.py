"""The root file system of a sandbox, mounted in the mount namespace that it starts from.

Everything that can be written lies on one tmpfs with a size and a number of files. The default root
is a small generated tree over the host's own /usr; a folder given as `rootfs` becomes the lower
layer instead. Where the kernel can show the lower layer's owners through the sandbox's user map,
all of it can be written (in the upper layer); elsewhere /usr is read-only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.envs.sandbox import kernel
from clawrl_gym.envs.sandbox.base import Limits

STAGE = "/tmp"
"""Where the tmpfs is mounted: a folder that every host has, hidden in this namespace only."""
ROOT = f"{STAGE}/root"
SHARED_MEMORY = f"{STAGE}/shm"
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
_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "var/run": "../run"}
_LINKS_IF_PRESENT = {"lib64": "usr/lib64", "lib32": "usr/lib32"}


@dataclass(frozen=True, slots=True)
class Owner:
    """Who owns a sandbox's files on the host, and the user namespace that shows them as root's."""

    uid: int
    gid: int
    namespace_fd: int | None
    """For id-mapped mounts; None when this process is no real root and has none to give."""


def build(limits: Limits, rootfs: str | None, owner: Owner) -> list[str]:
    """Mount the root at `ROOT`; returns what bubblewrap must bind in addition.

    The calling process is in its own private mount namespace.
    """
    # Taken first: the stage may hide the path.
    lower = rootfs or "/usr"
    lower_tree = _mapped_tree(lower, owner)
    lower_fd = os.open(lower, os.O_PATH | os.O_DIRECTORY)
    _mount_stage(limits, owner)
    kernel.set_fs_ids(owner.uid, owner.gid)
    for name in ("root", "shm", "lower"):
        Path(f"{STAGE}/{name}").mkdir()
    Path(SHARED_MEMORY).chmod(0o1777)
    extra: list[str] = []
    if rootfs is not None:
        _overlay("root", ROOT, lower_tree, lower_fd)
    else:
        _make_tree(Path(ROOT))
        if lower_tree is not None:
            _overlay("usr", f"{ROOT}/usr", lower_tree, lower_fd)
        else:
            extra = ["--ro-bind", "/usr", "/usr"]
    os.close(lower_fd)
    _make_common(Path(ROOT))
    return extra


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


def _overlay(name: str, target: str, lower_tree: int | None, lower_fd: int) -> None:
    upper, work = f"{STAGE}/{name}.upper", f"{STAGE}/{name}.work"
    for folder in (upper, work):
        Path(folder).mkdir()
    lower = f"{STAGE}/lower"
    options = ""
    if lower_tree is None:
        lower, options = f"/proc/self/fd/{lower_fd}", ",userxattr"
    else:
        kernel.move_mount(lower_tree, lower)
        os.close(lower_tree)
    data = f"lowerdir={lower},upperdir={upper},workdir={work}{options}"
    kernel.mount("sandbox", target, "overlay", kernel.MS_NOSUID | kernel.MS_NODEV, data)


def _make_tree(root: Path) -> None:
    """The generated part of the default root."""
    for name in _FOLDERS:
        (root / name).mkdir()
    (root / "root").chmod(0o700)
    links = dict(_LINKS)
    links |= {k: v for k, v in _LINKS_IF_PRESENT.items() if Path("/", v).is_dir()}
    for name, target in links.items():
        (root / name).symlink_to(target)
    for name, text in _ETC_FILES.items():
        (root / "etc" / name).write_text(text)
    (root / "etc/localtime").symlink_to("/usr/share/zoneinfo/Etc/UTC")
    (root / "etc/mtab").symlink_to("/proc/self/mounts")
    _copy_alternatives(root / "etc/alternatives")
    cache = Path("/etc/ld.so.cache")
    if cache.is_file():
        (root / "etc/ld.so.cache").write_bytes(cache.read_bytes())


def _copy_alternatives(folder: Path) -> None:
    """awk, vi and others are links through /etc/alternatives on Debian and its children."""
    folder.mkdir()
    source = Path("/etc/alternatives")
    if not source.is_dir():
        return
    for link in os.scandir(source):
        if link.is_symlink():
            target = os.readlink(link.path)
            if target.startswith("/usr/") and "/man/" not in target:
                (folder / link.name).symlink_to(target)


def _make_common(root: Path) -> None:
    """What every root has, a given one included."""
    for name in ("tmp", "var/tmp"):
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o1777)
    for name in ("root", "proc", "dev"):
        (root / name).mkdir(exist_ok=True)
