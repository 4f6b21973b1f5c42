"""Held-out users say nothing that a shipped policy, or its teacher, was supervised on."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from functools import cache

import pytest

from clawrl_gym.core.pictures import text_of
from clawrl_gym.envs.conversation.env import ConversationEnv
from clawrl_gym.envs.conversation.user import Act
from clawrl_gym.envs.showcase.conversation.generated import make_task
from clawrl_gym.envs.showcase.conversation.heldout_wording import HELDOUT_WORDING, Wording
from clawrl_gym.envs.showcase.conversation.personas import HELDOUT_PERSONAS, PERSONAS
from tools.tiny_policy.hints import FILE_HINT, STYLE_HINTS, SUM_HINT
from tools.tiny_policy.phases import everything, talking
from tools.tiny_policy.small_talk import COMPLAINTS, THANKS

DEMONSTRATIONS = 3_000
"""Demonstrations of each of the two mixtures that taught the shipped policies conversations."""
LONGEST_SHARED = 4
"""Words in a row that may be in both: English has no others for "i want to know"."""


def sentences(text: str) -> Iterator[list[str]]:
    """Words of each sentence, without case and punctuation; what is filled in stays one word."""
    for sentence in re.split(r"[.!?]\s+|\n+", text.replace("{task}", "\n")):
        words = re.findall(r"[a-z']+|\{\w+\}", sentence.lower())
        if words:
            yield words


def grams(texts: Iterable[str], length: int) -> set[str]:
    """Runs of so many words."""
    return {
        " ".join(words[at : at + length])
        for text in texts
        for words in sentences(text)
        for at in range(len(words) - length + 1)
    }


def written_apart() -> list[str]:
    """All that held-out users say."""
    return [
        sentence
        for wording in HELDOUT_WORDING.values()
        for part in fields(Wording)
        for sentence in getattr(wording, part.name)
    ]


@cache
def taught() -> tuple[str, ...]:
    """What the policies were supervised on: the lists that it is drawn from, and many draws."""
    lists = [
        sentence
        for persona in PERSONAS.values()
        for part in fields(Wording)
        for sentence in getattr(persona, part.name)
    ]
    lists += [*itertools.chain(*STYLE_HINTS.values()), SUM_HINT, FILE_HINT, *THANKS, *COMPLAINTS]
    drawn = [
        text_of(message)
        for source in (talking(), everything())
        for conversation in itertools.islice(source.conversations(5), DEMONSTRATIONS)
        for message in conversation.messages
        if message.get("content")
    ]
    return (*lists, *drawn)


def test_what_is_taught_is_found_by_this_measure() -> None:
    (complaint, *_) = PERSONAS["student"].dislike
    assert grams([complaint], LONGEST_SHARED + 1) <= grams(taught(), LONGEST_SHARED + 1)


def test_no_sentence_of_a_held_out_user_was_taught() -> None:
    known = {" ".join(words) for text in taught() for words in sentences(text)}
    own = {" ".join(words) for text in written_apart() for words in sentences(text)}
    assert own & known == set()


def test_no_long_run_of_words_of_a_held_out_user_was_taught() -> None:
    length = LONGEST_SHARED + 1
    assert grams(written_apart(), length) & grams(taught(), length) == set()


def test_most_runs_of_three_words_are_new() -> None:
    own = grams(written_apart(), 3)
    shared = own & grams(taught(), 3)
    assert len(shared) <= 0.02 * len(own), sorted(shared)


@pytest.mark.parametrize("persona", PERSONAS)
def test_a_wish_is_said_in_twenty_ways_of_varied_length(persona: str) -> None:
    ways = HELDOUT_WORDING[persona].dislike
    assert len(set(ways)) == len(ways) >= 20
    lengths = [len(way.split()) for way in ways]
    assert min(lengths) <= 5
    assert max(lengths) >= 12
    for part in fields(Wording):
        assert len(getattr(HELDOUT_WORDING[persona], part.name)) >= 3


@pytest.mark.parametrize("persona", PERSONAS)
@pytest.mark.parametrize("act", ["dislike", "wrong", "thanks", "save", "missing", "leave"])
def test_both_wordings_mean_the_same_and_share_no_sentence(persona: str, act: Act) -> None:
    other = set(getattr(PERSONAS[persona], act))
    own = set(getattr(HELDOUT_PERSONAS[persona], act))
    assert own.isdisjoint(other)
    assert all(("{target}" in way) == (act in ("save", "missing")) for way in own | other)


def test_a_task_says_in_its_id_in_whose_words_it_is_told() -> None:
    env = ConversationEnv(persona="student", wording="heldout")
    told, _ = env.reset(seed=0, options={"task": "student_heldout-ask-train-000001"})
    task = make_task("student_heldout-ask-train-000001")
    assert task.opening == told
    assert task.persona.style is PERSONAS["student"].style
    assert told != make_task("student-ask-train-000001").opening
    assert env.task_ids("heldout")[0].startswith("student_heldout-")


def test_a_held_out_user_complains_in_words_of_its_own() -> None:
    env = ConversationEnv(persona="engineer", wording="heldout")
    env.reset(seed=0, options={"task": "engineer_heldout-ask-train-000001"})
    problem = make_task("engineer_heldout-ask-train-000001").problem
    said, *_ = env.step(f"Sure! Here is the solution:\n**Final answer: {problem.answer}**")
    assert said in HELDOUT_WORDING["engineer"].dislike


@pytest.mark.parametrize("persona", PERSONAS)
def test_the_oracle_satisfies_held_out_users(persona: str) -> None:
    env = ConversationEnv(persona=persona, wording="heldout")
    for task in env.task_ids("heldout")[:40]:
        env.reset(seed=0, options={"task": task})
        rewards = [env.step(action)[1] for action in env.solve()]
        assert rewards[-1] == 1.0, task
