"""The process that starts sandboxes and that they die with: one per owner, single-threaded.

bubblewrap's children die with the *thread* that started them, and forking a threaded process is
unsafe; so the owner starts this small program once and talks to it over one socket, in messages
`REQUEST SANDBOX WORD ARGUMENT`, answered by `REQUEST WORD ARGUMENT` (request 0 has no answer). What
a message costs does not depend on how many sandboxes there are, and each costs one descriptor here.
When the owner is gone, however it died, everything here is killed and this process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path

from clawrl_gym.core.files.open_files import allow_open_files
from clawrl_gym.envs.sandbox import kernel, tree
from clawrl_gym.envs.sandbox.cgroup import limits_kind, open_cgroups
from clawrl_gym.envs.sandbox.interface import Limits
from clawrl_gym.envs.sandbox.loopback import loopback_listener
from clawrl_gym.envs.sandbox.processes import children, kill_all, namespace_members
from clawrl_gym.envs.sandbox.rootfs import ROOT
from clawrl_gym.envs.sandbox.slots import first_uid, open_slots
from clawrl_gym.envs.sandbox.spawn import StartPlan, become_sandbox, enter_mounts, enter_network

_MESSAGE_BYTES = 1 << 18
"""More than a socket takes in one message."""
_RETRY_S = 0.002
_FIRST_FD = 16
_MOST_OPEN_FILES = 1 << 20
_STUCK_S = 5.0
"""Seconds at the end without one more sandbox gone, after which the rest is given up."""


@dataclass(frozen=True, slots=True)
class Message:
    """A request of the owner."""

    request: int
    sandbox: int
    word: str
    argument: str
    fds: tuple[int, ...]

    @classmethod
    def of(cls, content: bytes, fds: list[int]) -> Message:
        request, sandbox, word, argument = content.decode().split(" ", 3)
        return cls(int(request), int(sandbox), word, argument, tuple(fds))


@dataclass(slots=True)
class LiveSandbox:
    """One sandbox as the launcher sees it."""

    number: int
    plan: StartPlan
    monitor: int = 0
    """bubblewrap's outer process; 0 when reaped."""
    mounts_fd: int | None = None
    next_fds: tuple[int, ...] = ()
    """Session and output of the successor that starts when the processes are gone."""
    renew: bool = False
    closing: bool = False
    close_request: int = 0

    @property
    def owner_uid(self) -> int:
        """The host's id of its root user; -1 when that is the owner's own."""
        return -1 if self.plan.slot is None else first_uid(self.plan.slot)


