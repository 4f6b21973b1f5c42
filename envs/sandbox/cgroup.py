"""Which limits hold on this host: cgroups where they can be written, with one for each sandbox.

A launcher owns one folder named after it (boot, process, start time) below its own cgroup, so the
limits of the container it runs in still hold; each sandbox gets a folder in that. Folders of
launchers that are dead are removed when the next one starts. Version 1 and 2. Without cgroups
rlimits hold, which `limits_kind` says.
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.envs.sandbox.interface import Limits
from clawrl_gym.envs.sandbox.processes import alive, identity, is_orphan

_PREFIX = "clawrl-"
_REQUIRED = ("memory", "pids")
_CONTROLLERS = (*_REQUIRED, "cpu")
_CPU_PERIOD_US = 100_000
_PAUSE_S = 0.05
_OWN_PROCESSES = 3
"""bubblewrap, the init process and the shell: not counted against the sandbox's limit."""
_NAMESPACE_COUNTS_PROCESSES = (5, 14)
"""The kernel from which a user namespace has a count of its own for RLIMIT_NPROC."""


@dataclass(frozen=True, slots=True)
class CgroupHome:
    """The folders below which a launcher may make cgroups; one per controller on version 1."""

    version: int
    parents: dict[str, Path]


def find_cgroup_home() -> CgroupHome | None:
    """The cgroup folders that this process may write, or None. Changes nothing."""
    process = Path("/proc/self")
    return home_of((process / "cgroup").read_text(), (process / "mountinfo").read_text())


def home_of(cgroup: str, mountinfo: str) -> CgroupHome | None:
    """The cgroup home of a process, read from these two files of /proc."""
    paths, mounts = _own_paths(cgroup), _mounts(mountinfo)
    return _find_v2(paths, mounts) or _find_v1(paths, mounts)


def _own_paths(cgroup: str) -> dict[str, str]:
    """Controller -> the process's cgroup; version 2 under the empty name."""
    paths: dict[str, str] = {}
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _mounts(mountinfo: str) -> dict[str, tuple[str, Path]]:
    """Controller -> (root of the mount inside the hierarchy, mount point)."""
    mounts: dict[str, tuple[str, Path]] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        root, point = left.split()[3:5]
        kind, _, options = right.split()[:3]
        if kind == "cgroup2":
            mounts.setdefault("", (root, Path(point)))
        elif kind == "cgroup":
            for option in options.split(","):
                mounts.setdefault(option, (root, Path(point)))
    return mounts


def _folder(path: str, mount: tuple[str, Path]) -> Path:
    root, point = mount
    inside = path.removeprefix(root) if root != "/" else path
    return point / inside.lstrip("/")


def _find_v1(paths: dict[str, str], mounts: dict[str, tuple[str, Path]]) -> CgroupHome | None:
    parents: dict[str, Path] = {}
    for controller in _CONTROLLERS:
        if controller in paths and controller in mounts:
            folder = _folder(paths[controller], mounts[controller])
            if os.access(folder, os.W_OK):
                parents[controller] = folder
    return CgroupHome(1, parents) if all(name in parents for name in _REQUIRED) else None


def _find_v2(paths: dict[str, str], mounts: dict[str, tuple[str, Path]]) -> CgroupHome | None:
    """The nearest folder upwards that hands memory and pids to its children."""
    if "" not in paths or "" not in mounts:
        return None
    point = mounts[""][1]
    folder = _folder(paths[""], mounts[""])
    while folder == point or point in folder.parents:
        if os.access(folder, os.W_OK) and _hands_down(folder):
            return CgroupHome(2, {"": folder})
        folder = folder.parent
    return None


