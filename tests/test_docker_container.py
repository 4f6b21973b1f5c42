"""What is done to a container past the engine: on the machine where it runs, without asking."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox import processes
from clawrl_gym.envs.sandbox.docker.container import Container, ContainerSpec
from clawrl_gym.envs.sandbox.docker.host import HostView
from clawrl_gym.envs.sandbox.interface import Limits, SandboxSpec


@pytest.fixture
def first() -> Iterator[int]:
    """The first process of a process namespace; it has a child."""
    command = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        "sleep 60 & exec sleep 60",
    ]
    with subprocess.Popen(command) as unshare:
        while not (pids := processes.children(unshare.pid)) or not processes.children(pids[0]):
            time.sleep(0.01)
        yield pids[0]
        unshare.kill()


def container_of(pid: int, process: str) -> Container:
    container = Container(ContainerSpec("image", Limits(), SandboxSpec(), False, 60.0), "ab" * 32)
    container.__dict__["_host"] = HostView(pid, process)
    return container


@pytest.mark.root
def test_all_but_the_first_process_are_killed(first: int) -> None:
    (child,) = map(processes.identity, processes.children(first))
    process = processes.identity(first)
    container_of(first, process).kill_all_but(set())
    assert (processes.alive(child), processes.alive(process)) == (False, True)


@pytest.mark.root
def test_a_number_that_has_passed_to_another_process_kills_nothing(first: int) -> None:
    """The container has ended, and the kernel gave its first process's number to a stranger."""
    before = processes.namespace_members(first)
    boot, number, start = processes.identity(first).split("-")
    with pytest.raises(SandboxError, match="container ended"):
        container_of(first, f"{boot}-{number}-{int(start) - 1}").kill_all_but(set())
    assert processes.namespace_members(first) == before
