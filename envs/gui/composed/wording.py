"""Puts the parts of a plan into one request."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.gui.composed.plan import Part
from clawrl_gym.envs.phrasing import Choices, Ordered, framed

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

    clauses = [_clause(draw, split, part) for part in parts]
    return framed(draw, split, clauses, depends, _OPENING)


def _clause(draw: Draw, split: Split, part: Part) -> str:
    """One part as an imperative."""
    words = draw.pick(part.phrasings.of(split)).format(**part.words)
    lead = "" if part.said is None else f"{part.words['lead']} "
    return f"{lead}{words}{part.tail}"
