"""What is done to a container past the engine: on the machine where it runs, without asking."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox import processes
from clawrl_gym.envs.sandbox.docker.changes import LayerChanges
from clawrl_gym.envs.sandbox.docker.container import Container, ContainerSpec
from clawrl_gym.envs.sandbox.docker.host import HostView
from clawrl_gym.envs.sandbox.interface import Limits, SandboxSpec
from tests.support.fake_engine import without_engines


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


def container_of(host: HostView) -> Container:
    container = Container(ContainerSpec("image", Limits(), SandboxSpec(), False, 60.0), "ab" * 32)
    container.__dict__["_host"] = host
    return container


@pytest.mark.root
def test_all_but_the_first_process_are_killed(first: int) -> None:
    (child,) = map(processes.identity, processes.children(first))
    process = processes.identity(first)
    container_of(HostView(first, process)).kill_all_but(set())
    assert (processes.alive(child), processes.alive(process)) == (False, True)


@pytest.mark.root
def test_a_number_that_has_passed_to_another_process_kills_nothing(first: int) -> None:
    """The container has ended, and the kernel gave its first process's number to a stranger."""
    before = processes.namespace_members(first)
    boot, number, start = processes.identity(first).split("-")
    with pytest.raises(SandboxError, match="container ended"):
        container_of(HostView(first, f"{boot}-{number}-{int(start) - 1}")).kill_all_but(set())
    assert processes.namespace_members(first) == before


@pytest.mark.root
@pytest.mark.parametrize(
    ("path", "attribute"),
    [("app/lib", "redirect"), ("app/run.sh", "metacopy"), ("usr", "redirect")],
)
def test_a_layer_that_leaves_content_in_the_image_is_asked_of_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, attribute: str
) -> None:
    """As kernels leave it with overlay's redirect_dir and metacopy: folders would come empty, files
    as zeros."""
    without_engines(tmp_path, monkeypatch)
    layer = tmp_path / "layer"
    for folder in ("app/lib", "usr/local"):
        (layer / folder).mkdir(parents=True)
    (layer / "app/run.sh").write_bytes(bytes(8))
    host = HostView(layer=str(layer))
    assert isinstance(container_of(host).changes(), LayerChanges)
    os.setxattr(layer / path, f"trusted.overlay.{attribute}", b"")
    with pytest.raises(SandboxError, match="no Docker engine answers"):
        container_of(host).changes()
