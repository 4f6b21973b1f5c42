"""What attacks on sandboxes share: the kinds of sandbox, and what is looked for on the host."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
from clawrl_gym.envs.sandbox.interface import Limits, Sandbox, SandboxSpec

LIMITS = Limits(memory_mb=256, disk_mb=32, pids=48)


def open_container(limits: Limits = LIMITS) -> AbstractContextManager[Sandbox]:
    from clawrl_gym.envs.sandbox.docker.images import BASE_IMAGE
    from clawrl_gym.envs.sandbox.docker.sandbox import open_docker_sandbox

    return open_docker_sandbox(limits, SandboxSpec(), image=BASE_IMAGE)


@dataclass(frozen=True)
class Kind:
    """One kind of sandbox."""

    name: str
    """Name of the kind in this module."""
    open: Callable[..., AbstractContextManager[Sandbox]]
    """Called with limits, or without for `LIMITS`."""
    devices: frozenset[str] = field(default_factory=frozenset)
    """That it has beside the harmless ones which all have."""


BUBBLEWRAP = Kind("BUBBLEWRAP", lambda limits=LIMITS: open_sandbox(limits))
DOCKER = Kind("DOCKER", open_container, frozenset(("/dev/console",)))
KINDS = [
    pytest.param(BUBBLEWRAP, id="bubblewrap", marks=pytest.mark.sandbox),
    pytest.param(DOCKER, id="docker", marks=pytest.mark.docker),
]
KINDS_WITH_CGROUPS = [
    pytest.param(BUBBLEWRAP, id="bubblewrap", marks=[pytest.mark.sandbox, pytest.mark.root]),
    pytest.param(DOCKER, id="docker", marks=pytest.mark.docker),
]
"""Limits of memory and processor: bubblewrap has them where it may make control groups."""


def output(sandbox, command, timeout_s=20):
    return sandbox.exec(command, timeout_s).output


def sleepers(marker):
    """Processes of the host that sleep for exactly this long, as only a sandbox was told to."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f"sleep\0{marker}\0".encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def system_call(sandbox, number, arguments):
    """Result and error number of a system call, made inside."""
    body = f'@a = ({arguments}); $r = syscall({number}, @a); print $r, " ", $!+0;'
    return output(sandbox, f"perl -e '{body}'")


def no_link_leads_out(sandbox, tmp_path):
    planted = tmp_path / "planted"
    planted.write_text("host")
    sandbox.exec(
        f"mkdir /out; ln -s {planted} /out/a; ln -s / /out/root; ln -s /proc/1/root /out/p", 5
    )
    paths = ("/out/a", f"/out/root{planted}", f"/out/p{planted}", f"/../../..{planted}")
    for path in paths:
        with pytest.raises((FileNotFoundError, SandboxError)):
            sandbox.read(path, 100)
    for path in ("/out/a", "/out/p/x"):
        with suppress(SandboxError):
            sandbox.write(path, b"overwritten")
    assert planted.read_text() == "host"


def odd_files_are_refused(sandbox):
    sandbox.exec("mkfifo /pipe; truncate -s 30M /giant; mkdir /folder", 5)
    started = time.monotonic()
    for path in ("/pipe", "/giant", "/folder", "/proc/version", "/dev/zero"):
        with pytest.raises((FileNotFoundError, SandboxError)):
            sandbox.read(path, 1000)
    assert time.monotonic() - started < 10.0
