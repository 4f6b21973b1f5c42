"""The process that starts sandboxes and that they die with: one per owner, single-threaded.

bubblewrap's children die with the *thread* that started them, and forking a threaded process is
unsafe; so the owner starts this small program once and talks to it over a socket. Each sandbox
has a channel of its own (a socket) for what happens to it later: its end means the sandbox's end.
When the owner is gone, however it died, everything here is killed and this process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass, field, replace

from clawrl_gym.envs.sandbox import kernel, tree
from clawrl_gym.envs.sandbox.cgroup import limits_kind, open_cgroups
from clawrl_gym.envs.sandbox.interface import Limits
from clawrl_gym.envs.sandbox.processes import children, kill_all, namespace_members
from clawrl_gym.envs.sandbox.slots import Slots
from clawrl_gym.envs.sandbox.spawn import StartPlan, become_sandbox

_MESSAGE_BYTES = 1 << 18
"""More than a socket takes in one message."""
_RETRY_S = 0.002
_FIRST_FD = 16


@dataclass(slots=True)
class LiveSandbox:
    """One sandbox as the launcher sees it."""

    plan: StartPlan
    monitor: int
    """bubblewrap's outer process; 0 when reaped."""
    mounts_fd: int | None = None
    next_fds: list[int] = field(default_factory=list)
    """Session and output of the successor that starts when the processes are gone."""
    renew: bool = False
    closing: bool = False


