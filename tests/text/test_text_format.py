"""`env=format`: only a reply in the format that the request names earns, and no habit does."""

import json
from statistics import mean
from typing import Any

import pytest

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.text.env import SingleReplyEnv
from clawrl_gym.envs.text.formats import FORMATS, WRONG, format_tasks, marks_of

TASKS: list[Any] = [
    format_tasks().load(f"format-{family}-train-{n:06d}") for n in range(60) for family in FORMATS
]


def earned(reply_to):
    """Mean reward of replies made from the topic, over all formats."""
    return mean(task.grader.grade(reply_to(task.grader.topic)).reward for task in TASKS)


def task_of(family, number=0):
    return format_tasks([family]).load(f"format-{family}-train-{number:06d}")


def reward(task, reply):
    return task.grader.grade(reply.replace("TOPIC", task.grader.topic)).reward


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_every_oracle_earns_the_whole_reward_and_has_the_marks_of_one_format(split):
    env = SingleReplyEnv(tasks="format")
    for task_id in env.task_ids(split)[:1000]:
        _, info = env.reset(options={"task": task_id})
        (reply,) = env.solve()
        assert env.step(reply)[1] == 1.0, task_id
        assert marks_of(reply) == {info["family"]} - {"last_word"}


def test_requests_say_what_is_wanted():
    prompts = {family: task_of(family).prompt for family in FORMATS}
    topic = task_of("json").grader.topic
    assert (
        prompts["capitals"]
        == f"Tell me about {topic} in one sentence. Write in capital letters only."
    )
    assert all(prompt.startswith(f"Tell me about {topic}") for prompt in prompts.values())
    assert len({task_of("last_word", n).prompt.split('"')[1] for n in range(50)}) > 20
    assert {task_of("numbered", n).grader.format.count for n in range(50)} == {2, 3, 4}


@pytest.mark.parametrize(
    ("family", "right", "wrong"),
    [
        ("capitals", "", ["TOPIC is old.", "TOPIC", ""]),
        ("quoted", '"TOPIC is old."', ["TOPIC is old.", '"TOPIC" is "old"', '"TOPIC', '"']),
    ],
)
def test_a_format_of_one_kind_is_taken_and_others_are_not(family, right, wrong):
    task = task_of(family)
    right = right or f"{task.grader.topic} IS OLD.".upper()
    assert reward(task, right) == 1.0
    assert [reward(task, reply) for reply in wrong] == [WRONG] * len(wrong)


def test_an_object_has_the_keys_of_the_request_and_texts():
    task = task_of("json")
    keys = task.grader.format.keys
    good = json.dumps(dict.fromkeys(keys, "TOPIC"))
    assert reward(task, good) == reward(task, f"```json\n{good}\n```") == 1.0
    for values in (
        {keys[0]: "TOPIC"},
        dict.fromkeys((*keys, "more"), "TOPIC"),
        dict.fromkeys(keys, ""),
        {keys[0]: "TOPIC", keys[1]: 1},
        [dict.fromkeys(keys, "TOPIC")],
    ):
        assert reward(task, json.dumps(values)) == WRONG
    assert reward(task, f"Here it is: {good}") == WRONG


def test_a_list_has_as_many_items_as_asked_for_in_their_order():
    task = next(task for task in TASKS if getattr(task.grader.format, "count", 0) == 3)
    assert reward(task, "1. TOPIC\n2. b\n3. c") == reward(task, "1) TOPIC\n\n2) b\n3) c") == 1.0
    for reply in (
        "1. TOPIC\n2. b",
        "1. TOPIC\n3. b\n2. c",
        "1. TOPIC\n2. b\n3. c\n4. d",
        "TOPIC:\n1. a\n2. b\n3. c",
    ):
        assert reward(task, reply) == WRONG


def test_a_last_word_is_the_last_one():
    task = task_of("last_word")
    word = task.grader.format.word
    assert (
        reward(task, f"TOPIC has some {word}.") == reward(task, f"TOPIC has {word.upper()}") == 1.0
    )
    for reply in (f"TOPIC has {word} here.", word, f"TOPIC has {word}s", f"{word} TOPIC"):
        assert reward(task, reply) == WRONG


@pytest.mark.parametrize(
    "habit",
    [
        lambda topic: "",
        lambda topic: f"{topic} is known.",
        lambda topic: f"{topic} is known.".upper(),
        lambda topic: f'"{topic} is known."',
        lambda topic: f"1. {topic}\n2. b\n3. c",
        lambda topic: json.dumps({"name": topic, "kind": "x"}),
        lambda topic: f'"{topic} IS KNOWN."'.upper(),  # two formats at once
        lambda topic: f"1. {topic}\n2. B".upper(),
        lambda topic: (
            f'1. "{topic}"\n2. {{"name": "{topic}"}}\n{topic} IS KNOWN AMBER'
        ),  # all at once
        lambda topic: json.dumps({"NAME": topic.upper(), "KIND": "X"}),
        lambda topic: f"{topic} is known.".upper() * 1000,
        lambda topic: f"Tell me about {topic} in one sentence. Write in capital letters only.",
    ],
)
def test_no_habit_earns_anything(habit):
    assert earned(habit) <= 1e-9


def test_a_word_that_ends_all_formats_earns_nothing_beside_their_marks():
    task = task_of("last_word")
    word = task.grader.format.word
    topic = task.grader.topic
    for reply in (f'"{topic} {word}"', f"{topic} {word}".upper(), f"1. {topic}\n2. {word}"):
        assert reward(task, reply) == WRONG


def test_repeating_the_request_earns_nothing():
    rewards = [task.grader.grade(task.prompt).reward for task in TASKS]
    assert set(rewards) == {WRONG}


def test_an_unknown_format_is_refused():
    with pytest.raises(ConfigError, match=r"env\.families=\['xml'\], expected some of: capitals"):
        format_tasks(["xml"])
