"""A reply of about so many characters: the length is asked for, and changes with the task.

The reward is 1 within a tenth of the length, else 1 less the binary logarithm of how many times
too long or too short the reply is: 0 for twice or half of it, -1 for four times or a quarter, -3
at least. Whatever is asked, replies of one length earn at most -0.42 on average
over the two shipped lengths, whichever it is: only replies that follow the request earn more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.report import Grade, report_of
from clawrl_gym.envs.task_ids import GeneratedTasks, parse_id
from clawrl_gym.envs.text.task import TextTask
from clawrl_gym.envs.text.topics import topics_of

PREFIX = "length-"
LENGTHS = (30, 240)
"""Lengths in characters. Far apart, so that what is good for one is bad for the other."""
HELDOUT_LENGTHS = (45, 90, 180)
LOWEST = -3.0
"""Reward of a reply that says nothing, leaves out its topic, or has 16 times the wrong length."""
_TOLERANCE = 0.1
_MOST_CHARACTERS = 10_000
_FAMILY = "about_{}"
_FILLER = "old and new, near and far, big and low, so all of us may see it as it is:"


def length_tasks(
    lengths: Sequence[int] | None = None, heldout_lengths: Sequence[int] | None = None
) -> GeneratedTasks[TextTask]:
    """The tasks that ask for these lengths; None takes the shipped ones.

    Raises ConfigError for a length that no reply to every topic can have.
    """
    shown = LENGTHS if lengths is None else tuple(dict.fromkeys(lengths))
    besides = HELDOUT_LENGTHS if heldout_lengths is None else tuple(dict.fromkeys(heldout_lengths))
    held_out = tuple(length for length in besides if length not in shown)
    shortest = 1 + max(map(len, (*topics_of("train"), *topics_of("heldout"))))
    for length in (*shown, *held_out):
        if not shortest <= length <= _MOST_CHARACTERS:
            raise ConfigError(
                f"got {length} in env.lengths or env.heldout_lengths, expected {shortest} to "
                f"{_MOST_CHARACTERS} characters"
            )
    if not shown:
        raise ConfigError("got env.lengths=[], expected at least one length")
    families = {_FAMILY.format(length): length for length in (*shown, *held_out)}
    heldout_only = frozenset(_FAMILY.format(length) for length in held_out)

    def make(task_id: str) -> TextTask:
        parsed = parse_id(task_id, families, PREFIX, heldout_only)
        topics = topics_of(parsed.split)
        topic = topics[parsed.number % len(topics)]
        return make_task(task_id, parsed.family, parsed.split, topic, families[parsed.family])

    return GeneratedTasks(tuple(families), make, PREFIX, heldout_only)


def make_task(task_id: str, family: str, split: Split, topic: str, length: int) -> TextTask:
    """The task that asks for a length."""
    return TextTask(
        id=task_id,
        family=family,
        split=split,
        prompt=f"Tell me about {topic} in about {length} characters.",
        grader=LengthGrader(topic, length),
        solution=_sentence(topic, length),
    )


@dataclass(frozen=True, slots=True)
class LengthGrader:
    """Compares the characters of a reply that names its topic with those asked for."""

    topic: str
    length: int
    name: str = "length"

    def grade(self, reply: str) -> Grade:
        """White space counts as one character, and none at the ends."""
        text = " ".join(reply.split())
        if self.topic.lower() not in text.lower():
            return Grade(LOWEST, report_of([f"the reply does not say {self.topic!r}"]))
        if abs(len(text) - self.length) <= _TOLERANCE * self.length:
            return Grade(1.0, report_of([]))
        reward = max(LOWEST, 1.0 - abs(math.log2(len(text) / self.length)))
        failure = f"the reply has {len(text)} characters, expected about {self.length}"
        return Grade(reward, report_of([failure]))


def _sentence(topic: str, length: int) -> str:
    """So many characters about a topic."""
    text = f"{topic.capitalize()} is"
    for word in cycle(_FILLER.split()):
        if len(f"{text} {word}") >= length:
            return text.ljust(length, ".")
        text = f"{text} {word}"
    raise AssertionError  # a cycle has no end
