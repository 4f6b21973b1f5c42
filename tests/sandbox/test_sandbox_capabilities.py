"""What a kind of sandbox declares that it can do, and what is refused for want of it."""

import json
from pathlib import Path

import pytest

import clawrl_gym as cg
from clawrl_gym import train
from clawrl_gym.config import SandboxConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.plugins import SANDBOXES
from clawrl_gym.envs.sandbox.interface import SandboxCapabilities, SandboxSpec
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.swe.config import SweEnvConfig
from clawrl_gym.envs.swe.env import SweEnv
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.envs.terminal.env import TerminalEnv
from clawrl_gym.envs.terminal.folders.machine_request import MachineRequest, SandboxFeatures
from clawrl_gym.envs.terminal.folders.task_folder import TaskFolder
from clawrl_gym.envs.terminal.source import open_source
from tests.support.terminal_fakes import MemoryOpener

PLAIN = "tests.sandbox.own_sandbox:FolderSandbox"
LISTING = "tests.sandbox.own_sandbox:ListingSandbox"


def played(kind: str, **options: object) -> float:
    """The reward of the oracle on the first training task."""
    env = TerminalEnv(**TerminalEnvConfig.of({"sandbox": {"type": kind}, **options}).options())
    try:
        env.reset(options={"task": env.task_ids("train")[0]})
        for action in env.solve():
            _, reward, terminated, _, _ = env.step(action)
            if terminated:
                return float(reward)
        return float(env.step("submit")[1])
    finally:
        env.close()


def test_an_environment_plays_in_a_sandbox_of_somebody_elses() -> None:
    assert played(PLAIN, families=["append"]) == 1.0
    assert played(LISTING, families=["append"]) == 1.0


def test_a_listing_sandbox_of_somebody_elses_has_tasks_that_refuse_side_effects() -> None:
    env = TerminalEnv(sandbox={"type": LISTING}, tasks="plain")
    task = env.task_ids("train")[0]
    for action, reward in ((env.solve, 1.0), (lambda: ["touch one_more"], 0.0)):
        env.reset(options={"task": task})
        for command in action():
            env.step(command)
        assert env.step("submit")[1] == reward
    env.close()


@pytest.mark.parametrize("tasks", ["plain", "composed"])
def test_what_a_kind_does_not_declare_is_refused_before_anything_starts(
    tasks: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train.main([f"env.tasks={tasks}", f"sandbox={PLAIN}", "dry_run=true"]) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert (
        f"got env.sandbox.type={PLAIN}, which has no lists_files (tasks of env.tasks={tasks} "
        "refuse side effects), expected a sandbox that has: bubblewrap, docker, or a class of"
    ) in printed
    assert printed.count("lists_files") == 1


def test_a_library_user_is_refused_as_well() -> None:
    with pytest.raises(ConfigError, match="which has no lists_files"):
        TerminalEnv(sandbox={"type": PLAIN}, tasks="plain")
    TerminalEnv(sandbox={"type": PLAIN}, tasks="plain", open_sandbox=MemoryOpener())
    TerminalEnv(sandbox={"type": PLAIN})


@pytest.mark.parametrize("kind", ["bubblewrap", PLAIN])
def test_instances_that_live_in_images_are_refused_where_there_are_none(
    kind: str, tmp_path: Path
) -> None:
    row = {
        "instance_id": "a__b-1", "repo": "a/b", "base_commit": "0" * 40, "patch": "x",
        "test_patch": "", "problem_statement": "It breaks.", "version": "1",
        "FAIL_TO_PASS": ["t"], "PASS_TO_PASS": [], "log_parser": "parse_log_pytest",
        "eval_script": "echo '>>>>> Start Test Output'; pytest; echo '>>>>> End Test Output'",
    }  # fmt: skip
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row))
    options = {"instances": str(file), "sandbox": {"type": kind}}
    config = SweEnvConfig.of(options)
    message = f"got env.sandbox.type={kind}, which has no images .instances of data sets"
    with pytest.raises(ConfigError, match=message):
        config.check_sandbox()
    with pytest.raises(ConfigError, match=message + ".* that has: docker, or a class"):
        SweEnv(**config.options())
    SweEnvConfig.of({"instances": "easy", "sandbox": {"type": kind}}).check_sandbox()


def test_a_declaration_that_cannot_be_is_told_with_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"declares the capability lists_files without .* tree"):
        SANDBOXES.resolve("tests.sandbox.own_sandbox:BoastingSandbox")
    with pytest.raises(ConfigError, match=r"capabilities are \('lists_files',\), expected a Sand"):
        SANDBOXES.resolve("tests.sandbox.own_sandbox:WordySandbox")


def test_what_the_shipped_kinds_declare() -> None:
    declared = {name: SANDBOXES.capabilities_of(name) for name in SANDBOXES.builtin}
    assert declared == {
        "bubblewrap": SandboxCapabilities(
            mounts=True, agents=True, lists_files=True, pooled=True
        ),
        "docker": SandboxCapabilities(
            images=True, users=True, network=True, agents=True, lists_files=True, pooled=True,
            node_resource="docker",
        ),
    }  # fmt: skip
    assert SANDBOXES.capabilities_of(PLAIN) == SandboxCapabilities()


@pytest.mark.parametrize(("kind", "resource"), [(PLAIN, "sandbox"), (LISTING, None)])
def test_a_node_must_have_what_a_kind_declares(kind: str, resource: str | None) -> None:
    assert TerminalEnvConfig.of({"sandbox": {"type": kind}}).node_resource == resource


@pytest.mark.parametrize(("kind", "ready"), [(PLAIN, 0), (LISTING, 3), ("bubblewrap", 3)])
def test_only_what_can_be_started_ahead_stands_ready(kind: str, ready: int) -> None:
    sandboxes = Sandboxes.of(SandboxConfig(type=kind, ready=3))
    assert sandboxes._template(SandboxSpec()).most == ready


def test_what_is_known_of_a_verifier_is_found_under_the_names_of_earlier_versions() -> None:
    assert SandboxFeatures(sandboxes="auto None None").key == (
        "SandboxFeatures(docker=False, rootfs=False, network=False, verifier='auto', "
        "only_trusted=False, sandboxes='auto None None')"
    )


def test_a_user_of_its_own_is_refused_where_images_have_none(tmp_path: Path) -> None:
    request = MachineRequest("environment", image="some/image", user="nobody")
    with pytest.raises(cg.TaskError, match="asks for a user of its own 'nobody'"):
        SandboxFeatures(images=True).machine(TaskFolder(tmp_path), request)
    made = SandboxFeatures(images=True, users=True).machine(TaskFolder(tmp_path), request)
    assert made.user == "nobody"


def test_the_shipped_sources_of_other_tasks_need_nothing() -> None:
    config = TerminalEnvConfig.of({"sandbox": {"type": PLAIN}})
    config.check_sandbox()
    assert open_source(config).ids("train")
