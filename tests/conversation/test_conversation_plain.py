"""Plain users: general questions, a wish about form, and no reward for what is not meant."""

import pytest

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.envs.conversation.env import ConversationEnv
from clawrl_gym.envs.showcase.conversation.plain import QUESTIONS, USERS, make_task

KEPT = {
    "capitals": ("THE CAPITAL IS PARIS.", "The capital is PARIS."),
    "brief": ("It is Paris.", "The capital of France is Paris."),
    "cheerful": ("It's Paris!", "Hooray! It's Paris."),
    "asking": ("Paris. Anything else?", "Why? It is Paris."),
}
"""By user: a reply that keeps the wish, and one that does not."""


def asked(user: str, question: str = "What is the capital of France?") -> ConversationEnv:
    """A conversation about this question."""
    env = ConversationEnv(tasks="plain", persona=user)
    split = next(s for s, all_of in QUESTIONS.items() if question in {q.text for q in all_of})
    for task in env.task_ids(split):
        if make_task(task).question.text == question:
            env.reset(seed=0, options={"task": task})
            return env
    raise AssertionError(question)


def test_every_user_has_a_case() -> None:
    assert set(KEPT) == set(USERS)


@pytest.mark.parametrize("user", USERS)
def test_a_right_reply_in_the_wished_form_satisfies(user: str) -> None:
    kept, other = KEPT[user]
    _, reward, terminated, _, info = asked(user).step(kept)
    assert (reward, terminated) == (1.0, True)
    assert info["scores"] == {"liked": 1.0, "personalization": 1.0, "correct": 1.0}
    said, reward, terminated, _, info = asked(user).step(other)
    assert (reward, terminated) == (0.0, False)
    assert said in USERS[user].dislike
    assert (info["first_reply_score"], info["correct"]) == (0.0, True)


@pytest.mark.parametrize(
    "reply",
    ["Rome!", "Paris or Rome!", "!", "Paris Rome Berlin Madrid!", "Paris" + " x" * 300 + "!"],
)
def test_what_is_no_right_answer_is_never_satisfying(reply: str) -> None:
    _, reward, _, _, info = asked("cheerful").step(reply)
    assert reward == 0.0
    assert not info["correct"]


def test_the_question_may_be_quoted() -> None:
    env = asked("cheerful", "What is the opposite of hot?")
    assert env.step("The opposite of hot is cold!")[1] == 1.0


@pytest.mark.parametrize("user", USERS)
def test_the_oracle_satisfies_and_no_question_is_in_both_splits(user: str) -> None:
    env = ConversationEnv(tasks="plain", persona=user)
    for split in ("train", "heldout"):
        for task in env.task_ids(split)[:150]:
            env.reset(seed=0, options={"task": task})
            assert env.step(env.solve()[0])[1] == 1.0, task
    train, heldout = ({q.text for q in QUESTIONS[s]} for s in ("train", "heldout"))
    assert train.isdisjoint(heldout)


@pytest.mark.parametrize("user", USERS)
def test_the_other_words_for_a_wish_are_never_said(user: str) -> None:
    assert set(USERS[user].dislike).isdisjoint(USERS[user].otherwise)
    assert len(USERS[user].dislike) == len(USERS[user].otherwise) == 5


def test_what_plain_users_are_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected one of: capitals, brief"):
        ConversationEnv(tasks="plain").task_ids("train")
    with pytest.raises(ConfigError, match="expected none"):
        ConversationEnv(tasks="plain", persona="brief", families=["ask"])
    with pytest.raises(ConfigError, match="expected scripted"):
        ConversationEnv(tasks="plain", persona="brief", user="model")
    with pytest.raises(TaskError, match="plain-USER-SPLIT-NUMBER"):
        make_task("plain-nobody-train-000001")
