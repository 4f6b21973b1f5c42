"""From a freshly forked child of the launcher to bubblewrap: the steps that cannot be undone.

Runs in the child only and never returns. As real root it takes a uid range of its own, so that
root inside is nobody outside; as an ordinary user, a user namespace in which that user is root.
bubblewrap gets an empty environment but for what the sandbox may see, and no capability survives.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from clawrl_gym.envs.sandbox import kernel, rootfs, seccomp
from clawrl_gym.envs.sandbox.cgroup import Cgroups
from clawrl_gym.envs.sandbox.interface import Limits
from clawrl_gym.envs.sandbox.slots import UIDS_PER_SLOT, first_uid

SESSION_FD, OUTPUT_FD, _USERS_FD, _MOUNTS_FD = 3, 4, 5, 6
_LAST_FD = 0x7FFF_FFFF
_MAX_OPEN_FILES = 1_024
_NICENESS = 5
"""Niceness of agents' programs, which yield the processor to serving and training."""
_OOM_SCORE = "500"
"""OOM score: when the host runs out of memory, sandboxes go before what trains on them."""

_INIT_SCRIPT = """\
exec {close} >/dev/null 2>&1
while :; do
  (exec -a bash "$BASH" --noprofile --norc -s <&3)
  printf 'D %s\\0' "$?" >&3 || exit
done"""
"""Process 1: starts the shell again whenever it ends; cannot be killed from inside."""


@dataclass(frozen=True, slots=True)
class StartPlan:
    """Everything about one start that was decided before the fork."""

    name: str
    slot: int | None
    """Uid range; None for an ordinary user."""
    limits: Limits
    rootfs: str | None
    workdir: str
    env: Mapping[str, str]
    mounts: Mapping[str, str]
    """Files and folders of the host, shown read-only by their paths inside."""
    session_fd: int
    output_fd: int
    users_fd: int | None = None
    """The slot's user namespace, when an earlier sandbox made it."""
    mounts_fd: int | None = None
    """The mount namespace of the predecessor whose root is taken over."""
    renew: bool = False
    """Put the system's own programs back over what the predecessor left."""


def become_sandbox(plan: StartPlan, cgroups: Cgroups | None) -> None:
    """Turn this process into bubblewrap with the sandbox in it. Writes what fails to fd 2."""
    try:
        _reset_signals()
        plan = _arrange_descriptors(plan)
        if cgroups is not None:
            cgroups.join(plan.name, plan.limits)
        argv = _enter(plan)
        os.nice(_NICENESS)
        _set_rlimits(plan.limits, counted=cgroups is not None)
        os.execve(argv[0], argv, dict(plan.env))
    except BaseException as error:  # noqa: BLE001 (the one place that can still speak)
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(70)


def _reset_signals() -> None:
    """Signals that are ignored here would be ignored by every program in the sandbox, for good."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def _arrange_descriptors(plan: StartPlan) -> StartPlan:
    """Keep what the plan names, under low numbers, and nothing else of the launcher's.

    The launcher keeps what it opens above these numbers, so none overwrites another.
    """
    null = os.open("/dev/null", os.O_RDWR)
    descriptors = {0: null, 1: plan.output_fd, 2: plan.output_fd}
    descriptors |= {SESSION_FD: plan.session_fd, OUTPUT_FD: plan.output_fd}
    for target, source in descriptors.items():
        os.dup2(source, target)
    users_fd, mounts_fd = _moved(plan.users_fd, _USERS_FD), _moved(plan.mounts_fd, _MOUNTS_FD)
    os.closerange(_MOUNTS_FD + 1, _LAST_FD)
    return replace(plan, users_fd=users_fd, mounts_fd=mounts_fd)


def _moved(fd: int | None, target: int) -> int | None:
    return None if fd is None else os.dup2(fd, target, inheritable=False)


def _enter(plan: StartPlan) -> list[str]:
    bwrap = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")
    if bwrap is None:
        raise FileNotFoundError("bwrap not found: apt-get install bubblewrap")
    Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    owner = _enter_as_user(plan) if plan.slot is None else _enter_as_root(plan, plan.slot)
    if plan.mounts_fd is None:
        rootfs.build(plan.limits, plan.rootfs, plan.workdir, owner, plan.mounts)
    elif plan.renew:
        rootfs.renew(plan.limits, plan.rootfs, owner)
    extra = rootfs.bindings(plan.rootfs)
    argv = _bwrap_command(bwrap, plan, owner, extra)
    if plan.slot is not None:
        os.setgroups([])
        os.setresgid(owner.gid, owner.gid, owner.gid)
        os.setresuid(owner.uid, owner.uid, owner.uid)
    return argv


def _enter_as_root(plan: StartPlan, slot: int) -> rootfs.Owner:
    uid = first_uid(slot)
    namespace = _user_namespace(uid) if plan.users_fd is None else plan.users_fd
    if plan.mounts_fd is None:
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.make_mounts_private()
    else:
        enter_mounts(plan.mounts_fd, as_root=True)
    return rootfs.Owner(uid, uid, namespace)


def enter_mounts(mounts_fd: int, *, as_root: bool) -> None:
    """Go where a sandbox's root is mounted; an ordinary user by way of its user namespace."""
    if not as_root:
        kernel.setns(kernel.owning_user_namespace(mounts_fd), kernel.CLONE_NEWUSER)
    kernel.setns(mounts_fd, kernel.CLONE_NEWNS)


