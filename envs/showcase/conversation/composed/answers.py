"""The check for right answers: lenient about the wording, strict about the content.

Beside the answer a reply may quote what it was made from, and reject what is not meant ("84, not
147"). A reply that leaves open which of several is meant has not answered, nor has a question.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from clawrl_gym.envs.showcase.conversation.composed.numbers import in_digits, numbers_in
from clawrl_gym.envs.showcase.conversation.composed.scenes import DAYS
from clawrl_gym.envs.showcase.conversation.composed.sums import results_for
from clawrl_gym.envs.showcase.conversation.problems import without_labels

MAX_CHARS = 1_200
"""Most characters of a reply; a longer one is not read."""
_REJECTING = (
    r"instead of|rather than|no longer|previously|formerly|originally|initially"
    r"|(?:down|up|(?:corrected|changed|updated)(?: it| this| that)?|correction) from"
    r"|replacing|(?:first|earlier|before) (?:you )?said|(?:first|initially|originally) said"
)
_NEGATED = re.compile(
    rf"(?:\b(?:not|{_REJECTING})|n't)"
    r"(?: (?:the|my|your|at|for|on|just|said|earlier|original|previous|initial)){0,3}"
    r" [$€]?\d[\d,.]*",
    re.IGNORECASE,
)
_EITHER = r"[^\d;\n]{0,20}\b(?:or|maybe|perhaps)\b[^\d;\n]{0,20}"
_OR = re.compile(rf"(\d[\d,.]*)(?={_EITHER}(\d[\d,.]*))", re.IGNORECASE)
_PARTS = re.compile(
    r"[.,;:!?()\n\u2013\u2014]| - |\b(?:so|but|because|since|while|whereas|as)\b"
    rf"|(?=\b(?:not|unlike|except|avoid|skip|{_REJECTING})\b)",
    re.IGNORECASE,
)
_MARKS = re.compile(
    rf"\b(?:not|no|never|neither|nor|avoid|skip|without|except|unlike|unsafe|unsuitable|off.limits"
    rf"|off the table|(?<!\bgo )(?<!\bgoes )(?<!\bsend )(?<!\bsent )(?<!\bturns )out"
    rf"|{_REJECTING})\b"
    r"|n['\u2019]t\b|\bcannot\b|[\u274c\u2717\u2718]",
    re.IGNORECASE,
)


_HIDDEN = re.compile(r"<!--.*?-->|~~.*?~~", re.DOTALL)
_SHORT_DAYS = re.compile(r"\b(?:Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)\b")
_PATH = re.compile(r"(?<!\S)[^\s\w]*[\w.-]*/[\w./-]*\.[a-z]+\b")


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to one question."""

    value: int | str
    said: str
    """The oracle's words for it."""
    quotes: frozenset[int] = frozenset()
    """Numbers that it was made from, and intermediate results."""
    between: frozenset[str] = frozenset()
    """Days, likewise."""
    others: tuple[str, ...] = ()
    """Words that a wrong answer of this sort would be."""
    reasons: str = ""
    """A pattern of why others are wrong."""
    operands: frozenset[int] = frozenset()
    """Numbers that a shown calculation names."""


def accepts(answers: Sequence[Answer], text: str) -> bool:
    """Whether a text gives all these answers, and nothing that contradicts them."""
    if len(text) > MAX_CHARS:
        return False
    text = visible(text)
    # "12. That is all" looks like a step of a list; a path's number is none.
    return any(_reads(answers, reading) for reading in (text, without_labels(text)))


def visible(text: str) -> str:
    """The text without names of files, comments, and what is struck out: nothing there is said.
    Days are spelt out."""
    return _SHORT_DAYS.sub(_whole_day, _PATH.sub(" ", _HIDDEN.sub(" ", text)))


def _whole_day(match: re.Match[str]) -> str:
    return next(day for day in DAYS if day.startswith(match.group()[:3]))


def _reads(answers: Sequence[Answer], text: str) -> bool:
    plain = _NEGATED.sub(" ", in_digits(text))
    numbers = {answer.value for answer in answers if not isinstance(answer.value, str)}
    quoted = {n for answer in answers for n in answer.quotes}
    # "1 cupcake" is one; no answer is.
    if not numbers_in(results_for(plain, numbers)) <= numbers | quoted | {1} or _is_open(plain):
        return False
    stated = _stated(plain)
    if not numbers <= numbers_in(stated):
        return False
    words = [answer for answer in answers if isinstance(answer.value, str)]
    return all(_names(answer, plain, stated) for answer in words)


def _is_open(text: str) -> bool:
    """Whether it leaves open which of two numbers is meant; one number in two ways is not open."""
    return any(numbers_in(one) != numbers_in(other) for one, other in _OR.findall(text))


def _stated(text: str) -> str:
    """The text without questions."""
    return " ".join(
        s for s in re.split(r"(?<=[.!?])\s+", text) if not s.rstrip("\"'*) ").endswith("?")
    )


def _names(answer: Answer, text: str, stated: str) -> bool:
    """Whether the word, and no other of its sort, is meant: others may only be rejected."""
    meant = set[str]()
    sort = (str(answer.value), *answer.others)
    one_of = "|".join(map(re.escape, sorted(sort, key=len, reverse=True)))
    # A list of several is one part, so that what is said of it is said of each.
    joined = re.sub(
        rf"((?:{one_of}))\**,? *(?:,|and|or|&|/|\+)(?: or| and)? *"
        rf"(?=\W*(?:the |an? )?(?:{one_of}))",
        r"\1 & ", text, flags=re.IGNORECASE,
    )  # fmt: skip
    joined = re.sub(
        rf"({one_of})\**:(?=\W*(?:contains?|has|have|made|not?)\b)", r"\1", joined,
        flags=re.IGNORECASE,
    )  # fmt: skip
    for part in _PARTS.split(_positive(joined, answer.reasons)):
        found = {word for word in sort if _has(part, word)}
        said_of_it = re.sub(one_of, " ", part, flags=re.IGNORECASE)
        if found and not _MARKS.search(part) and not _is_reason(said_of_it, answer.reasons):
            meant |= found
    if answer.between and re.search(rf"(?:{one_of}){_EITHER}(?:{one_of})", text, re.IGNORECASE):
        return False
    was_meant = answer.value in meant
    meant.discard(str(answer.value))
    return was_meant and _is_way(meant, answer) and _has(stated, str(answer.value))


def _is_way(days: set[str], answer: Answer) -> bool:
    """Whether days lead from where it began to the answer without a gap: a choice has gaps."""
    if not days <= answer.between:
        return False
    ahead = DAYS.index(str(answer.value)) + 1 if days else 0
    way = [day for day in (*DAYS[ahead:], *DAYS[:ahead]) if day in answer.between]
    steps = days - {*way[-1:]}
    return steps <= {*way[: len(steps)]}


def _positive(text: str, reasons: str) -> str:
    """The text without words that only say that something is fine: "has no nuts"."""
    if not reasons:
        return text
    none = r"(?:does not|doesn['\u2019]t|without|contains? no|has no|have no|free (?:of|from)|no)"
    fine = rf"{none}(?: (?:contain|have|include|any|or|and|{reasons})){{0,6}} (?:{reasons})\b"
    return re.sub(
        rf"\b(?:{fine}|(?:{reasons})[- ]free\b|non-?(?:{reasons})\b)",
        " ",
        text,
        flags=re.IGNORECASE,
    )


def _is_reason(part: str, reasons: str) -> bool:
    return bool(reasons) and re.search(rf"\b(?:{reasons})\b", part, re.IGNORECASE) is not None


def _has(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None
