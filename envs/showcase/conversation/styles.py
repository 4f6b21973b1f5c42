"""Ways to say the same solution, and how much of a way is in a text: both by code.

A score is the share of a style's marks that a text bears, times its manners: what sounds like an
AI (bold, lists, labels, stock phrases) halves the score once for each. A text that gives no answer
has no style. No score asks whether the answer is right: see `answers`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.conversation.problems import Problem, answers_in

Mark = Callable[[str, Problem], bool]

_TELLS = (
    re.compile(r"\*\*|__|^#+ |```", re.MULTILINE),  # bold, headings, code
    re.compile(r"^[^\w\n]*(?:\d+[.)]|[-*•])\s|\bstep \d", re.MULTILINE | re.IGNORECASE),  # lists
    re.compile(r"\b(?:final answer|solution|explanation|grade|feedback)\W*:", re.IGNORECASE),
    re.compile(
        r"\b(?:let me know|sure[!,.]|certainly|of course|here is|here's|i hope|as an ai|feel free)",
        re.IGNORECASE,
    ),
)
_TELL_COSTS = 0.45
_PRAISE = re.compile(
    r"\b(?:well done|nice|great|good|lovely|super|proud|keep (?:it up|going))\b", re.IGNORECASE
)
_STORY = re.compile(r"\b(?:once|one day|then|suddenly|and so|hooray|wow|the end)\b", re.IGNORECASE)
_SLANG = re.compile(
    r"\b(?:its|thats|cause|so|gonna|gets?|like|hey|yeah|ok)\b|'s\b|n't\b", re.IGNORECASE
)


def tells(text: str) -> int:
    """Number of kinds of things in a text that sound like an AI."""
    return sum(bool(tell.search(text)) for tell in _TELLS)


@dataclass(frozen=True, slots=True)
class Style:
    """One way to put a solution."""

    name: str
    forms: Mapping[bool, tuple[str, ...]]
    """Templates; the key is whether the pupil's answer is right (only teachers' styles differ)."""
    marks: tuple[tuple[float, Mark], ...] = ()
    """Features that the style's wish looks at, with weights that add up to 1."""

    def render(self, problem: Problem, draw: Draw) -> str:
        """The right solution in this style; the draw chooses the words."""
        form = draw.pick(self.forms[problem.claimed == problem.answer])
        return form.format(
            name=problem.name, low=problem.name.lower(), things=problem.items, verb=problem.verb,
            a=problem.first, b=problem.second, sum=problem.sum, n=problem.answer,
            claimed=problem.claimed, more=" more" if problem.sign == "+" else "",
            does="added" if problem.sign == "+" else "subtracted",
            plus="plus" if problem.sign == "+" else "minus",
            come="more came" if problem.sign == "+" else "went away",
            add="Add" if problem.sign == "+" else "Subtract",
        )  # fmt: skip

    def score(self, text: str, problem: Problem) -> float:
        """Fit of a text to the style, in [0, 1]."""
        if not answers_in(text, problem):
            return 0.0
        borne: float = sum(weight for weight, mark in self.marks if mark(text, problem))
        return round(borne * _TELL_COSTS ** tells(text), 3)


def _always(*forms: str) -> Mapping[bool, tuple[str, ...]]:
    return {True: forms, False: forms}


def _words(text: str) -> list[str]:
    return text.split()


def _one_line(text: str) -> bool:
    return "\n" not in text.strip()


def _at_most(words: int) -> Mark:
    return partial(_fits, words)


def _fits(words: int, text: str, _: Problem) -> bool:
    return _one_line(text) and len(_words(text)) <= words


def _lower_case(text: str, _: Problem) -> bool:
    return text == text.lower()


def _names(text: str, problem: Problem) -> bool:
    return re.search(rf"\b{problem.name}\b", text, re.IGNORECASE) is not None


def _has_items(text: str, problem: Problem) -> bool:
    return re.search(rf"\b{problem.items}\b", text, re.IGNORECASE) is not None


def _names_the_step(text: str, problem: Problem) -> bool:
    """Both numbers, and the sign or a word for it."""
    operation = re.search(r"[+-]|\b(?:add|subtract|plus|minus|take|took)", text, re.IGNORECASE)
    return _quotes(text, problem) and operation is not None


def _own_words(text: str, problem: Problem) -> bool:
    """Both numbers, in words rather than as a bare formula."""
    words = re.findall(r"[^\W\d_]+", text)
    return _quotes(text, problem) and len(words) >= 3 and not re.search(r"[=+]", text)


