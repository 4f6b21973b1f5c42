"""Demonstrations of single skills on pages: what is shown, and that the environment agrees."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

import pytest

from clawrl_gym.envs.gui.agent import GuiAgent
from clawrl_gym.envs.gui.env import GuiEnv
from clawrl_gym.envs.showcase.gui.composed.generated import compose
from tools.tiny_policy.conversations import Conversation
from tools.tiny_policy.page_skills import PageSkills
from tools.tiny_policy.skill_words import NODS, ORDERS
from tools.tiny_policy.static_screen import StaticScreen

ALL = PageSkills()
NUMBERS = range(40)
Show = Callable[[str, random.Random], Conversation]


@pytest.fixture(scope="module")
def env() -> Iterator[GuiEnv]:
    made = GuiEnv(tasks="plain", open_screen=StaticScreen.open)
    yield made
    made.close()


def replies(conversation: Conversation) -> list[str]:
    return [str(m["content"]) for m in conversation.messages if m["role"] == "assistant"]


def pages(conversation: Conversation) -> list[str]:
    """The request with its page, and what came back after each reply but the last."""
    return [str(m["content"]) for m in conversation.messages if m["role"] == "user"]


def test_every_demonstration_ends_when_all_is_done_and_all_skills_come_up() -> None:
    conversations = list(itertools.islice(ALL.conversations(1), 300))
    for conversation in conversations:
        *worked, last = replies(conversation)
        assert last == "done()"
        assert worked
        assert not any("done" in reply for reply in worked)
    assert len({conversation.family for conversation in conversations}) == 14


def test_the_same_seed_shows_the_same_and_the_splits_share_no_request_of_one_skill() -> None:
    first, again, heldout = (
        [pages(c)[0].split("\n\n")[0] for c in itertools.islice(source.conversations(3), 60)]
        for source in (
            PageSkills(alone=1.0), PageSkills(alone=1.0), PageSkills("heldout", alone=1.0),
        )
    )  # fmt: skip
    assert first == again
    assert not set(first) & set(heldout)


def test_the_second_of_two_things_is_only_done_when_a_person_has_answered() -> None:
    shows: tuple[Show, ...] = (ALL.show_led, ALL.show_one_after_the_other)
    for number in NUMBERS:
        for show in shows:
            conversation = show(f"desk-two-train-{number:06d}", random.Random(number))
            first, second, _ = replies(conversation)
            assert first != second
            word = pages(conversation)[1].split("\n\n")[0]
            assert (word in (*NODS, *ORDERS)) is (show == ALL.show_led)


def test_what_somebody_else_does_is_not_done() -> None:
    firsts = 0
    for number in NUMBERS:
        task_id = f"desk-two-train-{number:06d}"
        done, _ = replies(ALL.show_other_is_not_asked(task_id, random.Random(number)))
        one, other, _ = replies(ALL.show_led(task_id, random.Random(number)))
        assert done in (one, other)
        firsts += done == one
    assert 10 < firsts < 30


@pytest.mark.parametrize("family", ["one", "two"])
def test_the_environment_shows_what_the_demonstrations_show(family: str, env: GuiEnv) -> None:
    show: Show = ALL.show_alone if family == "one" else ALL.show_led
    for number in range(30):
        task_id = f"desk-{family}-train-{number:06d}"
        observation, _ = env.reset(options={"task": task_id})
        conversation = show(task_id, random.Random(number))
        assert conversation.messages[0] == GuiAgent(protocol="text").messages([observation], [])[0]
        request, _, page = observation.partition("\n\n")
        assert pages(conversation)[0].endswith(page), task_id
        assert pages(conversation)[0].startswith(request.rpartition(" You have ")[0])
        *worked, last = replies(conversation)
        for reply, shown in zip(worked, pages(conversation)[1:], strict=True):
            observation, *_ = env.step(reply)
            assert shown.endswith(observation), task_id
        _, reward, terminated, _, _ = env.step(last)
        assert terminated
        assert reward == 1.0, (task_id, env.report)


def test_bare_ones_hold_a_page_and_what_is_done_on_it(env: GuiEnv) -> None:
    for conversation in itertools.islice(PageSkills(bare=True).conversations(2), 50):
        page, reply = conversation.messages
        assert page["role"] == "user"
        assert "click(" in str(reply["content"])


def test_one_thing_of_a_request_is_all_of_a_reply() -> None:
    for number in NUMBERS:
        parts = compose("two", "train", number).plan.parts
        assert all(len(part.actions) == 1 for part in parts)
