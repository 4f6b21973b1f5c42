"""Small arithmetic word problems, and whether a reply gives the right answer, in whatever style.

A problem has two numbers, one sum or difference, a person and some items.

The answer is never one of the two numbers, so a reply that only quotes the problem cannot hold it.
Which person with which items belongs to one split alone: no held-out problem is seen in training.

Numbers that only name a step of a list, a file, or what the problem itself says are no answers. A
reply that gives several answers has given none.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Literal

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw

NAMES = (
    "Tom", "Mia", "Sam", "Ana", "Leo", "Eva", "Max", "Zoe", "Ben", "Ida",
    "Kim", "Lea", "Jon", "Amy", "Tim", "Eli", "Nia", "Roy", "Uma", "Gus",
)  # fmt: skip
ITEMS = (
    "apples", "pens", "books", "coins", "cards", "stones", "eggs", "stamps", "balls", "cups",
    "keys", "maps", "nuts", "hats", "toys", "shells", "plums", "boxes", "flags", "beads",
)  # fmt: skip
VERBS = {"+": ("gets", "buys", "finds", "wins"), "-": ("loses", "sells", "drops", "breaks")}
LARGEST = 20
"""No number of a problem, its answer included, is larger."""
SMALLEST = 2
HELDOUT_SHARE = 5
"""One pair of person and items in this many is held out."""

_TEXTS = {
    "+": (
        "{name} has {a} {items} and {verb} {b} more. How many {items} does {name} have now?",
        "{name} has {a} {items}. Then {name} {verb} {b} more. How many {items} is that?",
        "{name} {verb} {b} {items} and had {a} before. How many {items} does {name} have now?",
    ),
    "-": (
        "{name} has {a} {items} and {verb} {b}. How many {items} are left?",
        "{name} has {a} {items}. Then {name} {verb} {b}. How many {items} does {name} have now?",
        "{name} {verb} {b} of {a} {items}. How many {items} are left?",
    ),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One word problem."""

    name: str
    items: str
    verb: str
    first: int
    """Number of things at the start."""
    second: int
    """Number of things that come or go."""
    sign: Literal["+", "-"]
    text: str
    """Text of the problem."""
    claimed: int
    """Answer that a pupil wrote down: right in half of the problems. Only a teacher's request
    mentions it."""

    @property
    def answer(self) -> int:
        return self.first + self.second if self.sign == "+" else self.first - self.second

    @property
    def sum(self) -> str:
        """The calculation without its result, such as `3 + 4`."""
        return f"{self.first} {self.sign} {self.second}"


def draw_problem(split: Split, draw: Draw) -> Problem:
    """A problem of a split; everything follows from the draws."""
    name, items = draw.pick(NAMES), draw.pick(ITEMS)
    while split_of(name, items) != split:
        name, items = draw.pick(NAMES), draw.pick(ITEMS)
    sign: Literal["+", "-"] = draw.pick(("+", "-"))
    first, second = _numbers(sign, draw)
    verb = draw.pick(VERBS[sign])
    text = draw.pick(_TEXTS[sign]).format(name=name, items=items, verb=verb, a=first, b=second)
    answer = first + second if sign == "+" else first - second
    return Problem(
        name, items, verb, first, second, sign, text, _claimed(answer, first, second, draw)
    )


def split_of(name: str, items: str) -> Split:
    """The one split that a person with these items belongs to."""
    digest = hashlib.sha256(f"{name} {items}".encode()).digest()
    return "heldout" if int.from_bytes(digest[:4], "big") % HELDOUT_SHARE == 0 else "train"


def _numbers(sign: Literal["+", "-"], draw: Draw) -> tuple[int, int]:
    """Both numbers; the larger total is drawn first, so that all pairs are about equally likely."""
    while True:
        left, right = (draw.between(SMALLEST, LARGEST - SMALLEST) for _ in range(2))
        total = left + right
        if total > LARGEST or (sign == "-" and left == right):
            continue
        return (left, right) if sign == "+" else (total, right)


def _claimed(answer: int, first: int, second: int, draw: Draw) -> int:
    """The pupil's answer; a wrong one is a little off and not a number of the problem."""
    if draw.below(2):
        return answer
    near = (answer + off for off in (-2, -1, 1, 2))
    return draw.pick([n for n in near if n > 0 and n not in (first, second)])


_WORDS = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
)
NUMBER_WORDS = {word: number for number, word in enumerate(_WORDS.split(), start=2)}
"""Values of number words from two to twenty: "one" is seldom a number."""
_NO_NUMBERS = re.compile(
    r"(?<!\S)[^\s/]*/\S*"  # a path
    r"|^[ \t]*\**(?:step[ \t]+)?\d+[.):]\**(?=[ \t]+\S)"  # a step of a list
    r"|\bstep[ \t]+\d+\b",
    re.IGNORECASE | re.MULTILINE,
)
_NUMBER = re.compile(rf"(?<![\w.])-?\d+(?:\.\d+)?|\b(?:{'|'.join(NUMBER_WORDS)})\b", re.IGNORECASE)
_SAYS_WRONG = re.compile(
    r"\b(?:not|almost|but|wrong|incorrect|careful|check|again|mistake|close)\b|n't\b", re.IGNORECASE
)


def answers_in(text: str, problem: Problem) -> set[float]:
    """Every number that is said and is not simply quoted from the problem."""
    numbers = {_value(match.group()) for match in _NUMBER.finditer(without_labels(text))}
    quoted = {problem.first, problem.second}
    return {number for number in numbers if abs(number) not in quoted}


def without_labels(text: str) -> str:
    """The text without paths and without what only names a step."""
    return _NO_NUMBERS.sub(" ", text)


def is_correct(text: str, problem: Problem) -> bool:
    """True when the right number, and no other, is given as the answer."""
    return answers_in(text, problem) == {problem.answer}


def is_fair(text: str, problem: Problem) -> bool:
    """True when a comment on the pupil's answer judges it rightly and names the right number.

    The pupil's own wrong number may be quoted.
    """
    answers = answers_in(text, problem)
    wrong = problem.claimed != problem.answer
    allowed = {problem.answer, problem.claimed} if wrong else {problem.answer}
    return problem.answer in answers <= allowed and wrong == bool(_SAYS_WRONG.search(text))


def _value(text: str) -> float:
    word = text.lower()
    return float(NUMBER_WORDS[word]) if word in NUMBER_WORDS else float(word)
