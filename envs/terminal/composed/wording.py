"""Puts the parts of a plan into one request: sentences, a list, or the last thing first.

The order in which things are to be done is always said where it is not that of the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Literal

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.terminal.composed.plan import Part

SIDE_EFFECTS = "Change nothing else; notes of your own belong in /tmp."
"""The rule of all composed tasks."""

Place = Literal["first", "next", "last"]
"""Of a sentence among others."""
_Choices = Mapping[Split, tuple[str, ...]]

_PUT: _Choices = MappingProxyType(
    {
        "train": ("write|to {b}", "put|into {b}", "save|in {b}", "write|into {b}"),
        "heldout": ("store|in {b}", "place|in {b}", "write|down in {b}"),
    }
)
"""For `{put} ... {into}`."""
_RESULT: _Choices = MappingProxyType(
    {"train": ("the result", "the new {noun}"), "heldout": ("the {noun} you have just made",)}
)
_FIRST: _Choices = MappingProxyType(
    {
        "train": ("First, ", "To begin with, ", "", "Please ", "Start like this: "),
        "heldout": ("As a first step, ", "Begin here: ", ""),
    }
)
_NEXT: _Choices = MappingProxyType(
    {
        "train": ("Then ", "After that, ", "Next, ", "Now ", "When that is done, "),
        "heldout": ("Once you have that, ", "Following this, ", "Go on: "),
    }
)
_LAST: _Choices = MappingProxyType(
    {
        "train": ("Finally, ", "Last of all, ", "At the end, "),
        "heldout": ("To finish, ", "As the last thing, "),
    }
)
_OPENERS: Mapping[Place, _Choices] = MappingProxyType(
    {"first": _FIRST, "next": _NEXT, "last": _LAST}
)
_BEFORE: _Choices = MappingProxyType(
    {
        "train": ("but before that, ", "but first, ", "though before you do so, "),
        "heldout": ("yet not until you have done this: ", "but ahead of it, "),
    }
)
_OPENING: _Choices = MappingProxyType(
    {
        "train": (
            "", "", "", "Hi! ", "Hello, could you help me with some files? ",
            "Some housekeeping: ", "This is for the monthly report. ", "I am in a hurry. ",
            "Good morning. My colleague left this folder to me. ", "Quick job. ",
        ),
        "heldout": (
            "", "", "Hey there. ", "Before the audit tomorrow we need a few things done. ",
            "My boss wants this by noon. ", "Could you tidy up after me? ",
        ),
    }
)  # fmt: skip
_INTRO: _Choices = MappingProxyType(
    {
        "train": (
            "Please do the following, in this order:", "These are the steps:", "To do, one by one:",
            "I need this done, from top to bottom:",
        ),
        "heldout": ("Work through this list:", "In sequence, please:"),
    }
)  # fmt: skip
_CLOSING: _Choices = MappingProxyType(
    {
        "train": ("", "", "", " Thanks!", " Thank you.", " That would help me a lot."),
        "heldout": ("", "", " Much obliged.", " Cheers!"),
    }
)
_GOAL: _Choices = MappingProxyType(
    {
        "train": (
            "In the end, {last}. For that to work, {rest}.",
            "What I want last of all is this: {last}. Until then, {rest}.",
        ),
        "heldout": ("To close with, {last}. What comes earlier: {rest}.",),
    }
)


def request(draw: Draw, split: Split, parts: Sequence[Part]) -> tuple[str, tuple[int, ...]]:
    """The request, and the parts in the order of its text."""
    styles = [_flow] if len(parts) == 1 else [_flow, _listing]
    if len(parts) in (2, 3):
        styles.append(_run_on)
    # With many parts the order of the text is seldom that of the work: else no plan is needed.
    often = 1 if len(parts) < 5 else 3
    if any(after.depends_on(before) for before, after in pairwise(parts)):
        styles += [_swapped] * often
    if len(parts) > 2 and any(parts[-1].depends_on(part) for part in parts[:-1]):
        styles += [_goal_first] * often
    body, order = draw.pick(styles)(draw, split, parts)
    return framed(draw, split, body), order


def plain_request(draw: Draw, parts: Sequence[Part]) -> tuple[str, tuple[int, ...]]:
    """The request in the order of the work, in the wording of training."""
    styles = [_flow] if len(parts) == 1 else [_flow, _listing, _run_on]
    body, order = draw.pick(styles)(draw, "train", parts)
    return framed(draw, "train", body), order


def framed(draw: Draw, split: Split, body: str) -> str:
    """A request's body with what is said around it, and the rule."""
    opening = draw.pick(_OPENING[split])
    closing = f"{draw.pick(_CLOSING[split])} {SIDE_EFFECTS}".lstrip()
    between = "" if body.endswith("\n") else " "
    return f"{opening}{body}{between}{closing}"