class Launcher:
    def __init__(self, control: socket.socket, owner: int) -> None:
        self._control = control
        self._owner_fd = os.pidfd_open(owner)
        self._slots = open_slots()
        self._cgroups = open_cgroups()
        self._live: dict[int, LiveSandbox] = {}
        """Live sandboxes by number."""
        self._by_monitor: dict[int, LiveSandbox] = {}
        self._reaped: list[LiveSandbox] = []
        """Processes reaped, cgroups not yet removed."""
        self._unsent: deque[tuple[bytes, tuple[int, ...]]] = deque()
        """Answers that the owner has no room for yet."""
        self._poll = select.poll()
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._wake_fd = wake_read
        for fd in (control.fileno(), self._owner_fd, wake_read):
            self._poll.register(fd, select.POLLIN)

    def run(self) -> None:
        kind = limits_kind(self._cgroups, own_user=self._slots is not None)
        self._answer(0, f"ready {kind} {self._slots.count if self._slots else 'any'}")
        while True:
            timeout_ms = _RETRY_S * 1e3 if self._reaped else None
            for fd, events in self._poll.poll(timeout_ms):
                if fd == self._wake_fd:
                    with contextlib.suppress(BlockingIOError):
                        os.read(fd, 4096)
                    self._reap()
                elif fd == self._owner_fd or (events & ~select.POLLOUT and not self._serve()):
                    return self._end()
            self._send()
            self._clean()

    def _serve(self) -> bool:
        """Do what the next message asks for; False when the owner has hung up."""
        try:
            content, fds = kernel.receive(self._control, _MESSAGE_BYTES, 2)
        except OSError:
            return False
        if not content:
            return False
        message = Message.of(content, fds)
        if message.word == "start" and len(message.fds) == 2:
            self._accept(message)
            return True
        live = self._live.get(message.sandbox)  # none of a start whose descriptors had no room
        if live is not None:
            self._carry_out(message, live)
            return True
        for fd in message.fds:
            os.close(fd)
        # Its start failed: the owner may ask before it has read why.
        self._answer(message.request, "closed" if message.word == "close" else "gone")
        return True

    def _carry_out(self, message: Message, live: LiveSandbox) -> None:
        if message.word == "kill":
            spared = {live.monitor, *children(live.monitor)}
            killed = kill_all(lambda: self._processes(live), spared, keep=int(message.argument))
            self._answer(message.request, f"killed {killed}")
        elif message.word == "hold":
            self._hold_mounts(live)
            held = live.mounts_fd is not None
            self._answer(message.request, f"held {live.owner_uid}" if held else "gone")
        elif message.word == "root":
            self._hand_over_root(message, live)
        elif message.word == "listen":
            self._listen_inside(message, live)
        elif message.word == "restart":
            live.next_fds, live.renew = message.fds, message.argument == "renewed"
            self._keep_users(live)
            self._kill(live)
        elif not live.closing:
            live.closing, live.close_request = True, message.request
            self._keep_users(live)
            self._kill(live)

    def _accept(self, message: Message) -> None:
        """Start one sandbox. What fails is written where bubblewrap would have complained."""
        session_fd, output_fd = message.fds
        try:
            request = json.loads(message.argument)
            slot, users_fd = self._slots.take() if self._slots else (None, None)
            plan = StartPlan(
                name=str(message.sandbox),
                slot=slot,
                limits=Limits(**request["limits"]),
                rootfs=request["rootfs"],
                workdir=request["workdir"],
                env=request["env"],
                mounts=request["mounts"],
                session_fd=session_fd,
                output_fd=output_fd,
                users_fd=users_fd,
            )
            live = self._live[message.sandbox] = LiveSandbox(message.sandbox, plan)
            self._start(live)
        except OSError as error:
            _complain(output_fd, str(error))
        finally:
            os.close(session_fd)
            os.close(output_fd)

    def _start(self, live: LiveSandbox) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            _complain(live.plan.output_fd, f"fork: {error}")
            return
        if pid == 0:
            become_sandbox(live.plan, self._cgroups)
        live.monitor = pid
        self._by_monitor[pid] = live
        if live.plan.users_fd is not None:  # the sandbox has it now
            os.close(live.plan.users_fd)
            live.plan = replace(live.plan, users_fd=None)

    def _answer(self, request: int, text: str, *fds: int) -> None:
        """Send it as soon as the owner has room; the descriptors are closed then."""
        self._unsent.append((f"{request} {text}".encode(), fds))
        self._send()

    def _send(self) -> None:
        while self._unsent:
            text, fds = self._unsent[0]
            try:
                socket.send_fds(self._control, [text], fds, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                pass  # it has hung up, which is read next
            for fd in fds:
                os.close(fd)
            self._unsent.popleft()
        self._poll.modify(self._control, select.POLLIN | (select.POLLOUT if self._unsent else 0))

    def _hold_mounts(self, live: LiveSandbox) -> None:
        """Keep the mount namespace that bubblewrap was started from: the root outlives it."""
        if live.mounts_fd is None and live.monitor:
            # It may have ended by itself meanwhile, and its files with it: "gone".
            with contextlib.suppress(OSError):
                live.mounts_fd = os.open(f"/proc/{live.monitor}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)

    def _hand_over_root(self, message: Message, live: LiveSandbox) -> None:
        """The folder of its files, through its own mounts; kept here it would cost a descriptor."""
        if live.mounts_fd is None:
            return self._answer(message.request, "gone")
        with contextlib.suppress(OSError):
            monitor = Path(f"/proc/{live.monitor}")
            if (monitor / "ns/mnt").stat().st_ino == os.fstat(live.mounts_fd).st_ino:
                root_fd = os.open(
                    f"{monitor}/root{ROOT}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
                )
                return self._answer(message.request, "root", root_fd)
        if os.fork() == 0:  # its processes are gone: look from where they were
            try:
                enter_mounts(live.mounts_fd, as_root=live.plan.slot is not None)
                root_fd = os.open(ROOT, os.O_PATH | os.O_DIRECTORY)
                socket.send_fds(self._control, [f"{message.request} root ".encode()], [root_fd])
            finally:
                os._exit(0)

    def _listen_inside(self, message: Message, live: LiveSandbox) -> None:
        """A socket of the sandbox's own network, made by a child that goes there and ends."""
        first = children(live.monitor) if live.monitor else []
        if not first:
            return self._answer(message.request, "gone")
        if os.fork() != 0:
            return None
        answer = f"{message.request} gone "
        try:
            network_fd = os.open(f"/proc/{first[0]}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            enter_network(network_fd, as_root=live.plan.slot is not None)
            with loopback_listener() as listener:
                socket.send_fds(
                    self._control, [f"{message.request} listening ".encode()], [listener.fileno()]
                )
                answer = ""
        except OSError as error:
            answer = f"{message.request} failed {error}"
        finally:
            if answer:
                with contextlib.suppress(OSError):
                    self._control.send(answer.encode())
            os._exit(0)

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
            live.next_fds = ()
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
            del self._live[live.number]
            if live.close_request:
                self._answer(live.close_request, "closed")
        self._reaped = remaining

    def _end(self) -> None:
        for live in list(self._live.values()):
            if not live.closing:
                live.closing = True
                self._kill(live)
        left, deadline = len(self._live), time.monotonic() + _STUCK_S
        while left and time.monotonic() < deadline:
            self._reap()
            self._clean()
            if len(self._live) < left:
                left, deadline = len(self._live), time.monotonic() + _STUCK_S
            time.sleep(_RETRY_S)
        if self._cgroups is not None:
            self._cgroups.close()
            self._cgroups.sweep()


def _complain(output_fd: int, text: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it
        os.write(output_fd, f"{text}\n".encode())


def main() -> None:
    """`launcher.py CONTROL_FD OWNER_PID`"""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner decides when to end
    os.umask(0o022)
    allow_open_files(_MOST_OPEN_FILES)
    gc.disable()  # a collection in a forked child would copy every page
    tree.prepare()
    while os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) < _FIRST_FD:
        pass  # the low numbers belong to the sandboxes
    control = fcntl.fcntl(int(sys.argv[1]), fcntl.F_DUPFD_CLOEXEC, _FIRST_FD)
    os.close(int(sys.argv[1]))
    Launcher(socket.socket(fileno=control), owner=int(sys.argv[2])).run()
