"""The Docker sandbox: one container of an image, with one long-lived shell in it.

No network unless asked for, no capabilities, no new privileges, the system calls refused that
bubblewrap's sandbox refuses; limits on memory (no swap), processor and processes. What may be
written in all is limited by the engine where its storage has quotas, and watched where not
(`disk.py` says what that holds). Root inside is root of the host's kernel without capabilities,
unless the engine maps users. This is no virtual machine.

Commands and answers share one stream of the container with what commands print. Nothing printed can
forge an answer, but a process that goes through /proc for the shell's own descriptors can disturb
its own session; never another's, and never a successor's.
"""

from __future__ import annotations

import socket
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, ClassVar, Self

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox import files
from clawrl_gym.envs.sandbox.docker import archive
from clawrl_gym.envs.sandbox.docker.changes import copy_changes
from clawrl_gym.envs.sandbox.docker.container import Container, ContainerSpec, has_quota
from clawrl_gym.envs.sandbox.docker.disk import WatchedContainer, disk_watcher
from clawrl_gym.envs.sandbox.docker.engine import engine_call
from clawrl_gym.envs.sandbox.docker.images import TERMINAL_IMAGE, ensure_image
from clawrl_gym.envs.sandbox.docker.reaper import keep_reaping
from clawrl_gym.envs.sandbox.interface import (
    ExecResult,
    Limits,
    SandboxCapabilities,
    SandboxSpec,
)
from clawrl_gym.envs.sandbox.shell import Capture, CommandEnding, Shell, ShellSession
from clawrl_gym.envs.sandbox.start_line import StartLine

if TYPE_CHECKING:
    from clawrl_gym.config.envs import SandboxConfig

_START_S = 60.0
_GREET_S = 15.0
_CARRY_S = 60.0
_line = StartLine(8)
"""An engine that is asked for hundreds at once answers each later than any time-out."""


def open_docker_sandbox(
    limits: Limits,
    spec: SandboxSpec,
    *,
    image: str | None,
    network: bool = False,
    ttl_s: float = 7200.0,
) -> DockerSandbox:
    """Start a sandbox of an image (None: the terminal's own). From any thread.

    An image that is not there is built (ours) or pulled. Raises SandboxError, saying the cure,
    without an engine, without the image, or when the image has no /bin/bash.
    """
    not_positive = {name: value for name, value in asdict(limits).items() if value <= 0}
    if not_positive or ttl_s <= 0:
        raise SandboxError(f"got sandbox limits {not_positive or ttl_s}, expected each above 0")
    _check_spec(spec)
    keep_reaping()
    container = ContainerSpec(image or TERMINAL_IMAGE, limits, spec, network, ttl_s)
    with _line.place():
        return DockerSandbox(_create(container))


def _check_spec(spec: SandboxSpec) -> None:
    texts = [spec.workdir, spec.user or "", *spec.env, *spec.env.values()]
    if any("\0" in text for text in texts):
        raise SandboxError("could not start a sandbox: got an embedded null byte in its place")
    if not spec.workdir.startswith("/"):
        raise SandboxError(f"got the workdir {spec.workdir!r}, expected an absolute path")


def _create(spec: ContainerSpec) -> Container:
    from docker.errors import ImageNotFound

    with engine_call(f"could not make a container of the image {spec.image!r}"):
        try:
            return Container.create(spec)
        except ImageNotFound:
            ensure_image(spec.image)
            return Container.create(spec)