def _clause(draw: Draw, split: Split, part: Part, *, pronoun: bool = False) -> str:
    """One part as an imperative. `pronoun`: the part before it stands just before it."""
    words = dict(part.words)
    if pronoun and part.follows and draw.below(2):
        noun = "folder" if "/" not in part.args["a"] and "." not in part.args["a"] else "file"
        words["a"] = draw.pick(_RESULT[split]).format(noun=noun)
    put, _, into = draw.pick(_PUT[split]).partition("|")
    into = into.format(b=words.get("b", ""))
    phrase = draw.pick(part.skill.phrasings.of(split))
    return phrase.format(**words, put=put, into=into) + part.tail


def _names_follow(parts: Sequence[Part], i: int) -> bool:
    """Whether "the result" would be clear: what is before it has made something new."""
    return i > 0 and parts[i - 1].skill.makes is not None and not parts[i - 1].skill.same


def clauses(draw: Draw, split: Split, parts: Sequence[Part]) -> list[str]:
    """Each part as an imperative; one may call "the result" what the part before it has made."""
    return [
        _clause(draw, split, part, pronoun=_names_follow(parts, i)) for i, part in enumerate(parts)
    ]


def sentence(draw: Draw, split: Split, place: Place, clause: str) -> str:
    """A clause as a sentence that says where it stands among others."""
    return upper(f"{draw.pick(_OPENERS[place][split])}{clause}.")


def numbered(draw: Draw, split: Split, clauses: Sequence[str]) -> str:
    """Clauses as a list."""
    lines = [f"{i}. {upper(clause)}" for i, clause in enumerate(clauses, 1)]
    return "\n".join([draw.pick(_INTRO[split]), *lines, ""])


def upper(sentence: str) -> str:
    """With a capital where a word begins it, and not the name of a file."""
    first = sentence.split(maxsplit=1)[0]
    return sentence if "." in first else sentence[:1].upper() + sentence[1:]


def _flow(draw: Draw, split: Split, parts: Sequence[Part]) -> tuple[str, tuple[int, ...]]:
    """A sentence each."""
    texts = clauses(draw, split, parts)
    if len(texts) == 1:
        return upper(f"{texts[0]}."), (0,)
    first, *between, last = texts
    sentences = [
        sentence(draw, split, "first", first),
        *(sentence(draw, split, "next", text) for text in between),
        sentence(draw, split, "last", last),
    ]
    return " ".join(sentences), tuple(range(len(parts)))


def _listing(draw: Draw, split: Split, parts: Sequence[Part]) -> tuple[str, tuple[int, ...]]:
    """A numbered list."""
    return numbered(draw, split, clauses(draw, split, parts)), tuple(range(len(parts)))


def _run_on(draw: Draw, split: Split, parts: Sequence[Part]) -> tuple[str, tuple[int, ...]]:
    """One sentence."""
    *texts, last = clauses(draw, split, parts)
    joined = ", then ".join(texts)
    ending = "and finally" if len(texts) > 1 else "and after that"
    return upper(f"{joined}, {ending} {last}."), tuple(range(len(parts)))


def _swapped(draw: Draw, split: Split, parts: Sequence[Part]) -> tuple[str, tuple[int, ...]]:
    """Sentences, of which some say first what is to be done second."""
    clauses = [_clause(draw, split, part) for part in parts]
    sentences: list[str] = []
    order: list[int] = []
    while len(order) < len(parts):
        i = len(order)
        opener = draw.pick(_NEXT[split]) if sentences else ""
        if i + 1 < len(parts) and (parts[i + 1].depends_on(parts[i]) or draw.below(4) == 0):
            before = draw.pick(_BEFORE[split])
            sentences.append(upper(f"{opener}{clauses[i + 1]}, {before}{clauses[i]}."))
            order += [i + 1, i]
            continue
        if i + 1 == len(parts):
            opener = draw.pick(_LAST[split])
        sentences.append(upper(f"{opener}{clauses[i]}."))
        order.append(i)
    return " ".join(sentences), tuple(order)


def _goal_first(draw: Draw, split: Split, parts: Sequence[Part]) -> tuple[str, tuple[int, ...]]:
    """The last thing first."""
    *rest, last = [_clause(draw, split, part) for part in parts]
    body = draw.pick(_GOAL[split]).format(last=last, rest=", then ".join(rest))
    return upper(body), (len(parts) - 1, *range(len(parts) - 1))
