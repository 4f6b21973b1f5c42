"""A grader that fails is the environment's error; keys of text tasks."""

import math

import numpy as np
import pytest

from clawrl_gym.core.errors import ConfigError, EnvError
from clawrl_gym.envs.report import Grade
from clawrl_gym.envs.text.config import TextEnvConfig
from clawrl_gym.envs.text.env import SingleReplyEnv
from clawrl_gym.envs.text.task import TextTask, graded


class Gives:
    """A grader that returns one thing."""

    name = "mine"

    def __init__(self, reward):
        self.reward = reward

    def grade(self, reply):
        if isinstance(self.reward, Exception):
            raise self.reward
        return Grade(self.reward, "")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "returned None"),
        (math.nan, "returned nan"),
        (math.inf, "returned inf"),
        (10**400, "returned 1000"),
        ("1.0", "returned '1.0'"),
        ([1.0], r"returned \[1.0\]"),
        (ValueError("no"), "raised ValueError: no"),
        (KeyError("x"), "raised KeyError: 'x'"),
        (RecursionError(), "raised RecursionError"),
    ],
)
def test_a_grader_that_fails_is_one_error_that_names_it_and_the_task(given, message):
    task = TextTask("t-1", "f", "train", "Say it.", Gives(given))
    with pytest.raises(EnvError, match=rf"grader 'mine' of task 't-1' {message}.*expected a"):
        graded(task, "it")


@pytest.mark.parametrize("given", [1, 0.5, -3, True, np.float32(0.5), np.array(0.25)])
def test_any_finite_number_is_a_reward(given):
    task = TextTask("t-1", "f", "train", "Say it.", Gives(given))
    assert graded(task, "it").reward == float(given)


@pytest.mark.parametrize("tasks", ["length", "format", "reverse_text"])
def test_the_example_of_a_ground_never_solves_the_task_itself(tasks):
    env = SingleReplyEnv(tasks=tasks, example=True)
    for split in ("train", "heldout"):
        for task_id in env.task_ids(split)[:60]:
            prompt, info = env.reset(options={"task": task_id})
            shown = str(info["system"]).partition("Request: ")[2].partition("\nReply: ")
            assert shown[0] != prompt
            assert shown[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": "my.jsonl"}, "got env.tasks='my.jsonl', expected .* env=dataset env.data=FILE"),
        ({"tasks": "format", "lengths": [20]}, "env.lengths with env.tasks='format'"),
        ({"tasks": "length", "families": ["x"]}, "env.families with env.tasks='length'"),
        ({"tasks": "length", "max_turns": 2}, "max_turns"),
    ],
)
def test_keys_that_do_not_belong_together_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        SingleReplyEnv(**options)


def test_an_episode_that_ends_without_a_reply_is_graded_as_an_empty_one():
    env = SingleReplyEnv(tasks="length")
    env.reset(options={"task": "length-about_30-train-000000"})
    assert env.finish() == -3.0
    assert env.finish() == 0.0, "once"
    with pytest.raises(EnvError, match="expected reset"):
        env.step("x")


def test_the_configuration_finds_ids_and_traits_without_an_episode():
    config = TextEnvConfig.of({"tasks": "format"})
    assert config.traits()(config.task_ids("train")[1]).family == "json"
