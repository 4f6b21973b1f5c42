"""The seam between environments and what isolates them.

A sandbox is one shell in one isolated machine. It keeps its working directory and variables from
command to command; everything started in it dies with it. Nothing here knows tasks or rewards.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

if TYPE_CHECKING:  # a sandbox of its own needs no configuration
    from clawrl_gym.config.envs import SandboxConfig


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one sandbox."""

    memory_mb: int = 512
    disk_mb: int = 64
    """Megabytes that it may write; kept in memory and charged in addition to `memory_mb`."""
    cpus: float = 1.0
    pids: int = 64
    output_bytes: int = 16_384
    """Output kept of one command; the rest is drained and counted."""

    @classmethod
    def of(cls, config: SandboxConfig) -> Limits:
        """Limits of a configuration."""
        return cls(
            memory_mb=config.memory_mb,
            disk_mb=config.disk_mb,
            cpus=config.cpus,
            pids=config.pids,
            output_bytes=config.output_bytes,
        )


@dataclass(frozen=True, slots=True)
class SandboxCapabilities:
    """Abilities of a kind of sandbox beyond `Sandbox`; its class declares them as `capabilities`.

    An environment that needs what is not declared is refused before anything starts.
    """

    images: bool = False
    """Stands on the image that `SandboxSpec.image` names, or `SandboxConfig.image`. Environments
    pull and build images in the Docker engine of this machine."""
    users: bool = False
    """Its shell runs as `SandboxSpec.user`."""
    network: bool = False
    """Reaches the network where `SandboxConfig.network` says so."""
    mounts: bool = False
    """Shows the files of this machine in `SandboxSpec.mounts`, beside this machine's programs."""
    agents: bool = False
    """Holds an agent: shows `SandboxSpec.agent_mounts`, and has `HoldsAgents.listen`."""
    lists_files: bool = False
    """Has `ListsFiles.tree`, which tasks need that refuse side effects."""
    pooled: bool = False
    """Fresh ones may be started before anybody asks (`SandboxConfig.ready`) and be handed over
    later."""
    node_resource: str | None = "sandbox"
    """Resource that a cluster node must offer for one, by Ray's name of it; None: nothing."""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """A task's wishes for its sandbox; limits are the environment's to set."""

    workdir: str = "/root"
    """Where the shell starts; made when it is missing."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the shell."""
    image: str | None = None
    """Name of a Docker image that is there; None takes the environment's own (capability
    `images`)."""
    user: str | None = None
    """User that the shell runs as; None for the image's own (capability `users`)."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Files and folders of this machine, shown read-only by their paths inside (capability
    `mounts`)."""
    agent_mounts: Mapping[str, str] = field(default_factory=dict)
    """Folders that an agent is installed in, shown in the same way (capability `agents`)."""


@dataclass(frozen=True, slots=True)
class FileData:
    """A file to be written into a sandbox."""

    data: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class ExecResult:
    """Outcome of one command."""

    output: str
    """Standard output and error together, decoded with replacement, cut at the limit."""
    exit_code: int | None
    """Exit code; None when the command was killed at its deadline or took the shell with it."""
    timed_out: bool = False
    truncated: bool = False
    """Output was longer than the limit."""
    shell_restarted: bool = False
    """The shell had ended and a new one was started: directory and variables are lost."""
    waited_s: float = 0.0
    """Seconds that its processes waited for a CPU of this machine, estimated; 0 of a short one."""


class Sandbox(Protocol):
    """One isolated machine with one stateful shell. Not thread-safe; all calls block."""

    def exec(self, command: str, timeout_s: float) -> ExecResult:
        """Run a command in the session's shell. Raises SandboxError when the sandbox is dead."""
        ...

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file (parents are made), owned by the sandbox's user."""
        ...

    def read(self, path: str, max_bytes: int) -> bytes:
        """Read a regular file of the sandbox; symbolic links resolve inside it only.

        Raises FileNotFoundError, or SandboxError for what is not a regular file or too large.
        """
        ...

    def mode(self, path: str) -> int:
        """Permission bits of a file or folder; symbolic links resolve inside the sandbox only.

        Looked up from outside, like `read`. Raises FileNotFoundError, or SandboxError.
        """
        ...

    def successor(self) -> Self:
        """End every process here and return a fresh sandbox over the files that were left.

        The fresh one has new processes, environment and limits; this one is closed. Grading
        happens there, so that no leftover daemon or shell state of the agent can touch it.
        """
        ...

    def close(self) -> None:
        """End everything; idempotent."""
        ...


@runtime_checkable
class ListsFiles(Protocol):
    """A sandbox that can say what is in a folder: the capability `lists_files`."""

    def tree(self, path: str, max_entries: int) -> dict[str, int]:
        """All that is below a folder, by relative path, with type and permissions as `st_mode`.

        Looked up from outside, like `read`; symbolic links are not followed. Raises
        FileNotFoundError, or SandboxError for what is no folder or holds more.
        """
        ...


@runtime_checkable
class HoldsAgents(Protocol):
    """A sandbox in which an agent can reach its policy: the capability `agents`."""

    def listen(self) -> socket.socket:
        """A TCP socket that listens on 127.0.0.1 inside and belongs to this process.

        Whoever connects to it inside is accepted here; nothing else of this machine is reached by
        it. It ends with the sandbox's processes. Raises SandboxError.
        """
        ...


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where an agent works that runs inside an episode's sandbox."""

    sandbox: Sandbox
    workdir: str
    submission: str | None = None
    """Action that hands the work in; None: the environment's `finish()` does."""
