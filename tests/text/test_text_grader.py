"""A grader that fails is the environment's error; prompts and reward functions of one's own."""

import json
import math
import sys
import textwrap

import numpy as np
import pytest

from clawrl_gym.core.errors import ConfigError, EnvError, TaskError
from clawrl_gym.envs.report import Grade
from clawrl_gym.envs.text.config import TextEnvConfig
from clawrl_gym.envs.text.env import SingleReplyEnv
from clawrl_gym.envs.text.task import TextTask, graded

ROWS = [
    {"prompt": "What is 17 * 23?", "answer": "391", "split": "train", "solution": "391"},
    {"prompt": "What is 2 + 2?", "answer": "4", "split": "train", "solution": "It is 4."},
    {"id": "sum", "family": "sums", "prompt": "What is 1 + 1?", "answer": "2", "split": "heldout"},
]
FUNCTIONS = """
    import asyncio

    def right(prompts, completions, answer, **columns):
        return [float(a in text) for text, a in zip(completions, answer)]

    def chat(prompts, completions, **columns):
        assert prompts[0][-1]["role"] == "user", prompts
        return [float(completion[0]["content"] == "hello") for completion in completions]

    def raises(prompts, completions, **columns):
        raise KeyError("no such key")

    def gives(prompts, completions, gift, **columns):
        return [float(gift[0]) if isinstance(gift[0], str) else gift[0]]

    def gives_no_list(prompts, completions, **columns):
        return None

    def gives_two(prompts, completions, **columns):
        return [1.0, 1.0]

    def needs_more(prompts, completions, label):
        return [1.0]

    async def waits(prompts, completions, **columns):
        return [1.0]

    thing = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Makes an environment of rows in a file and a function of `my_rewards`."""
    (tmp_path / "my_rewards.py").write_text(textwrap.dedent(FUNCTIONS))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield lambda function="right", rows=ROWS, **options: SingleReplyEnv(
        tasks=str(write(tmp_path / "prompts.jsonl", rows)),
        grader=f"my_rewards:{function}",
        **options,
    )
    sys.modules.pop("my_rewards", None)


def write(path, rows):
    path.write_text(
        "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    )
    return path


def played(env, task, reply):
    env.reset(options={"task": task})
    return env.step(reply)


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


def test_a_reward_function_grades_the_prompts_of_a_file(own):
    env = own()
    assert env.task_ids("train") == ["line-1", "line-2"]
    assert env.reset(options={"task": "sum"})[0] == "What is 1 + 1?"
    _, reward, terminated, _, info = env.step("That is 2.")
    assert (reward, terminated, info["family"], info["report"]) == (
        1.0, True, "sums", "Test report: passed",
    )  # fmt: skip
    assert played(env, "line-1", "392")[1] == 0.0
    assert "the grader gave 0.0" in env.report
    env.reset(options={"task": "line-1"})
    assert env.solve() == ("391",)
    assert env.finish() == 0.0, "nothing was said"


def test_a_prompt_of_messages_is_graded_as_a_chat(own):
    system = {"role": "system", "content": "Be short."}
    user = {"role": "user", "content": "Greet me."}
    env = own("chat", [{"prompt": [system, user], "split": "train"}])
    observation, info = env.reset(options={"task": "line-1"})
    assert (observation, info["system"]) == ("Greet me.", "Be short.")
    assert env.step("hello")[1] == 1.0


@pytest.mark.parametrize(
    ("function", "rows", "message"),
    [
        ("raises", ROWS, "raised KeyError: 'no such key'"),
        ("gives", [{"prompt": "x", "gift": None, "split": "train"}], "returned None"),
        ("gives", [{"prompt": "x", "gift": "nan", "split": "train"}], "returned nan"),
        ("gives_no_list", ROWS, "raised TypeError: got None, expected a list of one reward"),
        ("gives_two", ROWS, r"raised TypeError: got \[1.0, 1.0\], expected a list of one reward"),
    ],
)
def test_a_reward_function_that_fails_gives_no_reward(own, function, rows, message):
    env = own(function, rows)
    env.reset(options={"task": "line-1"})
    with pytest.raises(
        EnvError, match=rf"grader 'my_rewards:{function}' of task 'line-1' {message}"
    ):
        env.step("anything")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nope", "module 'my_rewards' has no 'nope'"),
        ("waits", "an async function, expected a plain function"),
        ("thing", "int, expected a plain function"),
    ],
)
def test_what_is_no_reward_function_is_refused_before_a_start(own, function, message):
    with pytest.raises(ConfigError, match=message):
        own(function)


def test_rows_that_cannot_be_used_are_left_out_and_told(own):
    env = own(
        rows=[
            *ROWS,
            "no json",
            {"answer": "1"},
            {"prompt": ""},
            {"prompt": [{"role": "assistant", "content": "x"}]},
            {"prompt": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]},
            {"prompt": "What?", "id": "sum", "answer": "x"},
            {"prompt": "What?"},
        ]
    )
    assert len(env.selection.left_out) == 7
    reasons = " ".join(entry.reason for entry in env.selection.left_out)
    assert "the id 'sum' is taken already" in reasons
    assert "missing a required argument: 'answer'" in reasons
    with pytest.raises(TaskError, match="expected at most one system message"):
        env.reset(options={"task": "line-8"})


def test_a_function_that_no_row_can_call_says_what_it_is_called_with(own):
    with pytest.raises(
        TaskError, match="called with prompts, completions, answer, solution: missing"
    ):
        own("needs_more")


def test_an_example_is_another_task_with_its_solution(own):
    env = own(example=True)
    system = env.reset(options={"task": "line-1"})[1]["system"]
    assert "Request: What is 2 + 2?\nReply: It is 4." in system
    assert "17 * 23" not in system
    assert "What is 17 * 23?" in env.reset(options={"task": "line-2"})[1]["system"]
    with pytest.raises(ConfigError, match="at least two training tasks with a solution"):
        own(rows=ROWS[:1], example=True)


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
        ({"tasks": "nope"}, "got env.tasks='nope' without a grader"),
        ({"tasks": "no.jsonl", "grader": "json:dumps"}, "there is no '.*no.jsonl'"),
        ({"tasks": "length", "grader": "json:dumps"}, "env.grader with env.tasks='length'"),
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
