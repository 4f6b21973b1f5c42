"""The process between Playwright's driver and one Chromium: it confines it, and outlives nobody.

It makes a network namespace with nothing in it but one listening socket, which it hands to the
owner (the process that runs environments); a cgroup for the memory; and starts Chromium there in
bubblewrap, as nobody of this host. CDP goes through the inherited descriptors 3 and 4. When the
owner or the driver is gone, however it died, Chromium is killed. Runs without this package's other
imports, and single-threaded.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
from pathlib import Path
from typing import TypedDict

from clawrl_gym.envs.gui.browser.memory import memory_home, share_mb
from clawrl_gym.envs.sandbox import kernel
from clawrl_gym.envs.sandbox.cgroup import Cgroups, open_cgroups
from clawrl_gym.envs.sandbox.interface import Limits
from clawrl_gym.envs.sandbox.slots import TOO_HIGH_FOR_BWRAP, first_uid, open_slots

_CLONE_NEWNET = 0x4000_0000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_GROUP = "browser"
_CDP_FDS = (3, 4)
_BACKLOG = 4096
_MOST_PIDS = 1 << 17
_MOST_OPEN_FILES = 1 << 16
_OOM_SCORE = "100"
"""OOM score below a renderer's 300, which Chromium sets: the kernel ends a page first."""
_DRIVER_END_S = 3.0
_STAGE = "/tmp"
_PLACE = "/opt/browser"
"""Path in the sandbox of an executable outside of /usr."""


class SupervisorSettings(TypedDict):
    """Settings that the owner gives on the command line, as JSON."""

    owner: int
    """Process id of the owner."""
    executable: str
    bwrap: str | None
    """Path of bubblewrap; None starts Chromium without isolation."""
    memory_mb: int | None
    handover_name: str
    """Name of the owner's abstract socket, to which the listening socket is sent."""


def main() -> None:
    """`supervisor.py SETTINGS_JSON CHROMIUM_ARGUMENTS`"""
    settings: SupervisorSettings = json.loads(sys.argv[1])
    arguments = sys.argv[2:]
    owner_fd = os.pidfd_open(settings["owner"])
    driver = os.getppid()
    driver_fd = os.pidfd_open(driver)
    cgroups = _limited(settings)
    handover = _connect(settings["handover_name"]) if settings["bwrap"] else None
    slots = open_slots([TOO_HIGH_FOR_BWRAP]) if settings["bwrap"] else None
    uid = first_uid(slots.take()[0]) if slots is not None else os.geteuid()
    child = os.fork()
    if child == 0:
        _become_chromium(settings, arguments, uid, cgroups, handover)
    if handover is not None:
        handover.close()
    for fd in _CDP_FDS:
        os.close(fd)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
    _watch(child, owner_fd, driver_fd)
    status = os.waitpid(child, 0)[1]
    if cgroups is not None:
        _remove(cgroups)
    if _ended(owner_fd, 0.0):
        _end_driver(driver_fd)
    _remove_profile(arguments)
    os._exit(max(0, os.waitstatus_to_exitcode(status)))


def _limited(settings: SupervisorSettings) -> Cgroups | None:
    """The cgroups; None where they cannot be written and nobody asked for them."""
    home = memory_home()
    cgroups = None if home is None else open_cgroups(home)
    if home is None or cgroups is None:
        if settings["memory_mb"] is None:
            return None
        sys.exit("browser.memory_mb is set, and a cgroup cannot be made")
    settings["memory_mb"] = settings["memory_mb"] or share_mb(home)
    return cgroups


def _watch(child: int, owner_fd: int, driver_fd: int) -> None:
    """Wait until Chromium ends; kill it when it has nobody to work for."""
    child_fd = os.pidfd_open(child)
    poll = select.poll()
    for fd in (child_fd, owner_fd, driver_fd):
        poll.register(fd, select.POLLIN)
    if child_fd not in [fd for fd, _ in poll.poll()]:
        os.kill(child, signal.SIGKILL)


def _ended(process_fd: int, timeout_s: float) -> bool:
    return bool(select.select([process_fd], [], [], timeout_s)[0])


def _end_driver(driver_fd: int) -> None:
    """The owner's end is the driver's too, even where a fork of the owner holds its pipe open."""
    if not _ended(driver_fd, _DRIVER_END_S):
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(driver_fd, signal.SIGKILL)


def _remove_profile(arguments: list[str]) -> None:
    """The folder that the driver made for Chromium: a driver that was killed leaves it."""
    for argument in arguments:
        profile = Path(argument.removeprefix("--user-data-dir="))
        if argument != str(profile) and profile.name.startswith("playwright_"):
            shutil.rmtree(profile, ignore_errors=True)


