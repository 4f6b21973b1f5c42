"""Puts the parts of a plan into one request, with the assistant's system message."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.phrasing import Choices, Ordered, around, framed, in_order
from clawrl_gym.envs.showcase.toolcall.composed.plan import Part
from clawrl_gym.envs.showcase.toolcall.composed.rules import ALWAYS

_OPENING: Choices = MappingProxyType(
    {
        "train": (
            "", "", "", "Hi! ", "Hello, I need a hand. ", "Good morning. ", "Some things to do: ",
            "I am in a hurry. ", "This is for the Monday round. ", "We are sorting a few things. ",
        ),
        "heldout": (
            "", "", "Hey there. ", "Before I leave, a few things. ",
            "Could you see to this for me? ", "My boss wants this by noon. ",
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
    said = [draw.pick(part.phrasings.of(split)).format(**part.words) for part in parts]
    return [
        clause if part.answer is None else f"{part.words['lead']} {clause}"
        for clause, part in zip(said, parts, strict=True)
    ]


def system(rules: Sequence[str]) -> str:
    """The system message, with these additional rules."""
    first, *always = ALWAYS
    return "\n".join([first, *(f"{i}. {rule}" for i, rule in enumerate((*always, *rules), 1))])
