"""Puts the parts of a plan into one request: the words around it, and each part in words."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.phrasing import CLOSINGS, Choices, Ordered, draw_style, in_order
from clawrl_gym.envs.showcase.terminal.composed.plan import Part

SIDE_EFFECTS = "Change nothing else; notes of your own belong in /tmp."
"""The rule of all composed tasks."""

_PUT: Choices = MappingProxyType(
    {
        "train": ("write|to {b}", "put|into {b}", "save|in {b}", "write|into {b}"),
        "heldout": ("store|in {b}", "place|in {b}", "write|down in {b}"),
    }
)
"""Phrases for `{put} ... {into}`."""
_RESULT: Choices = MappingProxyType(
    {"train": ("the result", "the new {noun}"), "heldout": ("the {noun} you have just made",)}
)
_OPENING: Choices = MappingProxyType(
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


def request(draw: Draw, split: Split, parts: Sequence[Part]) -> Ordered:
    """The request, and the parts in the order of its text."""

    def depends(after: int, before: int) -> bool:
        return parts[after].depends_on(parts[before])

    style = draw_style(draw, len(parts), depends)
    texts = clauses(draw, split, parts, pronouns=style.keeps_order)
    body, order = style.write(draw, split, texts, depends)
    return framed(draw, split, body), order


def plain_request(draw: Draw, parts: Sequence[Part]) -> Ordered:
    """The request in the order of the work, in the wording of training."""
    body, order = in_order(draw, len(parts), lambda: clauses(draw, "train", parts))
    return framed(draw, "train", body), order


def framed(draw: Draw, split: Split, body: str) -> str:
    """A request's body with the words around it, and the rule."""
    opening = draw.pick(_OPENING[split])
    closing = f"{draw.pick(CLOSINGS[split])} {SIDE_EFFECTS}".lstrip()
    between = "" if body.endswith("\n") else " "
    return f"{opening}{body}{between}{closing}"


def clauses(draw: Draw, split: Split, parts: Sequence[Part], *, pronouns: bool = True) -> list[str]:
    """Each part as an imperative; with `pronouns` one may call "the result" what the part before
    it has made."""
    return [
        _clause(draw, split, part, pronoun=pronouns and _names_follow(parts, i))
        for i, part in enumerate(parts)
    ]


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
