"""The default sandbox: bubblewrap with a user range, limits, seccomp, no network and its own root.

The default root shows the host's own /usr (so: what is installed below /usr, and nothing that lives
elsewhere, such as a Python under a home folder) and a generated rest; nothing else of the host.
What limits hold is said by `isolation.isolation_report`. One shared kernel is the boundary: this
is no virtual machine.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, ClassVar, Self

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.channel import LauncherChannel
from clawrl_gym.envs.sandbox.files import file_mode, list_tree, read_file, write_file
from clawrl_gym.envs.sandbox.interface import (
    ExecResult,
    Limits,
    SandboxCapabilities,
    SandboxSpec,
)
from clawrl_gym.envs.sandbox.isolation import IsolationCheck, cure_for
from clawrl_gym.envs.sandbox.launcher_client import launcher_client
from clawrl_gym.envs.sandbox.shell import Capture, CommandEnding, Shell, ShellSession
from clawrl_gym.envs.sandbox.transport import LocalTransport

if TYPE_CHECKING:
    from clawrl_gym.config.envs import SandboxConfig

_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "USER": "root",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "TERM": "dumb",
}
_START_S = 30.0
_GREET_S = 15.0
_PROBE_S = 10.0


def open_sandbox(
    limits: Limits,
    *,
    rootfs: str | None = None,
    workdir: str = "/root",
    env: Mapping[str, str] | None = None,
    mounts: Mapping[str, str] | None = None,
    unsafe_no_limits: bool = False,
) -> BubblewrapSandbox:
    """Start a sandbox. May be called from many threads of one process.

    `rootfs` is a folder with a root file system (with /bin/bash) to stand on instead of the host's
    /usr; `mounts` are files and folders of the host, shown read-only by their paths inside. Without
    writable cgroups, rlimits hold instead (`isolation_report` says what is lost); where not even
    those can be counted for one sandbox, only `unsafe_no_limits` starts one. Raises SandboxError,
    saying the cure, where the host cannot isolate.
    """
    not_positive = {name: value for name, value in asdict(limits).items() if value <= 0}
    if not_positive:
        raise SandboxError(f"got sandbox limits {not_positive}, expected each above 0")
    launcher = launcher_client()
    if launcher.limits_kind == "none" and not unsafe_no_limits:
        raise SandboxError(
            "neither cgroups nor rlimits can limit a sandbox here (kernel older than 5.14, not"
            " root); run as root, or accept that with unsafe_no_limits=True"
        )
    root_folder = os.path.abspath(rootfs) if rootfs is not None else None  # noqa: PTH100
    shell_env = _ENV | dict(env or {})
    channel = LauncherChannel(launcher)
    try:
        with launcher.line.place():
            transport = _transport()
            try:
                channel.start(
                    limits, root_folder, workdir, shell_env, mounts or {}, transport.remote
                )
                return BubblewrapSandbox(limits, channel, transport)
            except BaseException:
                transport.close()
                raise
    except BaseException:
        channel.close()
        raise


def _transport() -> LocalTransport:
    try:
        return LocalTransport()
    except OSError as error:
        raise SandboxError(f"no descriptors for a sandbox: {error}; raise `ulimit -n`") from error


class BubblewrapSandbox:
    """A `Sandbox`; made by `open_sandbox`."""

    capabilities: ClassVar[SandboxCapabilities] = SandboxCapabilities(
        mounts=True, agents=True, lists_files=True, pooled=True
    )

    def __init__(self, limits: Limits, channel: LauncherChannel, transport: LocalTransport) -> None:
        """Wait for the first shell of a start that the launcher was asked for."""
        self._limits = limits
        self._channel = channel
        self._closed = False
        self._await_start(transport)

    @classmethod
    def from_config(cls, config: SandboxConfig, spec: SandboxSpec) -> BubblewrapSandbox:
        """A fresh one. Raises SandboxError, saying the cure, where the host cannot isolate."""
        return open_sandbox(
            Limits.of(config),
            rootfs=config.rootfs,
            workdir=spec.workdir,
            env=spec.env,
            mounts={**spec.mounts, **spec.agent_mounts},
            unsafe_no_limits=config.unsafe_no_limits,
        )

    def exec(self, command: str, timeout_s: float) -> ExecResult:
        self._check_open()
        result, ending = self._shell.run(command, timeout_s)
        if ending is not CommandEnding.COMPLETED:
            self._recover(ending)
        return result

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self._check_open()
        with self._channel.root() as root_fd:
            write_file(root_fd, path, data, mode, self._channel.owner)

    def read(self, path: str, max_bytes: int) -> bytes:
        self._check_open()
        with self._channel.root() as root_fd:
            return read_file(root_fd, path, max_bytes)

    def mode(self, path: str) -> int:
        self._check_open()
        with self._channel.root() as root_fd:
            return file_mode(root_fd, path)

    def tree(self, path: str, max_entries: int) -> dict[str, int]:
        self._check_open()
        with self._channel.root() as root_fd:
            return list_tree(root_fd, path, max_entries)

    def listen(self) -> socket.socket:
        self._check_open()
        return self._channel.listener()

    def successor(self) -> Self:
        """As the protocol says; the system's programs (/usr but /usr/local) are the host's again.

        So a shell, interpreter or library that was replaced cannot answer for a grader.
        """
        self._check_open()
        transport = _transport()
        self._closed = True
        self._transport.close()
        try:
            with self._channel.launcher.line.place():
                self._channel.restart(transport.remote, renew=True)
                return type(self)(self._limits, self._channel, transport)
        except BaseException:
            transport.close()
            self._channel.close()
            raise

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._transport.close()
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise SandboxError("the sandbox is closed")

    def _await_start(self, transport: LocalTransport) -> None:
        self._transport = transport
        transport.close_remote()
        output_bytes = self._limits.output_bytes
        self._shell = Shell(ShellSession(transport), output_bytes, self._channel.kill_all_but)
        capture = Capture(output_bytes, bytearray())
        if not self._shell.greet(capture, _START_S):
            failure = capture.text.strip() or f"no shell answered within {_START_S:.0f} s"
            raise SandboxError(
                f"could not start a sandbox: {failure}; to mend it: {cure_for(failure)}"
            )
        self._channel.started()

    def _recover(self, ending: CommandEnding) -> None:
        """Have a shell again: the init process's new one, or new processes over the same files.

        As a last resort over the system's own programs, should those have been destroyed.
        """
        discarded = Capture(0, bytearray())
        if ending is CommandEnding.SHELL_ENDED and self._shell.greet(discarded, _GREET_S):
            return
        try:
            self._restart(renew=False)
        except SandboxError:
            self._restart(renew=True)

    def _restart(self, *, renew: bool) -> None:
        self._transport.close()
        transport = _transport()
        self._transport = transport
        self._channel.restart(transport.remote, renew=renew)
        self._await_start(transport)


def prove_isolation() -> IsolationCheck:
    """Start a sandbox, run a command, end it: the one finding that cannot be wrong."""
    started_s = time.monotonic()
    try:
        with open_sandbox(Limits()) as sandbox:
            result = sandbox.exec("id -u", _PROBE_S)
    except SandboxError as error:
        return IsolationCheck("sandbox", False, str(error), "see the findings above")
    ok = result.output == "0\n" and result.exit_code == 0
    took_ms = (time.monotonic() - started_s) * 1e3
    detail = f"started, ran a command and ended in {took_ms:.0f} ms"
    return IsolationCheck("sandbox", ok, detail if ok else f"`id -u` answered {result.output!r}")
