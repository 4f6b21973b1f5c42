"""The folders, links and small files of a root, and changing them without following links.

A root may be somebody else's, or an agent may have been in it: any name below it can be a link
that leads to the host. What is done here acts on plain folders only.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

ALTERNATIVES = "etc/alternatives"
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
_LINKS_IF_PRESENT = {"lib64": "usr/lib64", "lib32": "usr/lib32"}


def make_tree(root: Path) -> None:
    """The generated part of the default root."""
    for name in _FOLDERS:
        (root / name).mkdir()
    (root / "root").chmod(0o700)
    make_links(root)
    for name, text in _ETC_FILES.items():
        (root / "etc" / name).write_text(text)
    (root / "etc/localtime").symlink_to("/usr/share/zoneinfo/Etc/UTC")
    (root / "etc/mtab").symlink_to("/proc/self/mounts")
    (root / "var/run").symlink_to("../run")
    make_alternatives(root, host_alternatives())
    (root / "etc/ld.so.cache").write_bytes(host_loader_cache())


def make_links(root: Path) -> None:
    links = dict(_LINKS)
    links |= {k: v for k, v in _LINKS_IF_PRESENT.items() if Path("/", v).is_dir()}
    for name, target in links.items():
        set_aside(root / name)
        (root / name).symlink_to(target)


def make_alternatives(root: Path, links: Mapping[str, str]) -> None:
    """Which program awk, vi and others are, by names below /etc/alternatives: these and no more."""
    folder = root / ALTERNATIVES
    if is_plain(root, ALTERNATIVES) and links_in(folder) == links and len(links) == _count(folder):
        return
    set_aside(folder)
    folder.mkdir()
    for name, target in links.items():
        os.symlink(target, f"{folder}/{name}")  # noqa: PTH211 (hundreds of them)


def links_in(folder: Path) -> dict[str, str]:
    """Where each link in a folder leads."""
    return {link.name: str(link.readlink()) for link in folder.iterdir() if link.is_symlink()}


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())


def set_aside(path: Path) -> None:
    """Take away whatever has this name, links and deep trees too; the folder above is plain."""
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            path.rename(Path(tempfile.mkdtemp(prefix=".replaced-", dir=path.parent), path.name))
        else:
            path.unlink()


def is_plain(root: Path, path: str) -> bool:
    """Whether `path` is a folder below `root` with no link on the way."""
    parts = Path(path).parts
    steps = [root.joinpath(*parts[: i + 1]) for i in range(len(parts))]
    return all(step.is_dir() and not step.is_symlink() for step in steps)


@functools.cache
def host_alternatives() -> Mapping[str, str]:
    """awk, vi and others are links through /etc/alternatives on Debian and its children."""
    source = Path("/", ALTERNATIVES)
    links = links_in(source) if source.is_dir() else {}
    return {n: to for n, to in links.items() if to.startswith("/usr/") and "/man/" not in to}


@functools.cache
def host_loader_cache() -> bytes:
    cache = Path("/etc/ld.so.cache")
    return cache.read_bytes() if cache.is_file() else b""


def prepare() -> None:
    """Read once what every default root needs, before the first start."""
    host_alternatives()
    host_loader_cache()


def make_common(root: Path, workdir: str) -> None:
    """Make the parts that every root has, a given one included."""
    for name in ("tmp", "var/tmp"):
        if make_folder(root, name):
            (root / name).chmod(0o1777)
    for name in ("root", "proc", "dev", os.path.normpath(workdir).lstrip("/")):
        make_folder(root, name)


def make_folder(root: Path, path: str) -> bool:
    """Make a folder and its parents; False, and nothing more, where a link is on the way."""
    folder = root
    for part in Path(path).parts:
        folder = folder / part
        if folder.is_symlink():
            return False
        folder.mkdir(exist_ok=True)
    return True
