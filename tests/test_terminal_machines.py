"""What opens a task's machine."""

import pytest

from clawrl_gym.core.errors import SandboxError, TaskError
from clawrl_gym.envs.sandbox.interface import ExecResult, FileData
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.terminal.machines import Machines, absolute_path, await_health
from clawrl_gym.envs.terminal.task import BuildStep, Health, Image, MachineSpec
from tests.terminal_fakes import MemoryOpener, MemorySandbox


def machines(**script):
    opener = MemoryOpener(script=script)
    return Machines(Sandboxes.of({}, opener)), opener


def failing(times):
    """A command that succeeds only after so many failures."""
    left = [ExecResult("not yet", 1)] * times

    def run(sandbox):
        return left.pop() if left else ExecResult("", 0)

    return run


def asked(failures, **health):
    sandbox = MemorySandbox(script={"( ready\n)": failing(failures)})
    await_health(sandbox, Health("ready", interval_s=0.001, **health), "task 't'")
    return len(sandbox.ran)


def test_a_machine_is_used_when_it_is_healthy():
    assert asked(0) == 1
    assert asked(2) == 3


def test_a_machine_that_does_not_get_well_is_given_up():
    with pytest.raises(TaskError, match=r"'t' is not healthy: 'ready' failed 3 times.*not yet"):
        asked(3)
    assert asked(3, retries=4) == 4


def test_failures_at_the_start_do_not_count():
    assert asked(20, start_period_s=60.0, start_interval_s=0.001) == 21


def test_a_machine_that_fails_is_closed():
    opened, opener = machines(broken=lambda _: ExecResult("why", 2))
    with pytest.raises(TaskError, match="task 't': 'broken' ended with exit code 2: 'why'"):
        opened.open(MachineSpec(build=(BuildStep(command="broken"),)), "task 't'")
    assert opener.opened[0].closed


def test_steps_build_a_machine_from_the_root_on():
    opened, opener = machines()
    step = BuildStep({"a": FileData(b"1"), "/b": FileData(b"2", 0o755)})
    sandbox, workdir = opened.open(MachineSpec(build=(step,), workdir="/app"), "t")
    assert (opener.asked[0]["workdir"], workdir) == ("/", "/app")
    assert sandbox.files == {"/app/a": b"1", "/b": b"2"}
    assert sandbox.ran == ["mkdir -p /app && cd /app"]


def test_an_image_needs_docker():
    opened, _ = machines()
    with pytest.raises(TaskError, match=r"needs the image.*sandbox=docker"):
        opened.open(MachineSpec(Image("debian:12")), "task 't'")


def test_a_sandbox_that_does_not_open_is_no_error_of_the_task():
    def broken(limits, **options):
        raise SandboxError("no room")

    with pytest.raises(SandboxError, match="no room"):
        Machines(Sandboxes.of({}, broken)).open(MachineSpec(), "t")


def test_relative_paths_lie_in_the_working_directory():
    assert absolute_path("/app", "a/b") == "/app/a/b"
    assert absolute_path("/", "a") == "/a"
    assert absolute_path("/app", "/a") == "/a"
