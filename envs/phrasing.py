"""Requests for several things: sentences, a list, or the last thing first.

No way of asking is used in both splits. The order in which things are to be done is always said
where it is not that of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Literal

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw

Place = Literal["first", "next", "last"]
"""Place of a sentence among others."""
Choices = Mapping[Split, tuple[str, ...]]
"""Ways to say something, by split."""
Depends = Callable[[int, int], bool]
"""Whether one thing needs what another one makes or changes."""
Ordered = tuple[str, tuple[int, ...]]
"""A request's body, and the things in the order of its text."""

_FIRST: Choices = MappingProxyType(
    {
        "train": ("First, ", "To begin with, ", "", "Please ", "Start like this: "),
        "heldout": ("As a first step, ", "Begin here: ", ""),
    }
)
_NEXT: Choices = MappingProxyType(
    {
        "train": ("Then ", "After that, ", "Next, ", "Now ", "When that is done, "),
        "heldout": ("Once you have that, ", "Following this, ", "Go on: "),
    }
)
_LAST: Choices = MappingProxyType(
    {
        "train": ("Finally, ", "Last of all, ", "At the end, "),
        "heldout": ("To finish, ", "As the last thing, "),
    }
)
CLOSINGS: Choices = MappingProxyType(
    {
        "train": ("", "", "", " Thanks!", " Thank you.", " That would help me a lot."),
        "heldout": ("", "", " Much obliged.", " Cheers!"),
    }
)
"""Closing words of a request."""
_OPENERS: Mapping[Place, Choices] = MappingProxyType(
    {"first": _FIRST, "next": _NEXT, "last": _LAST}
)
_BEFORE: Choices = MappingProxyType(
    {
        "train": ("but before that, ", "but first, ", "though before you do so, "),
        "heldout": ("yet not until you have done this: ", "but ahead of it, "),
    }
)
_INTRO: Choices = MappingProxyType(
    {
        "train": (
            "Please do the following, in this order:", "These are the steps:", "To do, one by one:",
            "I need this done, from top to bottom:",
        ),
        "heldout": ("Work through this list:", "In sequence, please:"),
    }
)  # fmt: skip
_GOAL: Choices = MappingProxyType(
    {
        "train": (
            "In the end, {last}. For that to work, {rest}.",
            "What I want last of all is this: {last}. Until then, {rest}.",
        ),
        "heldout": ("To close with, {last}. What comes earlier: {rest}.",),
    }
)


@dataclass(frozen=True, slots=True)
class Phrasings:
    """Ways to ask, as imperatives; those of one split are never used in the other."""

    train: tuple[str, ...]
    heldout: tuple[str, ...]

    def of(self, split: Split) -> tuple[str, ...]:
        return self.heldout if split == "heldout" else self.train


@dataclass(frozen=True, slots=True)
class Style:
    """A way to make one text of imperatives that stand in the order of the work."""

    write: Callable[[Draw, Split, Sequence[str], Depends], Ordered]
    keeps_order: bool = True
    """The text has the order of the work, so that it may call back to what stands just before."""


def draw_style(draw: Draw, count: int, depends: Depends) -> Style:
    """A style that fits `count` things."""
    styles = list(plain_styles(count)) if count < 4 else [FLOW, LISTING]
    # With many things the order of the text is seldom that of the work: else no plan is needed.
    often = 1 if count < 5 else 3
    if any(depends(after, before) for before, after in pairwise(range(count))):
        styles += [_SWAPPED] * often
    if count > 2 and any(depends(count - 1, before) for before in range(count - 1)):
        styles += [_GOAL_FIRST] * often
    return draw.pick(styles)


def framed(
    draw: Draw, split: Split, clauses: Sequence[str], depends: Depends, openings: Choices
) -> Ordered:
    """A whole request for things that stand in the order of the work, in one of all styles."""
    body, order = draw_style(draw, len(clauses), depends).write(draw, split, clauses, depends)
    return around(draw, split, body, openings), order