def _remove(cgroups: Cgroups) -> None:
    for _ in range(500):
        if cgroups.remove(_GROUP):
            break
        select.select([], [], [], 0.01)
    cgroups.close()


def _connect(handover: str) -> socket.socket:
    """The owner's socket, while this is still its own network namespace."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect("\0" + handover)
    return connection


def _become_chromium(
    settings: SupervisorSettings,
    arguments: list[str],
    uid: int,
    cgroups: Cgroups | None,
    handover: socket.socket | None,
) -> None:
    try:
        memory_mb = settings["memory_mb"]
        if cgroups is not None and memory_mb is not None:
            limits = Limits(memory_mb, 0, cpus=os.cpu_count() or 1, pids=_MOST_PIDS)
            cgroups.join(_GROUP, limits)
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        most = min(hard, _MOST_OPEN_FILES) if hard != resource.RLIM_INFINITY else _MOST_OPEN_FILES
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        kernel.close_on_exec_from(_CDP_FDS[-1] + 1)
        bwrap, executable = settings["bwrap"], settings["executable"]
        if bwrap is not None and handover is not None:
            argv = _confine(bwrap, executable, arguments, uid, handover)
        else:
            argv = [executable, *arguments]
        os.execve(
            argv[0], argv, {"HOME": "/tmp", "PATH": "/usr/bin:/bin", "TMPDIR": _tmp(settings)}
        )
    except BaseException as error:  # noqa: BLE001 (the one place that can still speak)
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(70)


def _tmp(settings: SupervisorSettings) -> str:
    return "/tmp" if settings["bwrap"] else tempfile.gettempdir()


def _confine(
    bwrap: str, executable: str, arguments: list[str], uid: int, handover: socket.socket
) -> list[str]:
    """Confine it to its own network, as user nobody; returns the command that does the rest."""
    folder = os.path.dirname(executable)  # noqa: PTH120
    elsewhere = not executable.startswith("/usr/")
    if elsewhere and os.geteuid() == 0:
        folder = _show(folder)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        kernel.set_dumpable()
    gid = os.getegid()
    kernel.unshare(kernel.CLONE_NEWUSER | _CLONE_NEWNET)
    _map_self(uid, gid)
    with _listener() as listener:
        socket.send_fds(handover, [b"listens"], [listener.fileno()])
    argv = [bwrap, "--unshare-user"]
    argv += [f"--unshare-{kind}" for kind in ("pid", "ipc", "uts", "cgroup")]
    argv += ["--die-with-parent", "--cap-drop", "ALL", "--hostname", "browser"]
    argv += ["--ro-bind", "/usr", "/usr", "--ro-bind-try", "/etc/fonts", "/etc/fonts"]
    for name in ("bin", "lib", "lib64", "sbin"):
        argv += ["--symlink", f"usr/{name}", f"/{name}"]
    argv += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/dev/shm", "--tmpfs", "/tmp"]
    argv += ["--dir", "/run", "--chdir", "/tmp"]
    if elsewhere:
        argv += ["--ro-bind", folder, _PLACE]
        executable = f"{_PLACE}/{os.path.basename(executable)}"  # noqa: PTH119
    for argument in arguments:
        if argument.startswith("--user-data-dir="):
            argv += ["--dir", argument.partition("=")[2]]
    return [*argv, "--", executable, *arguments]


def _show(folder: str) -> str:
    """Show this folder to the user nobody, who cannot read root's own files."""
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.make_mounts_private()
    tree = kernel.open_tree(folder)  # before the stage, which may hide it
    kernel.mount("tmpfs", _STAGE, "tmpfs", 0, "mode=755")
    place = Path(_STAGE) / "browser"
    place.mkdir()
    kernel.move_mount(tree, str(place))
    return str(place)


def _map_self(uid: int, gid: int) -> None:
    """The same user inside, so that leaving through exec drops what could be done in there."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def _listener() -> socket.socket:
    """A socket under every loopback address of a new network namespace."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    request = bytearray(struct.pack("16sH14x", b"lo", 0))
    fcntl.ioctl(listener.fileno(), _SIOCGIFFLAGS, request)
    flags = struct.unpack_from("H", request, 16)[0] | _IFF_UP
    fcntl.ioctl(listener.fileno(), _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags))
    listener.bind(("0.0.0.0", 0))  # the namespace has no other interface
    listener.listen(_BACKLOG)
    return listener
