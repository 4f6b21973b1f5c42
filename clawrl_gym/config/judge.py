"""Configuration of the judge, and the rules of the one that needs no model."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from clawrl_gym.config.part import Part


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"expected a regular expression: {error}") from error
    return pattern


Regex = Annotated[str, AfterValidator(_compiles)]
"""A regular expression; upper and lower case are the same to it."""


class ReplyRule(Part):
    """What a person's answer says about the reply before it."""

    patterns: tuple[Regex, ...]
    """One of them begins a clause of the answer's opening, perhaps after words of no weight."""
    unless: tuple[Regex, ...] = ()
    """Where one of them is found in the opening, the rule does not hold."""
    first: bool = False
    """Only the first clause that has words of weight counts."""
    after_question: bool = True
    """False: it does not hold when the reply asked something (a bare "no" is then an answer)."""
    value: Literal[-1, 0, 1]
    """Of the rules that hold, 0 wins over -1 and -1 over +1."""


class ResultRule(Part):
    """What a tool's result in words says about the call; every pattern given must hold."""

    head: Regex | None = None
    """Found at the very beginning of the result."""
    tail: Regex | None = None
    """Found in the last characters of the result."""
    of_contents: bool = False
    """True: it holds too for a result that is the contents of a file."""
    value: Literal[-1, 0, 1]
    """Of the rules that hold, 0 wins over -1 and -1 over +1; a result without any is +1."""


class JudgeConfig(Part):
    """Who turns a next state into a verdict. Explicit feedback always wins over it."""

    type: Literal["none", "rule"] = "none"
    """`rule`: patterns in the next state; `none`: only outcomes and feedback."""
    concurrency: int = Field(8, ge=1)
    """Turns judged at once."""
    max_waiting: int = Field(10_000, ge=1)
    """Turns that wait for the judge; beyond it they wait in the store."""
    timeout_s: float = Field(60.0, gt=0)
    """A judgement that takes longer abstains."""
    ignore: tuple[Regex, ...] = ()
    """What clients put around a person's words; taken out before anything is judged."""
    words: dict[str, tuple[Regex, ...]] = Field(default_factory=dict)
    """type=rule: alternatives that the rules for replies call by name in braces; `no_weight` are
    the words that may stand before a pattern."""
    replies: dict[str, ReplyRule] = Field(default_factory=dict)
    """type=rule: by name, the rules for what a person answers."""
    results: dict[str, ResultRule] = Field(default_factory=dict)
    """type=rule: by name, the rules for the results of tools."""
    readers: tuple[str, ...] = ()
    """type=rule: tools whose result is the contents of a file; words in it say nothing."""
    reading: Regex | None = None
    """type=rule: found at the beginning of a command whose output is the contents of a file."""