def _hands_down(folder: Path) -> bool:
    try:
        controllers = (folder / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    return all(name in controllers for name in _REQUIRED)


class Cgroups:
    """The cgroups of one launcher. `join` runs in the process that is about to become a sandbox."""

    def __init__(self, home: CgroupHome) -> None:
        self._home = home
        self._folders = {
            controller: parent / (_PREFIX + identity(os.getpid()))
            for controller, parent in home.parents.items()
        }

    @property
    def version(self) -> int:
        return self._home.version

    def open(self) -> None:
        """Make the launcher's folders and prove that a process may move into them (OSError)."""
        for folder in self._folders.values():
            self._make(folder)
        child = os.fork()
        if child == 0:
            try:
                self.join("probe", Limits())
            except OSError as error:
                os._exit(error.errno or errno.EIO)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self.remove("probe")
        if status:
            self.close()
            raise OSError(status, f"join a cgroup below {self._home.parents}")

    def join(self, name: str, limits: Limits) -> None:
        """Move this process into the sandbox's cgroup, made now or left by its predecessor."""
        for controller, parent in self._folders.items():
            folder = parent / name
            try:
                folder.mkdir(exist_ok=True)
            except FileNotFoundError:  # swept while empty, by who cannot see this process
                self._make(parent)
                folder.mkdir(exist_ok=True)
            settings = _v2_settings(limits) if self.version == 2 else _V1[controller](limits)
            for file, value, needed in settings:
                _set(folder / file, value, needed)
            _set(folder / "cgroup.procs", "0", needed=True)

    def _make(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        if self.version == 2:
            _enable(folder)

    def processes(self, name: str) -> list[int]:
        folder = self._folders["" if self.version == 2 else "pids"] / name
        try:
            return [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]
        except OSError:
            return []

    def remove(self, name: str) -> bool:
        """Whether the sandbox's folders are gone; False while the kernel still holds one."""
        removed = [_rmdir(parent / name) for parent in self._folders.values()]
        return all(removed)

    def close(self) -> None:
        for folder in self._folders.values():
            _remove_tree(folder)

    def sweep(self) -> bool:
        """Remove what dead launchers left; False when some of it is still in use, or a launcher
        whose owner is gone has not ended yet."""
        done = True
        for parent in self._home.parents.values():
            for folder in parent.glob(_PREFIX + "*"):
                launcher = folder.name.removeprefix(_PREFIX)
                left = is_orphan(launcher) if alive(launcher) else not _remove_tree(folder)
                done = done and not left
        return done


def _v1_memory(limits: Limits) -> list[tuple[str, str, bool]]:
    limit = str((limits.memory_mb + limits.disk_mb) << 20)
    return [
        ("memory.limit_in_bytes", limit, True),
        ("memory.memsw.limit_in_bytes", limit, False),
    ]


def _v1_pids(limits: Limits) -> list[tuple[str, str, bool]]:
    return [("pids.max", str(limits.pids + _OWN_PROCESSES), True)]


def _v1_cpu(limits: Limits) -> list[tuple[str, str, bool]]:
    # Each value that is set costs a walk over all groups; the period is the kernel's own already.
    return [("cpu.cfs_quota_us", str(round(limits.cpus * _CPU_PERIOD_US)), False)]


_V1 = {"memory": _v1_memory, "pids": _v1_pids, "cpu": _v1_cpu}


def _v2_settings(limits: Limits) -> list[tuple[str, str, bool]]:
    return [
        ("memory.max", str((limits.memory_mb + limits.disk_mb) << 20), True),
        ("memory.swap.max", "0", False),
        ("pids.max", str(limits.pids + _OWN_PROCESSES), True),
        ("cpu.max", f"{round(limits.cpus * _CPU_PERIOD_US)} {_CPU_PERIOD_US}", False),
    ]


def _set(file: Path, value: str, needed: bool) -> None:
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
        try:
            os.write(fd, value.encode())
        finally:
            os.close(fd)
    except OSError:
        if needed:
            raise


def _enable(folder: Path) -> None:
    for controller in _CONTROLLERS:
        _set(folder / "cgroup.subtree_control", f"+{controller}", controller in _REQUIRED)


def _rmdir(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _remove_tree(folder: Path) -> bool:
    for child in folder.glob("*/"):
        _rmdir(child)
    return _rmdir(folder)


def open_cgroups(home: CgroupHome | None = None) -> Cgroups | None:
    """This launcher's cgroups, proven to work and swept of dead launchers' remains, or None.

    `home`: where, if not everywhere that is found.
    """
    home = home or find_cgroup_home()
    if home is None:
        return None
    cgroups = Cgroups(home)
    try:
        cgroups.open()
    except OSError:
        return None
    cgroups.sweep()
    return cgroups


def remove_groups_of_the_dead(within_s: float = 3.0) -> None:
    """Called by an owner whose launchers were killed before they removed their folders, or will
    end soon: it kills what it finds.

    What died in them takes a moment to be gone.
    """
    home = find_cgroup_home()
    deadline_s = time.monotonic() + within_s
    while home is not None and not Cgroups(home).sweep() and time.monotonic() < deadline_s:
        time.sleep(_PAUSE_S)


def limits_kind(cgroups: Cgroups | None, *, own_user: bool) -> str:
    """`own_user`: each sandbox has a host user of its own, whose processes can be counted."""
    if cgroups is not None:
        return f"cgroup{cgroups.version}"
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    return "rlimit" if own_user or release >= _NAMESPACE_COUNTS_PROCESSES else "none"
