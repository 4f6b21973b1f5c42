"""`env=reverse_text`: prompt and reward are those of verifiers' reverse-text."""

import pytest

from clawrl_gym.envs.text.env import SingleReplyEnv
from clawrl_gym.envs.text.reverse import FAMILIES, SYSTEM, ReverseGrader, reverse_tasks


def reward(reply, text="granite"):
    return ReverseGrader(text).grade(reply).reward


def tagged(text):
    return f"<reversed_text>{text}</reversed_text>"


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_every_oracle_earns_the_whole_reward(split):
    env = SingleReplyEnv(tasks="reverse_text")
    for task_id in env.task_ids(split)[:600]:
        text, info = env.reset(options={"task": task_id})
        assert info["system"] == SYSTEM
        assert env.solve() == (tagged(text[::-1]),)
        assert env.step(env.solve()[0])[1] == 1.0


def test_the_reward_is_the_ratio_of_matching_characters():
    assert reward(tagged("etinarg")) == 1.0
    assert reward(tagged(" etinarg\n")) == 1.0, "as its parser strips"
    assert reward(tagged("etin")) == pytest.approx(8 / 11)  # 2 * 4 / (4 + 7)
    assert reward(f"{tagged('etinarg')} or {tagged('x')}") == 0.0, "the last answer counts"
    assert reward(f"<think>{tagged('x')}</think>{tagged('etinarg')}") == 1.0


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "etinarg",  # without tags
        "<reversed_text>etinarg",
        "<reversed_text></reversed_text>",
        "granite",
        SYSTEM,
    ],
)
def test_a_reply_without_an_answer_in_tags_earns_nothing(reply):
    assert reward(reply) == 0.0


@pytest.mark.parametrize(
    ("attack", "most"),
    [
        (lambda text: tagged(text), 0.45),  # the text as it is
        (lambda text: tagged("abcdefghijklmnopqrstuvwxyz"), 0.25),
        (lambda text: tagged("e"), 0.25),
        (lambda text: tagged("the quick brown fox jumps over the lazy dog " * 200), 0.01),
        (lambda text: "".join(tagged(letter) for letter in text), 0.4),
    ],
)
def test_an_answer_that_reverses_nothing_earns_little(attack, most):
    source = reverse_tasks()
    texts = [source.load(task_id).prompt for task_id in source.ids("train")[:600]]
    rewards = [reward(attack(text), text) for text in texts]
    assert sum(rewards) / len(rewards) < most
    assert 1.0 not in rewards, "no text is the same backwards"


def test_texts_of_training_are_not_measured():
    source = reverse_tasks()
    train, held_out = (
        {source.load(task_id).prompt for task_id in source.ids(split)[:900]}
        for split in ("train", "heldout")
    )
    assert not train & held_out
    assert {source.load(task_id).family for task_id in source.ids("train")[:6]} == set(FAMILIES)
