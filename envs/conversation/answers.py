"""What a reply gives as the answer, and whether it is the right one; whatever its style.

Numbers that only name a step of a list, a file, or what the problem itself says are no answers. A
reply that gives several answers has given none.
"""

from __future__ import annotations

import re

from clawrl_gym.envs.conversation.problems import Problem

_WORDS = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
)
_VALUES = {word: number for number, word in enumerate(_WORDS.split(), start=2)}
_NO_NUMBERS = re.compile(
    r"(?<!\S)[^\s/]*/\S*"  # a path
    r"|^[ \t]*\**(?:step[ \t]+)?\d+[.):]\**(?=[ \t]+\S)"  # a step of a list
    r"|\bstep[ \t]+\d+\b",
    re.IGNORECASE | re.MULTILINE,
)
_NUMBER = re.compile(rf"(?<![\w.])-?\d+(?:\.\d+)?|\b(?:{'|'.join(_VALUES)})\b", re.IGNORECASE)
_SAYS_WRONG = re.compile(
    r"\b(?:not|almost|but|wrong|incorrect|careful|check|again|mistake|close)\b|n't\b", re.IGNORECASE
)


def answers_in(text: str, problem: Problem) -> set[float]:
    """Every number that is said and is not simply quoted from the problem."""
    told = _NO_NUMBERS.sub(" ", text)
    said = {_value(match.group()) for match in _NUMBER.finditer(told)}
    quoted = {problem.first, problem.second}
    return {number for number in said if abs(number) not in quoted}


def is_correct(text: str, problem: Problem) -> bool:
    """True when the right number, and no other, is given as the answer."""
    return answers_in(text, problem) == {problem.answer}


def is_fair(text: str, problem: Problem) -> bool:
    """True when a comment on the pupil's answer judges it rightly and names the right number.

    The pupil's own wrong number may be quoted.
    """
    said = answers_in(text, problem)
    wrong = problem.claimed != problem.answer
    fair = {problem.answer, problem.claimed} if wrong else {problem.answer}
    return problem.answer in said <= fair and wrong == bool(_SAYS_WRONG.search(text))


def _value(said: str) -> float:
    word = said.lower()
    return float(_VALUES[word]) if word in _VALUES else float(word)