class DockerSandbox:
    """A `Sandbox`; made by `open_docker_sandbox`."""

    capabilities: ClassVar[SandboxCapabilities] = SandboxCapabilities(
        images=True,
        users=True,
        network=True,
        agents=True,
        lists_files=True,
        pooled=True,
        node_resource="docker",
    )

    def __init__(self, container: Container) -> None:
        """Start a container that was made, and wait for its shell; remove it when that fails."""
        self._container = container
        self._limits = container.spec.limits
        self._closed = False
        self._written_bytes = 0
        """Bytes found written when that was too much, since the last command; otherwise 0."""
        self._watched = WatchedContainer(container.id, self._limits.disk_mb << 20, self._on_full)
        try:
            self._stream = container.start()
            self._begin()
            self._has_quota = has_quota()
        except BaseException:
            self._end()
            raise

    @classmethod
    def from_config(cls, config: SandboxConfig, spec: SandboxSpec) -> DockerSandbox:
        """A fresh one, of the task's image or the configured one. Raises SandboxError."""
        return open_docker_sandbox(
            Limits.of(config),
            spec,
            image=spec.image or config.image,
            network=config.network,
            ttl_s=config.ttl_s,
        )

    def exec(self, command: str, timeout_s: float) -> ExecResult:
        self._check_open()
        if not self._has_quota:  # one that stands ready writes nothing
            disk_watcher().add(self._watched)
        self._watched.running = self._watched.dirty = True
        try:
            result, ending = self._shell.run(command, timeout_s)
        finally:
            self._watched.running = False
        if ending is not CommandEnding.COMPLETED:
            self._recover(ending)
        return self._say_full(result)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self._check_open()
        if self._container.root_fd >= 0:
            files.write_file(self._container.root_fd, path, data, mode, self._owner)
        else:
            archive.write_file(self._container.id, path, data, mode, self._owner)

    def read(self, path: str, max_bytes: int) -> bytes:
        self._check_open()
        if self._container.root_fd >= 0:
            return files.read_file(self._container.root_fd, path, max_bytes)
        return archive.read_file(self._container.id, path, max_bytes)

    def mode(self, path: str) -> int:
        self._check_open()
        if self._container.root_fd >= 0:
            return files.file_mode(self._container.root_fd, path)
        return archive.path_status(self._container.id, path).mode

    def tree(self, path: str, max_entries: int) -> dict[str, int]:
        self._check_open()
        if self._container.root_fd >= 0:
            return files.list_tree(self._container.root_fd, path, max_entries)
        return archive.list_tree(self._container.id, path, max_entries)

    def listen(self) -> socket.socket:
        self._check_open()
        return self._container.listener()

    def successor(self) -> Self:
        """As the protocol says: a new container of the image, with the files that were changed.

        The system's programs (/usr but /usr/local) are the image's again: see `changes.py`.
        """
        self._check_open()
        self._closed = True
        old = self._container
        try:
            old.kill_all_but({self._session.feeder_pid})
            with _line.place():
                fresh = type(self)(_create(old.spec))
            try:
                fresh._take_over(old)
            except BaseException:
                fresh.close()
                raise
            return fresh
        finally:
            self._end()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take_over(self, old: Container) -> None:
        def run(command: str) -> int | None:
            return self.exec(command, _CARRY_S).exit_code

        copy_changes(old.changes(), self._container.id, self._limits.disk_mb << 20, run)

    def _check_open(self) -> None:
        if self._closed:
            raise SandboxError("the sandbox is closed")

    def _begin(self) -> None:
        self._session = ShellSession(self._stream)
        self._shell = Shell(self._session, self._limits.output_bytes, self._kill_all_but)
        capture = Capture(self._limits.output_bytes, bytearray())
        if not self._shell.greet(capture, _START_S):
            reason = self._stream.error or capture.text.strip() or self._container.death_reason()
            image = self._container.spec.image
            raise SandboxError(f"could not start a sandbox of the image {image!r}: {reason}")
        self._owner = (self._ask("$UID"), self._ask("${GROUPS[0]}"))

    def _ask(self, expression: str) -> int:
        self._session.ask(f'"{expression}"')
        discarded = Capture(0, bytearray())
        self._session.wait(discarded, time.monotonic() + _GREET_S)
        return self._session.code or 0

    def _kill_all_but(self, inner_pid: int) -> None:
        self._container.kill_all_but({inner_pid, self._session.feeder_pid})

    def _recover(self, ending: CommandEnding) -> None:
        """Have the init process's new shell, or say what became of the container."""
        discarded = Capture(0, bytearray())
        if ending is CommandEnding.SHELL_ENDED and self._shell.greet(discarded, _GREET_S):
            return
        reason = self._container.death_reason()
        self.close()
        raise SandboxError(f"the sandbox's container ended: {reason}")

    def _on_full(self, written_bytes: int) -> None:
        """Called in the watcher's thread."""
        self._written_bytes = written_bytes
        self._kill_all_but(self._shell.pid)

    def _say_full(self, result: ExecResult) -> ExecResult:
        written_bytes, self._written_bytes = self._written_bytes, 0
        if not written_bytes:
            return result
        note = (
            f"\n[disk full: {written_bytes >> 20} MB written, at most {self._limits.disk_mb} MB;"
            " what ran was killed, delete files before going on]\n"
        )
        return replace(result, output=result.output + note)

    def _end(self) -> None:
        disk_watcher().drop(self._watched)
        if hasattr(self, "_stream"):
            self._stream.close()
        self._container.remove()
