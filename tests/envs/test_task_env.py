"""The base of environments with tasks, as somebody extends it."""

from dataclasses import dataclass

import pytest
from gymnasium.utils.env_checker import check_env

from clawrl_gym.core.errors import ConfigError, EnvError, TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.task_env import TaskEnv

GIVEN = {"train": ("one", "two"), "heldout": ()}


@dataclass(frozen=True)
class Word:
    id: str
    family: str = "words"
    split: Split = "train"


class Words:
    def ids(self, split):
        return GIVEN[split]

    def load(self, task_id):
        if task_id not in GIVEN["train"]:
            raise TaskError(f"there is no {task_id!r}")
        return Word(task_id)


class Slate:
    def __init__(self):
        self.said = []
        self.closed = 0

    def close(self):
        self.closed += 1


class SayEnv(TaskEnv[Word, Slate]):
    """Say the word."""

    def __init__(self, max_turns=3, render_mode=None, patience_s=1.0):
        super().__init__(max_turns, render_mode, patience_s=patience_s)
        self._source = Words()
        self.slates = []

    def _request(self, task):
        return f"say {task.id}"

    def _open(self, task):
        self.slates.append(Slate())
        return self.slates[-1]

    def _act(self, task, held, action):
        if action == "break":
            raise OSError("the slate broke")
        held.said.append(action)
        return "heard", action == task.id

    def _grade(self, task, held):
        if "ungraded" in held.said:
            raise OSError("no chalk")
        right = held.said[-1:] == [task.id]
        return (1.0, "Test report: passed") if right else (0.0, "Test report: failed")


def test_four_hooks_make_an_environment():
    env = SayEnv(render_mode="ansi")
    check_env(env, skip_render_check=True)
    observation, info = env.reset(options={"task": "two"})
    assert (observation, info["task"], info["report"]) == ("say two", "two", "")
    assert env.step("one")[1:4] == (0.0, False, False)
    *ended, info = env.step("two")
    assert ended == ["heard", 1.0, True, False]
    assert info["report"] == env.report == "Test report: passed"
    assert (env.render() or "").splitlines()[-2:] == ["assistant: two", "user: heard"]


def test_the_turns_run_out_and_what_is_there_is_graded():
    env = SayEnv(max_turns=1)
    env.reset(seed=1)
    assert env.step("nothing")[1:4] == (0.0, False, True)
    assert env.report == "Test report: failed"


def test_what_is_held_is_closed_at_every_end_and_nothing_goes_on_after_it():
    env = SayEnv()
    assert env.finish() == 0.0
    env.reset(options={"task": "one"})
    env.reset(options={"task": "one"})
    env.step("one")
    env.reset(options={"task": "one"})
    assert env.finish() == 0.0
    env.reset(options={"task": "one"})
    env.close()
    assert all(slate.closed >= 1 for slate in env.slates)
    with pytest.raises(EnvError, match=r"got step\(\) outside an episode"):
        env.step("one")


def test_what_fails_is_an_error_of_the_environment_and_no_reward():
    env = SayEnv()
    env.reset(options={"task": "one"})
    with pytest.raises(EnvError, match="task 'one': OSError: the slate broke"):
        env.step("break")
    env.step("ungraded")
    with pytest.raises(EnvError, match="no chalk"):
        env.finish()
    assert env.slates[-1].closed
    assert env.report == ""


@pytest.mark.parametrize("options", [{"max_turns": 0}, {"patience_s": 0.0}, {"render_mode": "rgb"}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError, match=f"{next(iter(options))}="):
        SayEnv(**options)


def test_a_task_that_cannot_be_had_is_refused():
    env = SayEnv()
    for options, error in (
        ({"task": "three"}, TaskError),
        ({"split": "heldout"}, TaskError),
        ({"split": "dev"}, ConfigError),
        ({"seed": 1}, ConfigError),
    ):
        with pytest.raises(error):
            env.reset(options=options)
