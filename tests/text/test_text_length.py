"""`env=length`: the reward follows the length that is asked for, and no single length earns it."""

import math
from statistics import mean

import pytest

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.envs.text.config import TextEnvConfig
from clawrl_gym.envs.text.env import SingleReplyEnv
from clawrl_gym.envs.text.length import HELDOUT_LENGTHS, LENGTHS, LOWEST, LengthGrader, length_tasks
from clawrl_gym.envs.text.topics import topics_of

PARROT = "Tell me about bread in about {} characters."


def reward(reply, length=80, topic="bread"):
    return LengthGrader(topic, length).grade(reply).reward


def of_length(characters, topic="bread"):
    return topic + "x" * (characters - len(topic))


def earned_by(reply, lengths=LENGTHS):
    return mean(reward(reply, length) for length in lengths)


def test_the_prompt_asks_for_topic_and_length():
    task = length_tasks().load("length-about_240-train-000000")
    assert task.prompt == f"Tell me about {topics_of('train')[0]} in about 240 characters."
    assert (task.family, task.split) == ("about_240", "train")


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_the_oracle_of_every_family_and_topic_earns_the_whole_reward(split):
    env = SingleReplyEnv(tasks="length")
    ids = env.task_ids(split)
    families = 2 if split == "train" else 5
    for task_id in ids[: families * len(topics_of(split))]:
        env.reset(options={"task": task_id})
        _, earned, terminated, _, info = env.step(env.solve()[0])
        assert (earned, terminated, info["report"]) == (1.0, True, "Test report: passed")


def test_a_reward_falls_by_one_with_each_factor_of_two():
    assert reward(of_length(80)) == reward(of_length(72)) == reward(of_length(88)) == 1.0
    assert reward(of_length(160)) == reward(of_length(40)) == 0.0
    assert reward(of_length(320)) == reward(of_length(20)) == -1.0
    assert reward(of_length(89)) == pytest.approx(1 - math.log2(89 / 80))
    assert reward(of_length(2000)) == LOWEST


def test_topics_and_some_lengths_are_only_measured():
    source = length_tasks()
    assert not set(topics_of("train")) & set(topics_of("heldout"))
    assert {source.load(task_id).family for task_id in source.ids("train")[:40]} == {
        f"about_{length}" for length in LENGTHS
    }
    assert {source.load(task_id).family for task_id in source.ids("heldout")[:70]} == {
        f"about_{length}" for length in (*LENGTHS, *HELDOUT_LENGTHS)
    }
    with pytest.raises(TaskError, match="'about_45' is held out as a whole"):
        source.load("length-about_45-train-000000")


def test_replies_of_one_length_earn_nothing_whichever_it_is():
    assert max(earned_by(of_length(characters)) for characters in range(5, 1000)) < -0.42
    with_heldout = (*LENGTHS, *HELDOUT_LENGTHS)
    assert (
        max(earned_by(of_length(characters), with_heldout) for characters in range(5, 1000)) < 1e-9
    )


@pytest.mark.parametrize(
    "reply",
    [
        "",
        " \n\t ",
        "." * 80,  # the length alone
        "Tell me about it in about 80 characters, please, as I would like to know of it.",
        "bread" + " " * 75,  # white space is one character
        "bread " * 200,
        "bread\n" + "words without end " * 2000,
    ],
)
def test_an_attack_on_the_length_earns_nothing(reply):
    assert reward(reply) <= 0.0


def test_repeating_the_request_earns_no_more_than_any_other_single_length():
    assert mean(reward(PARROT.format(length), length) for length in LENGTHS) < -0.4


def test_lengths_of_ones_own_are_taken():
    source = length_tasks([50, 100], [70])
    assert source.load("length-about_70-heldout-000003").prompt.endswith("about 70 characters.")
    assert source.ids("train").families == ("about_50", "about_100")
    config = TextEnvConfig.of({"lengths": [50], "heldout_lengths": []})
    assert config.task_ids("heldout")[0] == "length-about_50-heldout-000000"


@pytest.mark.parametrize("lengths", [[], [3], [-1], [1_000_000]])
def test_lengths_that_no_reply_can_have_are_refused(lengths):
    with pytest.raises(ConfigError, match=r"env\.lengths"):
        length_tasks(lengths)