def _quotes(text: str, problem: Problem) -> bool:
    return {str(problem.first), str(problem.second)} <= set(re.findall(r"\d+", text))


def _praises(text: str, _: Problem) -> bool:
    return _PRAISE.search(text) is not None


def _tells_a_story(text: str, problem: Problem) -> bool:
    return _STORY.search(text) is not None and _names(text, problem)


def _cheers(text: str, _: Problem) -> bool:
    return text.rstrip().endswith("!")


def _bare(text: str, problem: Problem) -> bool:
    """The number and the unit, and nothing else."""
    match = re.fullmatch(r"(-?\d+) (\w+)\.?", text.strip())
    return match is not None and match[2].lower() == problem.items


def _full_sentence(text: str, _: Problem) -> bool:
    plain = text.strip()
    return plain[:1].isupper() and plain.endswith(".") and len(_words(plain)) >= 5


def _in_order(text: str, _: Problem) -> bool:
    """A clerk's words: no exclamation, no slang."""
    return "!" not in text and _SLANG.search(text) is None


ASSISTANT = Style(
    "assistant",
    _always(
        "**Step 1:** Start with {a} {things}.\n**Step 2:** {sum} = {n}\n**Final answer: {n}**",
        "1. Start with {a} {things}.\n2. {add} {b}: {sum} = {n}\n**Final answer: {n} {things}**",
        "Sure! Here is the solution:\n1. {sum} = {n}\n**Final answer: {n}**\nLet me know if you "
        "need more help!",
    ),
)
"""Style of chat models that were told no wish. Nobody wishes it: no marks, its own score is 0."""

GRADER = Style(
    "grader",
    {
        True: (
            "1. {sum} = {n}\n**Final answer: {n}**\n**Grade: correct**",
            "**Feedback:**\n1. {sum} = {n}\n2. The answer {claimed} is correct.",
        ),
        False: (
            "1. {sum} = {n}\n**Final answer: {n}**\n**Grade: not correct**",
            "**Feedback:**\n1. {sum} = {n}\n2. The answer {claimed} is not correct.",
        ),
    },
)
"""Style of chat models that were told no wish, about a pupil's answer."""

CASUAL = Style(
    "casual",
    _always(
        "{low} has {a} and {verb} {b}{more} so its {n}",
        "{a} {plus} {b} thats {n} {things}",
        "its {n} {things} cause {low} had {a} and {verb} {b}{more}",
    ),
    (
        (0.35, _lower_case),
        (0.25, _at_most(16)),
        (0.4, _own_words),
    ),
)

FRIENDLY = Style(
    "friendly",
    {
        True: (
            "{name}, {sum} = {n}. You {does} right, well done. Keep it up!",
            "{name}, {sum} is {n} and you got it. Great work, I like how you {does}!",
        ),
        False: (
            "{name}, {sum} = {n}. You {does}, but not quite right. Good try, keep going!",
            "{name}, {sum} is {n}, not {claimed}. Nice start, almost. Keep going!",
        ),
    },
    (
        (0.3, _names),
        (0.3, _praises),
        (0.2, _names_the_step),
        (0.2, _at_most(30)),
    ),
)

TERSE = Style(
    "terse",
    _always("{n} {things}"),
    ((0.25, _at_most(8)), (0.35, _at_most(3)), (0.2, _has_items), (0.2, _bare)),
)

STORY = Style(
    "story",
    _always(
        "Once {name} had {a} {things}, then {b} {come} and there were {n}!",
        "One day {name} had {a} {things}, then {b} {come}. Wow, now there are {n}!",
    ),
    ((0.4, _tells_a_story), (0.2, _has_items), (0.2, _cheers), (0.2, _at_most(30))),
)

FORMAL = Style(
    "formal",
    _always(
        "In total, {name} has {n} {things}.",
        "The result of {sum} is {n} {things}.",
        "Accordingly, {name} now has {n} {things}.",
    ),
    ((0.35, _full_sentence), (0.25, _in_order), (0.2, _has_items), (0.2, _at_most(20))),
)

STYLES: Mapping[str, Style] = MappingProxyType(
    {s.name: s for s in (ASSISTANT, GRADER, CASUAL, FRIENDLY, TERSE, STORY, FORMAL)}
)
"""Every style by name."""