def enter_network(network_fd: int, *, as_root: bool) -> None:
    """Go into a sandbox's network; an ordinary user by way of the user namespace that owns it."""
    if not as_root:
        kernel.setns(kernel.owning_user_namespace(network_fd), kernel.CLONE_NEWUSER)
    kernel.setns(network_fd, kernel.CLONE_NEWNET)


def _enter_as_user(plan: StartPlan) -> rootfs.Owner:
    """A user namespace in which mounts may be made; bubblewrap makes another below it.

    The user keeps its number here, so that executing bubblewrap drops every capability.
    """
    uid, gid = os.getuid(), os.getgid()
    if plan.mounts_fd is not None:
        enter_mounts(plan.mounts_fd, as_root=False)
        return rootfs.Owner(uid, gid, None)
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    kernel.make_mounts_private()
    return rootfs.Owner(uid, gid, None)


def _user_namespace(uid: int) -> int:
    """A user namespace that shows a slot's range as 0 and up; made by a child that then ends."""
    ready_read, ready_write = os.pipe()
    done_read, done_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(done_write)
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            kernel.set_dumpable()
            kernel.unshare(kernel.CLONE_NEWUSER)
            os.write(ready_write, b"1")
            os.read(done_read, 1)
        finally:
            os._exit(0)
    os.close(ready_write)
    os.close(done_read)
    if os.read(ready_read, 1) != b"1":
        raise PermissionError("the kernel refuses a user namespace")
    for name in ("uid_map", "gid_map"):
        Path(f"/proc/{child}/{name}").write_text(f"0 {uid} {UIDS_PER_SLOT}")
    fd = os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
    os.close(done_write)
    os.close(ready_read)
    os.waitpid(child, 0)
    return fd


def _bwrap_command(bwrap: str, plan: StartPlan, owner: rootfs.Owner, extra: list[str]) -> list[str]:
    kernel.close_on_exec_from(OUTPUT_FD + 1)
    argv, close = [bwrap], ""
    if owner.namespace_fd is not None:
        close = f"{_USERS_FD}>&-"  # bubblewrap hands it on
        if owner.namespace_fd == _USERS_FD:
            os.set_inheritable(_USERS_FD, True)
        else:
            os.dup2(owner.namespace_fd, _USERS_FD)
        argv += ["--userns", str(_USERS_FD)]
    else:
        argv += ["--unshare-user", "--uid", "0", "--gid", "0"]
    for kind in ("pid", "net", "ipc", "uts", "cgroup"):
        argv.append(f"--unshare-{kind}")
    argv += ["--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL"]
    argv += ["--hostname", "sandbox", "--bind", rootfs.ROOT, "/", *extra]
    argv += ["--proc", "/proc", "--dev", "/dev", "--bind", rootfs.SHARED_MEMORY, "/dev/shm"]
    argv += ["--remount-ro", "/dev", "--seccomp", str(seccomp.program_fd())]
    argv += ["--chdir", plan.workdir, "--", "/bin/bash", "--noprofile", "--norc", "-c"]
    return [*argv, _INIT_SCRIPT.format(close=close)]


def _set_rlimits(limits: Limits, *, counted: bool) -> None:
    """Always: no core files, few descriptors. Without cgroups: the nearest thing rlimits have."""
    values = {resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: _MAX_OPEN_FILES}
    if not counted:
        values[resource.RLIMIT_AS] = limits.memory_mb << 20
        values[resource.RLIMIT_NPROC] = limits.pids + 3
        values[resource.RLIMIT_FSIZE] = limits.disk_mb << 20
    for kind, value in values.items():
        hard = resource.getrlimit(kind)[1]
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (least, least))
