"""Puts the parts of a plan into one request."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.phrasing import Choices, Ordered, around, framed, in_order
from clawrl_gym.envs.showcase.gui.composed.plan import Part

_OPENING: Choices = MappingProxyType(
    {
        "train": (
            "", "", "", "Hi! ", "Hello, a few things for you. ", "Good morning. ",
            "I am away from my desk. ", "I am in a hurry. ", "Please see to this today. ",
            "We are catching up with things. ",
        ),
        "heldout": (
            "", "", "Hey there. ", "Before I leave, some things to do. ",
            "Could you see to this for me? ", "The train is about to go, so in short: ",
        ),
    }
)  # fmt: skip


def request(draw: Draw, split: Split, parts: Sequence[Part]) -> Ordered:
    """The request, and the parts in the order of its text."""

    def depends(after: int, before: int) -> bool:
        return parts[after].depends_on(parts[before])

    return framed(draw, split, clauses(draw, split, parts), depends, _OPENING)


def plain_request(draw: Draw, parts: Sequence[Part]) -> Ordered:
    """The request in the order of the work, in the wording of training."""
    body, order = in_order(draw, len(parts), lambda: clauses(draw, "train", parts))
    return surrounded(draw, "train", body), order


def surrounded(draw: Draw, split: Split, body: str) -> str:
    """A request's body with the words before and after it."""
    return around(draw, split, body, _OPENING)


def clauses(draw: Draw, split: Split, parts: Sequence[Part]) -> list[str]:
    """Each part as an imperative."""
    return [_clause(draw, split, part) for part in parts]


def _clause(draw: Draw, split: Split, part: Part) -> str:
    """One part as an imperative."""
    words = draw.pick(part.phrasings.of(split)).format(**part.words)
    lead = "" if part.said is None else f"{part.words['lead']} "
    return f"{lead}{words}{part.tail}"