class Launcher:
    def __init__(self, control: socket.socket, owner: int) -> None:
        self._control = control
        self._owner_fd = os.pidfd_open(owner)
        self._slots = Slots() if os.geteuid() == 0 else None
        self._cgroups = open_cgroups()
        self._live: dict[int, LiveSandbox] = {}
        """By the channel's descriptor."""
        self._by_monitor: dict[int, LiveSandbox] = {}
        self._reaped: list[LiveSandbox] = []
        """Processes reaped, cgroups not yet removed."""
        self._count = 0
        self._poll = select.poll()
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._wake_fd = wake_read
        for fd in (control.fileno(), self._owner_fd, wake_read):
            self._poll.register(fd, select.POLLIN)

    def run(self) -> None:
        kind = limits_kind(self._cgroups, own_user=self._slots is not None)
        self._control.send(f"ready {kind}".encode())
        while True:
            timeout_ms = _RETRY_S * 1e3 if self._reaped else None
            for fd, _ in self._poll.poll(timeout_ms):
                if fd == self._wake_fd:
                    with contextlib.suppress(BlockingIOError):
                        os.read(fd, 4096)
                elif fd == self._owner_fd or (fd == self._control.fileno() and not self._accept()):
                    return self._end()
                elif fd in self._live:
                    self._serve(self._live[fd])
            self._reap()
            self._clean()

    def _accept(self) -> bool:
        """Start one sandbox; False when the owner has hung up."""
        data, fds = kernel.receive(self._control, _MESSAGE_BYTES, 3)
        if not data:
            return False
        channel = socket.socket(fileno=fds[0])
        try:
            request = json.loads(data)
            slot, users_fd = self._slots.take() if self._slots else (None, None)
            self._count += 1
            plan = StartPlan(
                name=str(self._count),
                slot=slot,
                limits=Limits(**request["limits"]),
                rootfs=request["rootfs"],
                workdir=request["workdir"],
                env=request["env"],
                mounts=request["mounts"],
                channel=channel,
                session_fd=fds[1],
                output_fd=fds[2],
                users_fd=users_fd,
            )
            live = LiveSandbox(plan, 0)
            self._live[channel.fileno()] = live
            self._poll.register(channel.fileno(), select.POLLIN)
            self._start(live)
        except OSError as error:
            os.write(fds[2], f"{error}\n".encode())
            channel.close()
        finally:
            os.close(fds[1])
            os.close(fds[2])
        return True

    def _start(self, live: LiveSandbox) -> None:
        try:
            pid = os.fork()
        except OSError as error:  # the owner reads it where bubblewrap would have complained
            os.write(live.plan.output_fd, f"fork: {error}\n".encode())
            return
        if pid == 0:
            become_sandbox(live.plan, self._cgroups)
        live.monitor = pid
        self._by_monitor[pid] = live

    def _serve(self, live: LiveSandbox) -> None:
        try:
            data, fds = kernel.receive(live.plan.channel, _MESSAGE_BYTES, 2)
        except OSError:
            data, fds = b"", []
        word, _, argument = data.decode().partition(" ")
        if word == "kill":
            spared = {live.monitor, *children(live.monitor)}
            killed = kill_all(lambda: self._processes(live), spared, keep=int(argument))
            self._answer(live, f"killed {killed}")
        elif word == "hold":
            self._hold_mounts(live)
            self._answer(live, "gone" if live.mounts_fd is None else "held")
        elif word == "restart":
            live.next_fds, live.renew = list(fds), argument == "renewed"
            self._keep_users(live)
            self._kill(live)
        else:
            live.closing = True
            self._keep_users(live)
            self._poll.unregister(live.plan.channel.fileno())
            self._kill(live)

    def _answer(self, live: LiveSandbox, text: str) -> None:
        with contextlib.suppress(OSError):
            live.plan.channel.send(text.encode(), socket.MSG_DONTWAIT)

    def _hold_mounts(self, live: LiveSandbox) -> None:
        """Keep the mount namespace that bubblewrap was started from: the root outlives it."""
        if live.mounts_fd is None and live.monitor:
            # It may have ended by itself meanwhile, and its files with it: "gone".
            with contextlib.suppress(OSError):
                live.mounts_fd = os.open(f"/proc/{live.monitor}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)

    def _keep_users(self, live: LiveSandbox) -> None:
        """Keep the user namespace for the slot's next sandbox."""
        if live.plan.slot is None or live.plan.users_fd is not None or not live.monitor:
            return
        for first in children(live.monitor):
            with contextlib.suppress(OSError):
                fd = os.open(f"/proc/{first}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
                live.plan = replace(live.plan, users_fd=fd)
                return

    def _kill(self, live: LiveSandbox) -> None:
        """End all of it: the kernel empties a process namespace whose first process dies."""
        if not live.monitor:
            self._ended(live)
            return
        for pid in (*children(live.monitor), live.monitor):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _processes(self, live: LiveSandbox) -> list[int]:
        if self._cgroups is not None:
            return self._cgroups.processes(live.plan.name)
        first = children(live.monitor)
        return namespace_members(first[0]) if first else []

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            live = self._by_monitor.pop(pid, None)
            if live is not None:
                live.monitor = 0
                self._ended(live)

    def _ended(self, live: LiveSandbox) -> None:
        if live.closing:
            self._reaped.append(live)
        elif live.next_fds:
            session, output = live.next_fds
            live.next_fds = []
            live.plan = replace(
                live.plan,
                session_fd=session,
                output_fd=output,
                mounts_fd=live.mounts_fd,
                renew=live.renew,
            )
            self._start(live)
            os.close(session)
            os.close(output)

    def _clean(self) -> None:
        """Take back what closed sandboxes held; the kernel may need a moment for cgroups."""
        remaining = []
        for live in self._reaped:
            if self._cgroups is not None and not self._cgroups.remove(live.plan.name):
                remaining.append(live)
                continue
            if self._slots is not None and live.plan.slot is not None:
                self._slots.give_back(live.plan.slot, live.plan.users_fd)
            for fd in (live.mounts_fd, *live.next_fds):
                if fd is not None:
                    os.close(fd)
            self._answer(live, "closed")
            self._live.pop(live.plan.channel.fileno(), None)
            live.plan.channel.close()
        self._reaped = remaining

    def _end(self) -> None:
        for live in list(self._live.values()):
            if not live.closing:
                live.closing = True
                self._kill(live)
        deadline = time.monotonic() + 5.0
        while self._live and time.monotonic() < deadline:
            self._reap()
            self._clean()
            time.sleep(_RETRY_S)
        if self._cgroups is not None:
            self._cgroups.close()
            self._cgroups.sweep()


def main() -> None:
    """`launcher.py CONTROL_FD OWNER_PID`"""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner decides when to end
    os.umask(0o022)
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    gc.disable()  # a collection in a forked child would copy every page
    tree.prepare()
    while os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) < _FIRST_FD:
        pass  # the low numbers belong to the sandboxes
    control = fcntl.fcntl(int(sys.argv[1]), fcntl.F_DUPFD_CLOEXEC, _FIRST_FD)
    os.close(int(sys.argv[1]))
    Launcher(socket.socket(fileno=control), owner=int(sys.argv[2])).run()
