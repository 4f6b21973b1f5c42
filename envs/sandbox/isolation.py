"""Isolation that this host offers to sandboxes, what it lacks, and the command that mends it.

Used by the doctor and, after a failed start, for the error's last words. Starts no sandbox and
changes nothing; `bubblewrap.prove_isolation` starts one.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox import seccomp
from clawrl_gym.envs.sandbox.cgroup import find_cgroup_home
from clawrl_gym.envs.sandbox.slots import usable_slots

_OLDEST_BUBBLEWRAP = (0, 8)
_PROBE_S = 10.0
_USER_NAMESPACE_PROBE = """\
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
uid = os.getuid()
if libc.unshare(0x10020000):
    sys.exit("unshare: " + os.strerror(ctypes.get_errno()))
open("/proc/self/uid_map", "w").write(f"0 {uid} 1")
if libc.mount(b"none", b"/", None, 0x44000, None):
    sys.exit("mount: " + os.strerror(ctypes.get_errno()))
"""
_CURE_BUBBLEWRAP = "apt-get install bubblewrap"
_CURE_USER_NAMESPACES = (
    "sysctl -w user.max_user_namespaces=65536 kernel.unprivileged_userns_clone=1"
    " kernel.apparmor_restrict_unprivileged_userns=0 (those that exist); in a container: run it"
    " with --privileged"
)
_CURE_CGROUPS = (
    "run as root, or in a session whose cgroup is yours:"
    " systemd-run --user --scope -p Delegate=yes COMMAND; in a container: run it with --privileged"
)


@dataclass(frozen=True, slots=True)
class IsolationCheck:
    """One thing that sandboxes stand on."""

    name: str
    ok: bool
    detail: str
    cure: str = ""
    """Command that mends it; empty when nothing is to be done."""
    required: bool = True
    """Without it no sandbox starts; otherwise something is lost, and `detail` says what."""


def isolation_report() -> list[IsolationCheck]:
    """Checks that need no sandbox to be started."""
    return [_bubblewrap(), _user_namespaces(), _seccomp(), _cgroups(), _uid_ranges(), _overlay()]


def _bubblewrap() -> IsolationCheck:
    path = shutil.which("bwrap")
    if path is None:
        return IsolationCheck("bubblewrap", False, "bwrap is not installed", _CURE_BUBBLEWRAP)
    process = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_PROBE_S)
    match = re.search(r"(\d+)\.(\d+)", process.stdout)
    version = tuple(int(part) for part in match.groups()) if match else (0, 0)
    ok = version >= _OLDEST_BUBBLEWRAP
    cure = "" if ok else f"{_CURE_BUBBLEWRAP} (0.8 or newer)"
    return IsolationCheck("bubblewrap", ok, f"{process.stdout.strip()} at {path}", cure)


def _user_namespaces() -> IsolationCheck:
    name = "user namespaces"
    command = [sys.executable, "-I", "-S", "-c", _USER_NAMESPACE_PROBE]
    process = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_S)
    if process.returncode == 0:
        return IsolationCheck(name, True, "can be made, with mounts in them")
    return IsolationCheck(name, False, process.stderr.strip()[-200:], _CURE_USER_NAMESPACES)


def _seccomp() -> IsolationCheck:
    name = "seccomp"
    try:
        seccomp.program()
    except SandboxError as error:
        return IsolationCheck(name, False, str(error), "use a supported machine")
    if "Seccomp:" not in Path("/proc/self/status").read_text():
        return IsolationCheck(
            name, False, "the kernel has none", "a kernel with CONFIG_SECCOMP_FILTER"
        )
    return IsolationCheck(name, True, f"filter for {platform.machine()}")


def _cgroups() -> IsolationCheck:
    home = find_cgroup_home()
    if home is not None:
        where = ", ".join(str(path) for path in home.parents.values())
        missing = "" if home.version == 2 or "cpu" in home.parents else "; cpu is not limited"
        detail = f"version {home.version}, below {where}{missing}"
        return IsolationCheck("cgroup limits", True, detail, required=False)
    detail = (
        "not writable: rlimits instead. Lost: memory holds for each process and not for all"
        " together, and the share of the processors is not limited"
    )
    return IsolationCheck("cgroup limits", False, detail, _CURE_CGROUPS, required=False)


def _uid_ranges() -> IsolationCheck:
    name = "uid ranges"
    if os.geteuid() != 0:
        detail = "an ordinary user's sandboxes run as that user, without its rights"
        return IsolationCheck(name, True, detail, required=False)
    count = sum(map(len, usable_slots()))
    if count:
        return IsolationCheck(name, True, f"for {count:,} sandboxes at a time", required=False)
    detail = "no room in /proc/self/uid_map: sandboxes run as this user, without its rights"
    cure = "in a container: run it in the host's user namespace (--userns=host)"
    return IsolationCheck(name, False, detail, cure, required=False)


def _overlay() -> IsolationCheck:
    name = "overlay file system"
    if os.geteuid() != 0:
        detail = "an ordinary user's sandboxes have a read-only /usr; overlay only serves `rootfs`"
        return IsolationCheck(name, True, detail, required=False)
    listed_by_kernel = any(line.endswith("\toverlay") for line in _file_systems())
    loadable = Path(f"/lib/modules/{platform.release()}").is_dir()
    if listed_by_kernel or loadable:
        return IsolationCheck(name, True, "known to the kernel", required=False)
    detail = "unknown to the kernel: /usr is read-only in sandboxes"
    return IsolationCheck(name, False, detail, "modprobe overlay", required=False)


def _file_systems() -> list[str]:
    return Path("/proc/filesystems").read_text().splitlines()


def cure_for(error_text: str) -> str:
    """The command that mends what a failed start complained about."""
    if "bwrap not found" in error_text:
        return _CURE_BUBBLEWRAP
    signs = ("unshare", "user namespace", "uid_map", "uid map", "mount flags on /")
    if any(sign in error_text for sign in signs):
        return _CURE_USER_NAMESPACES
    return "`python -m clawrl_gym.doctor` says what this machine lacks"
