"""What sandboxes give an agent that works inside: a folder that stays as it is, and one way out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clawrl_gym.config.envs import SandboxConfig
from clawrl_gym.envs.sandbox.bubblewrap import BubblewrapSandbox
from clawrl_gym.envs.sandbox.docker.sandbox import DockerSandbox
from clawrl_gym.envs.sandbox.interface import HoldsAgents, Sandbox, SandboxSpec
from tests.support.waiting import becomes_true

INSIDE = "/opt/clawrl/agent"
CONFIG = SandboxConfig(memory_mb=256, disk_mb=32, pids=48)
KINDS = [
    pytest.param(BubblewrapSandbox, id="bubblewrap", marks=pytest.mark.sandbox),
    pytest.param(DockerSandbox, id="docker", marks=[pytest.mark.docker, pytest.mark.root]),
]


@pytest.fixture(params=KINDS)
def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sandbox]:
    (tmp_path / "tool").write_text("as it was")
    spec = SandboxSpec(agent_mounts={INSIDE: str(tmp_path)})
    opened = request.param.from_config(CONFIG, spec)
    try:
        yield opened
    finally:
        opened.close()


def send(sandbox: Sandbox, port: int, text: str) -> int | None:
    """The exit code of sending a text to a port of the loopback inside."""
    return sandbox.exec(f"echo {text} >/dev/tcp/127.0.0.1/{port}", 10).exit_code


def test_the_kind_says_that_it_holds_agents(sandbox: Sandbox) -> None:
    assert type(sandbox).capabilities.agents  # type: ignore[attr-defined]
    assert isinstance(sandbox, HoldsAgents)


def test_the_folder_is_shown_and_cannot_be_changed(sandbox: Sandbox, tmp_path: Path) -> None:
    assert sandbox.exec(f"cat {INSIDE}/tool", 5).output == "as it was"
    for command in (f"echo x >{INSIDE}/tool", f"touch {INSIDE}/new", f"rm -f {INSIDE}/tool"):
        assert sandbox.exec(command, 5).exit_code != 0, command
    assert [path.name for path in tmp_path.iterdir()] == ["tool"]
    assert (tmp_path / "tool").read_text() == "as it was"


def test_what_connects_inside_is_accepted_outside(sandbox: Sandbox) -> None:
    assert isinstance(sandbox, HoldsAgents)
    with sandbox.listen() as listener:
        listener.settimeout(20)
        port = listener.getsockname()[1]
        assert send(sandbox, port, "hello") == 0
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(10) == b"hello\n"
    assert becomes_true(lambda: send(sandbox, port, "hello") != 0)  # who made it may end later


def test_the_next_sandbox_has_the_files_and_a_way_out_of_its_own(sandbox: Sandbox) -> None:
    assert isinstance(sandbox, HoldsAgents)
    sandbox.exec("echo kept >/root/work", 5)
    with sandbox.listen() as old:
        port = old.getsockname()[1]
        fresh = sandbox.successor()
        try:
            assert fresh.exec(f"cat /root/work {INSIDE}/tool", 5).output == "kept\nas it was"
            assert send(fresh, port, "hello") != 0
            with fresh.listen() as listener:
                assert send(fresh, listener.getsockname()[1], "hello") == 0
        finally:
            fresh.close()
