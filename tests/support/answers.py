"""What people answer, by language and by what it says of the reply before it: written lists.

`dev` and `check` were written before the rules, `fresh` and `blind` after them. When each was read
for the first time, of its complaints 99, 96 (English apart: about half), 55 and 45 of
100 were -1; rules were then mended by what it showed, so none of them is unseen any more.
`undeclared` holds answers in languages that the judge does not read, and mixtures: their kind is
the language.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

from clawrl_gym.core.plain_yaml import plain_values
from clawrl_gym.judge.interface import Finding
from clawrl_gym.judge.signals.speech import Speech
from tests.support.fakes_judge import shipped_rules
from tools.complaints.recipe import Answer

FOLDER = Path(__file__).parents[1] / "fixtures" / "replies"
LANGUAGES = ("en", "zh", "de", "fr", "es", "pt", "ja", "ru")
UNDECLARED = "undeclared"
HALVES = ("dev", "check", "fresh", "blind")
KINDS = ("complaint", "praise", "neutral", "future")


def answers(language: str, half: str) -> Iterator[Answer]:
    """Answers of one half of a file."""
    lists = plain_values((FOLDER / f"{language}.yaml").read_text("utf-8")).get(half, {})
    for kind, lines in lists.items():
        for line in lines.splitlines():
            yield Answer(language, kind, line)


@functools.cache  # its thousands of patterns take a second
def speech() -> Speech:
    """What `judge=rule` reads with."""
    return Speech(shipped_rules())


def finding_of(reader: Speech, answer: Answer) -> Finding:
    """After a reply that asked nothing."""
    return reader.find(answer.text, "12345", "Here you are.")


def is_as_meant(kind: str, found: Finding) -> bool:
    """Whether a finding is what an answer of this kind should bring."""
    if kind == "complaint":
        return found.value == -1
    if kind == "praise":
        return found.value == 1
    if kind == "neutral":
        return found.value in (0, None)
    if kind == "future":
        return bool(found.detail.get("lasting")) and found.value != 1
    return found.value is None