def around(draw: Draw, split: Split, body: str, openings: Choices) -> str:
    """A request's body with what is said before and after it."""
    opening, closing = draw.pick(openings[split]), draw.pick(CLOSINGS[split])
    if body.endswith("\n"):  # a list, after which a line begins
        closing = closing.lstrip()
    return f"{opening}{body}{closing}"


def in_order(draw: Draw, count: int, clauses: Callable[[], Sequence[str]]) -> Ordered:
    """The body of a request for `count` things in the order of the work, in training's wording."""
    style = draw.pick(plain_styles(count))
    return style.write(draw, "train", clauses(), lambda after, before: False)


def plain_styles(count: int) -> tuple[Style, ...]:
    """Styles in which the text has the order of the work."""
    return (FLOW,) if count == 1 else (FLOW, LISTING, _RUN_ON)


def sentence(draw: Draw, split: Split, place: Place, clause: str) -> str:
    """A clause as a sentence that says where it stands among others."""
    return upper(f"{draw.pick(_OPENERS[place][split])}{clause}.")


def numbered(draw: Draw, split: Split, clauses: Sequence[str]) -> str:
    """Clauses as a list."""
    lines = [f"{i}. {upper(clause)}" for i, clause in enumerate(clauses, 1)]
    return "\n".join([draw.pick(_INTRO[split]), *lines, ""])


def with_budget(request: str, replies: int) -> str:
    """A request that says how many replies there are."""
    between = "" if request.endswith("\n") else " "
    return f"{request}{between}You have {replies} replies."


def upper(sentence: str) -> str:
    """The sentence with a capital, unless it begins with the name of a file."""
    first = sentence.split(maxsplit=1)[0]
    return sentence if "." in first else sentence[:1].upper() + sentence[1:]


def _flow(draw: Draw, split: Split, clauses: Sequence[str], depends: Depends) -> Ordered:
    """A sentence each."""
    if len(clauses) == 1:
        return upper(f"{clauses[0]}."), (0,)
    first, *between, last = clauses
    sentences = [
        sentence(draw, split, "first", first),
        *(sentence(draw, split, "next", clause) for clause in between),
        sentence(draw, split, "last", last),
    ]
    return " ".join(sentences), tuple(range(len(clauses)))


def _listing(draw: Draw, split: Split, clauses: Sequence[str], depends: Depends) -> Ordered:
    """A numbered list."""
    return numbered(draw, split, clauses), tuple(range(len(clauses)))


def _run_on(draw: Draw, split: Split, clauses: Sequence[str], depends: Depends) -> Ordered:
    """One sentence."""
    *texts, last = clauses
    joined = ", then ".join(texts)
    ending = "and finally" if len(texts) > 1 else "and after that"
    return upper(f"{joined}, {ending} {last}."), tuple(range(len(clauses)))


def _swapped(draw: Draw, split: Split, clauses: Sequence[str], depends: Depends) -> Ordered:
    """Sentences, of which some say first what is to be done second."""
    sentences: list[str] = []
    order: list[int] = []
    while len(order) < len(clauses):
        i = len(order)
        opener = draw.pick(_NEXT[split]) if sentences else ""
        if i + 1 < len(clauses) and (depends(i + 1, i) or draw.below(4) == 0):
            before = draw.pick(_BEFORE[split])
            sentences.append(upper(f"{opener}{clauses[i + 1]}, {before}{clauses[i]}."))
            order += [i + 1, i]
            continue
        if i + 1 == len(clauses):
            opener = draw.pick(_LAST[split])
        sentences.append(upper(f"{opener}{clauses[i]}."))
        order.append(i)
    return " ".join(sentences), tuple(order)


def _goal_first(draw: Draw, split: Split, clauses: Sequence[str], depends: Depends) -> Ordered:
    """The last thing first."""
    *rest, last = clauses
    body = draw.pick(_GOAL[split]).format(last=last, rest=", then ".join(rest))
    return upper(body), (len(clauses) - 1, *range(len(clauses) - 1))


FLOW, LISTING, _RUN_ON = Style(_flow), Style(_listing), Style(_run_on)
_SWAPPED, _GOAL_FIRST = Style(_swapped, keeps_order=False), Style(_goal_first, keeps_order=False)
