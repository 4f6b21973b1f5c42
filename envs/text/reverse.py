"""A text, written backwards, character by character.

The task, its system prompt and its reward are those of `reverse-text` in verifiers and prime-rl:
the last <reversed_text> of the reply, or nothing, is compared with the text backwards by difflib's
ratio: twice the characters of matching blocks over those of both texts. The texts are ours, and
short.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from clawrl_gym.envs.draw import STEMS, WORDS, Draw
from clawrl_gym.envs.report import Grade, report_of
from clawrl_gym.envs.task_ids import (
    GeneratedTasks,
    draw_content,
    parse_id,
    select_families,
    split_of_content,
)
from clawrl_gym.envs.text.task import TextTask
from clawrl_gym.envs.text.topics import topics_of

PREFIX = "reverse-"
SYSTEM = "Reverse the text character-by-character. Put your answer in <reversed_text> tags."
_ANSWER = re.compile(r"<reversed_text>\s*(.*?)\s*</reversed_text>", re.DOTALL)


def _letters(draw: Draw) -> str:
    return "".join(draw.some("abcdefghijklmnopqrstuvwxyz", draw.between(2, 4)))


def _words(count: int, draw: Draw) -> str:
    topics = [*topics_of("train"), *topics_of("heldout")]
    return " ".join(draw.some((*STEMS, *WORDS, *topics), count))


FAMILIES = {
    "letters": _letters,
    "word": lambda draw: _words(1, draw),
    "words": lambda draw: _words(draw.between(2, 3), draw),
}
"""Two to four different letters, a word, two or three words; none is the same backwards."""


@dataclass(frozen=True, slots=True)
class ReverseGrader:
    """Compares the last answer in tags with the text backwards."""

    text: str
    name: str = "reverse_text"

    def grade(self, reply: str) -> Grade:
        answers = _ANSWER.findall(reply)
        answer = answers[-1] if answers else ""
        reversed_text = self.text[::-1]
        reward = SequenceMatcher(None, answer, reversed_text).ratio()
        failure = (
            f"the answer is {answer[:200]!r}, expected {reversed_text!r}"
            if answers
            else "the reply has no <reversed_text>"
        )
        return Grade(reward, report_of([] if reward == 1.0 else [failure]))


def reverse_tasks(families: Sequence[str] | None = None) -> GeneratedTasks[TextTask]:
    """The tasks of these kinds of text; None takes all. Raises ConfigError for an unknown one."""
    return GeneratedTasks(select_families(FAMILIES, families), make_task, PREFIX)


def make_task(task_id: str) -> TextTask:
    """The task of an id. Raises TaskError for what is not an id."""
    parsed = parse_id(task_id, FAMILIES, PREFIX)
    seed = f"{PREFIX}{parsed.family}/{parsed.split}/{parsed.number}"
    text = draw_content(parsed.split, seed, FAMILIES[parsed.family], split_of_content)
    return TextTask(
        id=task_id,
        family=parsed.family,
        split=parsed.split,
        prompt=text,
        grader=ReverseGrader(text),
        solution=f"<reversed_text>{text[::-1]}</reversed_text>",
        system=SYSTEM,
    )
