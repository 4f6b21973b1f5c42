"""The SWE environment on the shipped corpus: what is shown, submitted, graded and hidden."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from clawrl_gym.core.errors import ConfigError, EnvError, TaskError
from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
from clawrl_gym.envs.sandbox.interface import ExecResult, Limits
from clawrl_gym.envs.showcase.swe.corpus import make_instance
from clawrl_gym.envs.swe.config import SweEnvConfig
from clawrl_gym.envs.swe.env import SweEnv, submission_of
from clawrl_gym.envs.swe.rows.instance import SUBMIT_MARK
from clawrl_gym.envs.swe.rows.runners import missing_runners

TASK = "swe-operator-train-000000"
SANDBOX = {"type": "bubblewrap", "memory_mb": 512, "disk_mb": 256, "pids": 64}
SUBMIT = f"echo {SUBMIT_MARK}"
sandboxed = pytest.mark.sandbox


@pytest.fixture
def env() -> Iterator[SweEnv]:
    one = SweEnv(sandbox=SANDBOX, command_timeout_s=20.0, max_turns=6)
    yield one
    one.close()


def begin(env: SweEnv, task: str = TASK) -> str:
    observation, _ = env.reset(options={"task": task})
    return observation


def edit(env: SweEnv) -> str:
    """The command that mends the instance, as an agent would type it."""
    patch = make_instance(TASK).patch
    old = next(line[1:].strip() for line in patch.splitlines() if line.startswith("-  "))
    new = next(line[1:].strip() for line in patch.splitlines() if line.startswith("+  "))
    path = next(line[6:] for line in patch.splitlines() if line.startswith("+++ b/"))
    return f"sed -i 's/{old.replace('*', chr(92) + '*')}/{new}/' {path}"


@sandboxed
def test_the_issue_is_the_first_observation_and_info_has_constant_types(env: SweEnv) -> None:
    observation, info = env.reset(options={"task": TASK})
    instance = make_instance(TASK)
    assert observation == instance.problem_statement.strip()
    assert info == {
        "task": TASK, "family": "operator", "split": "train", "tools": [],
        "next_state_role": "user", "report": "", "error": None,
        "returncode": 0, "output": "", "exception": "", "scores": {"trusted": 0.0},
        "difficulty": 1,
    }  # fmt: skip
    after = env.step("echo x; exit 3")[-1]
    assert {name: type(value) for name, value in after.items()} == {
        name: type(value) for name, value in info.items()
    }
    assert (after["returncode"], after["output"]) == (3, "x\n")


@sandboxed
def test_an_edit_and_a_submission_solve_it(env: SweEnv) -> None:
    begin(env)
    assert env.step(edit(env))[:4] == (
        "<returncode>0</returncode>\n<output>\n</output>", 0.0, False, False
    )  # fmt: skip
    observation, reward, terminated, truncated, info = env.step(SUBMIT)
    assert (observation, reward, terminated, truncated) == ("(submitted)", 1.0, True, False)
    assert info["report"] == "Test report: passed"
    assert info["scores"] == {"trusted": 1.0}


@sandboxed
def test_the_oracle_solves_it_and_doing_nothing_does_not(env: SweEnv) -> None:
    begin(env)
    rewards = [env.step(action)[1] for action in env.solve()]
    assert rewards[-1] == 1.0
    begin(env)
    assert env.finish() == 0.0
    assert env.report == "Test report: failed\n- the patch is empty"


@sandboxed
def test_a_wrong_change_is_graded_and_the_report_names_the_tests(env: SweEnv) -> None:
    begin(env)
    env.step("sed -i 's/return .*/return 12345/' *.py")
    _, reward, _, _, info = env.step(SUBMIT)
    assert reward == 0.0
    assert str(info["report"]).startswith("Test report: failed\n- ")


@sandboxed
def test_what_follows_the_mark_is_the_patch(env: SweEnv) -> None:
    begin(env)
    patch = make_instance(TASK).patch
    command = f"cat <<'EOF'\n{SUBMIT_MARK}\n{patch}\nEOF"
    assert env.step(command)[1:3] == (1.0, True)


@sandboxed
@pytest.mark.parametrize(
    "command", [f"{SUBMIT}; false", f"echo first; {SUBMIT}", f"printf %s {SUBMIT_MARK}x"]
)
def test_a_mark_that_is_not_the_first_line_of_a_success_submits_nothing(
    env: SweEnv, command: str
) -> None:
    begin(env)
    assert env.step(command)[1:4] == (0.0, False, False)


@sandboxed
def test_the_turn_budget_grades_what_was_changed(env: SweEnv) -> None:
    begin(env)
    env.step(edit(env))
    steps = [env.step("true")[1:4] for _ in range(5)]
    assert steps == [(0.0, False, False)] * 4 + [(1.0, False, True)]


@sandboxed
def test_directory_and_variables_do_not_last_but_files_do(env: SweEnv) -> None:
    begin(env)
    env.step("cd /tmp; export A=1; touch made; alias ls=false; exit 0")
    assert env.step("pwd; echo [$A]; ls /tmp/made")[0] == (
        "<returncode>0</returncode>\n<output>\n/testbed\n[]\n/tmp/made\n</output>"
    )


@sandboxed
def test_a_command_that_runs_too_long_is_stopped_and_the_episode_goes_on() -> None:
    env = SweEnv(sandbox=SANDBOX, command_timeout_s=1.0)
    begin(env)
    observation = env.step("echo a; sleep 60")[0]
    assert observation.startswith("<exception>stopped: it ran longer than 1 s</exception>")
    assert "<returncode>-1</returncode>\n<output>\na\n</output>" in observation
    assert env.step("echo on")[0].endswith("on\n</output>")
    env.close()


@sandboxed
@pytest.mark.parametrize(
    "command", ["kill -9 $PPID", "rm -rf /testbed; cd /", "", "'", "if", "\0", "echo \udc80 é"]
)
def test_no_command_is_illegal(env: SweEnv, command: str) -> None:
    begin(env)
    observation, reward, *ends = env.step(command)
    assert "<returncode>" in observation
    assert (reward, *ends[:2]) == (0.0, False, False)
    env.step("true")
    assert env.finish() == 0.0


@sandboxed
def test_git_that_is_gone_is_the_agents_doing_and_earns_nothing(env: SweEnv) -> None:
    begin(env)
    env.step(edit(env) + "; rm -rf .git")
    _, reward, _, _, info = env.step(SUBMIT)
    assert reward == 0.0
    assert "git could not tell what was changed" in str(info["report"])


@sandboxed
@pytest.mark.parametrize(
    "trick",
    [
        "head -c 9000000 /dev/zero > $d/patch",
        "rm $d/patch; mkfifo $d/patch",
        "rm $d/patch; mkdir $d/patch",
        "rm $d/patch; ln -s patch $d/patch",
    ],
)
def test_a_patch_that_was_made_unreadable_earns_nothing(env: SweEnv, trick: str) -> None:
    """The failure of a sandbox is retried: an agent must not be able to ask for one."""
    begin(env)
    script = f"#!/bin/sh\nfor d in /tmp/tmp.*; do {trick}; done; echo 10\n"
    env.step(f"printf '{script}' > /usr/local/bin/wc; chmod +x /usr/local/bin/wc")
    _, reward, _, _, info = env.step(SUBMIT)
    assert reward == 0.0
    assert "cannot be read" in str(info["report"])


@sandboxed
@pytest.mark.parametrize(
    ("task", "path", "code"),
    [
        ("swe-constant-train-000001", "island.py", "import unittest\n"
         "unittest.TestCase.assertEqual = lambda *_: None"),
        ("swe-constant-train-000001", "island.py", "import os\n"
         "os.write(2, b'poppy is 94 ... ok\\nthe others stay ... ok\\n')\nos._exit(0)"),
        ("swe-compare-train-000001", "saddle.js", "require('node:assert').ok = () => {};"),
        ("swe-compare-train-000001", "saddle.js", "console.log('ok 1 - elder of the number itself"
         "\\nok 2 - gamma of more\\nok 3 - elder of less'); process.exit(0);"),
    ],
)  # fmt: skip
def test_a_patch_that_changes_what_testing_means_earns_nothing(
    env: SweEnv, task: str, path: str, code: str
) -> None:
    begin(env, task)
    assert env.step(f"cat >> {path} <<'END'\n{code}\nEND")[-1]["returncode"] == 0
    _, reward, _, _, info = env.step(SUBMIT)
    assert reward == 0.0
    assert "does not follow from what it expects" in str(info["report"])


@sandboxed
def test_what_an_agent_does_to_git_does_not_change_its_patch(env: SweEnv) -> None:
    begin(env)
    env.step(
        f"{edit(env)}; git config core.fsmonitor 'touch /tmp/ran'; git config diff.noprefix true; "
        "git config diff.external false; git config filter.x.clean 'echo gone'; "
        "echo '* filter=x' > .git/info/attributes; echo '*' > .git/info/exclude; "
        "git commit -qam done; git update-index --assume-unchanged *.py; "
        "printf '[core]\\n fsmonitor = touch /tmp/ran\\n' > ~/.gitconfig; "
        "printf 'a\\0b' > picture.bin; mkdir -p __pycache__; touch __pycache__/x.pyc"
    )
    assert env.step(SUBMIT)[1] == 1.0


@sandboxed
def test_s23_nothing_in_the_sandbox_gives_the_solution_away(env: SweEnv) -> None:
    begin(env)
    instance = make_instance(TASK)
    seen = env.step(
        "git log --all --format=%s; git reflog | wc -l; git remote; git stash list; "
        "git status --short; ls -A / /tmp /root; env; cat $(git ls-files)"
    )[0]
    added = [line[1:].strip() for line in instance.patch.splitlines() if line.startswith("+  ")]
    assert added
    assert not any(line in seen for line in added)
    assert "the repository" in seen


@sandboxed
def test_the_same_instance_is_the_same_commit_every_time(env: SweEnv) -> None:
    commits = []
    for _ in range(2):
        begin(env)
        commits.append(env.step("git rev-parse HEAD")[0])
    assert commits[0] == commits[1]


@sandboxed
def test_s12_a_grade_that_cannot_be_made_is_an_error_and_never_a_reward() -> None:
    """S12 (SWE-RL): an evaluator that failed became the reward -1 and was trained on."""
    from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox

    opened: list[Any] = []

    def once(limits: Any, **options: Any) -> Any:
        if opened:
            raise OSError("no more sandboxes")
        opened.append(open_sandbox(limits, **options))
        return opened[0]

    env = SweEnv(sandbox=SANDBOX, open_sandbox=once)
    begin(env)
    env.step(edit(env))
    with pytest.raises(EnvError, match="no more sandboxes"):
        env.step(SUBMIT)
    assert env.report == ""
    env.close()


@sandboxed
def test_a_sandbox_that_is_gone_is_an_error(env: SweEnv) -> None:
    begin(env)
    env.close()
    with pytest.raises(EnvError, match=r"expected reset\(\) first"):
        env.step("ls")
    assert env.finish() == 0.0


@pytest.mark.parametrize(
    ("options", "told"),
    [({"max_turns": 0}, "env.max_turns: got 0"), ({"render_mode": "human"}, "expected None or"),
     ({"instance": "x"}, "did you mean 'env.instances'"),
     ({"sandbox": {"size": 1}}, "key 'env.sandbox.size'")],
)  # fmt: skip
def test_options_that_cannot_be_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        SweEnv(**{"sandbox": SANDBOX, **options})


@pytest.mark.parametrize("options", [{"task": "nobody"}, {"task": "swe-operator-train-x"}])
def test_an_unknown_instance_is_a_task_error(env: SweEnv, options: dict[str, str]) -> None:
    with pytest.raises(TaskError):
        env.reset(options=options)


@pytest.mark.parametrize("options", [{"tasks": TASK}, {"split": "test"}])
def test_reset_options_that_cannot_be_are_refused(env: SweEnv, options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="got reset options"):
        env.reset(options=options)


def test_an_instance_that_lives_in_an_image_needs_docker(env: SweEnv) -> None:
    from dataclasses import replace

    from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
    from clawrl_gym.envs.swe.rows.repository import open_repository

    instance = replace(make_instance(TASK), image="some/image")
    with pytest.raises(TaskError, match="use sandbox=docker"):
        open_repository(instance, Sandboxes.of(SANDBOX), 10.0)
    bare = replace(make_instance(TASK), files={})
    with pytest.raises(TaskError, match="neither an image nor files"):
        open_repository(bare, Sandboxes.of(SANDBOX), 10.0)


@sandboxed
def test_tasks_are_listed() -> None:
    options = {"instances": "corpus", "families": ["operator"], "sandbox": SANDBOX}
    config = SweEnvConfig.of(options)
    assert config.task_ids("train")[0] == TASK
    assert not set(config.task_ids("heldout")[:9]) & set(config.task_ids("train"))


@sandboxed
def test_programs_that_a_family_needs_and_the_machine_lacks_are_told() -> None:
    sandbox = open_sandbox(Limits(pids=64))
    try:
        sandbox.exec("rm -f $(command -v node ruby)", 20.0)
        lacking = missing_runners(["unittest", "node", "minitest"], sandbox)
    finally:
        sandbox.close()
    assert lacking == {
        "node": "node: node: command not found",
        "minitest": "minitest: ruby: command not found",
    }


def test_the_environment_is_made_from_its_configuration() -> None:

    env = SweEnvConfig(families=["operator"]).make()
    assert isinstance(env.unwrapped, SweEnv)
    assert env.unwrapped.task_ids("train")[0] == TASK


@pytest.mark.parametrize(
    ("output", "code", "submitted"),
    [(SUBMIT_MARK, 0, ""), (f"\n {SUBMIT_MARK} \n\n", 0, ""), (f"{SUBMIT_MARK}\nx", 0, "x"),
     (SUBMIT_MARK, 1, None), (SUBMIT_MARK, None, None),
     (f"x\n{SUBMIT_MARK}", 0, None), ("", 0, None)],
)  # fmt: skip
def test_what_submits(output: str, code: int | None, submitted: str | None) -> None:
    assert submission_of(ExecResult(output, code)) == submitted


def test_a_patch_that_was_cut_is_not_taken() -> None:
    assert submission_of(ExecResult(f"{SUBMIT_MARK}\ndiff", 0, truncated=True)) == ""


@pytest.mark.docker
def test_an_instance_is_solved_in_docker_too() -> None:
    env = SweEnv(families=["operator"], command_timeout_s=60.0)
    SweEnv.prepare(SweEnvConfig.of({}), lambda _: None)
    begin(env)
    rewards = [env.step(action)[1] for action in env.solve()]
    assert (rewards[-1], env.report) == (1.0, "Test report: passed")
    begin(env)
    assert env.finish() == 0.0
    env.close()


LATER = """
git init -q -b main && git config user.name a && git config user.email a@b &&
echo 'return 1' > a.py && git add . && git commit -qm base && git tag v1 &&
git checkout -qb fix && echo 'return 2' > a.py && git commit -qam 'the fix' && git tag v2 &&
git checkout -q main && git merge -q fix && git reset -q --hard v1 &&
git remote add origin /nowhere && echo dirty > local.txt
"""


@sandboxed
def test_s23_later_history_of_an_image_is_forgotten_and_earlier_tags_stay() -> None:
    """S23: `git log --all`, the reflog and packed objects after the base held the gold patch."""
    from clawrl_gym.envs.sandbox.interface import SandboxSpec
    from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
    from clawrl_gym.envs.swe.rows.repository import Repository, adopt, read_changes

    instance = make_instance(TASK)
    with Sandboxes.of(SANDBOX).open(SandboxSpec("/testbed")) as sandbox:  # type: ignore[attr-defined]
        assert sandbox.exec(LATER, 20.0).exit_code == 0
        fix = sandbox.exec("git rev-parse fix", 5.0).output.strip()
        base = adopt(instance, sandbox, 30.0, keep_history=False)
        seen = sandbox.exec("git log --all --format=%s; git reflog; git tag; git remote", 5.0)
        assert seen.output.split() == ["base", "v1"]
        assert sandbox.exec(f"git cat-file -e {fix}", 5.0).exit_code != 0
        repository = Repository(sandbox, base)
        assert read_changes(repository, "/testbed", 20.0).patch == ""
        sandbox.exec("echo 'return 2' > a.py", 5.0)
        assert "+return 2" in read_changes(repository, "/testbed", 20.0).patch
        assert "dirty" not in read_changes(repository, "/testbed", 20.0).patch
