"""What opens a task's machine."""

import pytest

from clawrl_gym.core.errors import AgentFault, SandboxError, TaskError
from clawrl_gym.envs.sandbox.interface import ExecResult, FileData
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.terminal.folders.machines import (
    Machines,
    absolute_path,
    agents_doing,
    await_health,
    make_log_folders,
    must_succeed,
)
from clawrl_gym.envs.terminal.task import BuildStep, Health, Image, MachineSpec
from tests.support.terminal_fakes import MemoryOpener, MemorySandbox


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


def test_a_machine_has_the_folder_the_variables_and_the_user_of_its_task():
    opened, opener = machines()
    sandbox, workdir = opened.open(MachineSpec(workdir="/app", env={"A": "1"}), "t")
    assert (opener.asked[0]["workdir"], opener.asked[0]["env"], workdir) == (
        "/app", {"A": "1"}, "/app"
    )  # fmt: skip
    assert sandbox.ran == []
    assert opened.open(MachineSpec(workdir=None), "t")[1] == "/root"
    assert not any(one.closed for one in opener.opened)


def test_a_machine_that_is_not_well_is_closed():
    opened, opener = machines(**{"( ready\n)": lambda _: ExecResult("no", 1)})
    health = Health("ready", interval_s=0.001, retries=1)
    with pytest.raises(TaskError, match="'t' is not healthy"):
        opened.open(MachineSpec(health=health), "task 't'")
    assert opener.opened[0].closed
    well, _ = machines()
    sandbox, _ = well.open(MachineSpec(health=health), "task 't'")
    assert sandbox.ran == ["( ready\n)"]


def test_steps_are_carried_out_in_order_with_their_files():
    opened, _ = machines()
    steps = (BuildStep({"a": FileData(b"1", 0o755)}, "one"), BuildStep(command="two"))
    sandbox, _ = opened.open(MachineSpec(build=steps, workdir="/a b"), "t")
    assert sandbox.ran == ["one", "two", "mkdir -p '/a b' && cd '/a b'"]
    assert sandbox.modes == {"/a b/a": 0o755}


def test_a_command_that_ran_too_long_is_told_so_with_the_end_of_what_it_said():
    said = ExecResult("x" * 600 + " \n", None, timed_out=True)
    sandbox = MemorySandbox(script={"c" * 300: lambda _: said})
    with pytest.raises(TaskError) as refused:
        must_succeed(sandbox, "c" * 300, 1.0, "task 't'")
    assert str(refused.value).startswith(
        f"task 't': {'c' * 200!r} ran too long: {'x' * 498!r}; a sandbox has no network"
    )


def test_a_machine_works_when_a_fresh_one_answers():
    opened, opener = machines()
    assert opened.works(MachineSpec())
    assert opener.opened[0].ran == [":"]
    assert opener.opened[0].closed
    mute, opener = machines(**{":": lambda _: ExecResult("", 1)})
    assert not mute.works(MachineSpec())
    assert opener.opened[0].closed
    assert not Machines(Sandboxes.of({}, MemoryOpener(broken=True))).works(MachineSpec())


def test_whose_doing_it_is_that_a_sandbox_fails_is_told_by_a_fresh_one():
    def fail(machines):
        with agents_doing(machines, MachineSpec(), "it cannot be read"):
            raise SandboxError("it has ended")

    with pytest.raises(
        AgentFault, match=r"^it cannot be read: it has ended; a fresh sandbox works"
    ):
        fail(machines()[0])
    for judges in (None, Machines(Sandboxes.of({}, MemoryOpener(broken=True)))):
        with pytest.raises(SandboxError, match=r"^it has ended$"):
            fail(judges)
    with pytest.raises(TaskError), agents_doing(machines()[0], MachineSpec(), "x"):
        raise TaskError("of the task")


def test_log_folders_are_made_from_outside_where_the_shell_may_not():
    folders = ("/logs/agent", "/logs/verifier", "/logs/artifacts")
    command = f"mkdir -p {' '.join(folders)} 2> /dev/null"
    sandbox = MemorySandbox()
    make_log_folders(sandbox)
    assert (sandbox.ran, sandbox.files) == ([command], {})
    refused = MemorySandbox(script={command: lambda _: ExecResult("", 1)})
    make_log_folders(refused)
    assert refused.files == {f"{folder}/.keep": b"" for folder in folders}


def test_what_is_handed_over_is_at_most_a_third_of_the_disk():
    opener = MemoryOpener()
    assert Machines(Sandboxes.of({"disk_mb": 96}, opener)).artifact_bytes == 32 << 20
