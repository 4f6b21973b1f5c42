"""Seeded draws for generated tasks: the same in every process and Python version.

Only SHA-256 decides, never `random`, whose sequences may change between Python versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


STEMS = _words(
    "apple bread cloud daisy eagle flame grape honey island jungle kettle lemon maple night ocean "
    "piano queen river stone tiger uncle valley water zebra acorn beach candle desert engine "
    "forest garden hammer insect jacket kitten ladder magnet needle orange pencil rabbit saddle "
    "temple violin window yellow anchor basket camera dragon falcon guitar hockey iguana juniper "
    "lantern meadow nugget pepper rocket"
)
"""File and folder names, without extension."""

WORDS = _words(
    "amber brick coral delta ember frost gamma hazel ivory jade karma lunar mango nova olive pearl "
    "quartz ruby sigma topaz ultra velvet willow xenon yodel zinc argon birch cedar dune elder "
    "fern gravel heron ingot jasper kayak lilac mocha nectar onyx poppy quill raven salt tundra "
    "umber viola walnut yarrow zephyr bison clover dingo ermine ferret gecko hyena ibis koala"
)
"""Words that files hold. None is part of another word or of a stem: grep finds exactly one."""

EXTENSIONS = ("txt", "md", "log", "csv", "dat", "cfg", "ini", "bak")


class Draw:
    """An endless stream of choices that follows from a text alone."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._count = 0

    def below(self, n: int) -> int:
        """A whole number in [0, n); n is small against 2**64, so the bias is none to speak of."""
        digest = hashlib.sha256(f"{self._seed}/{self._count}".encode()).digest()
        self._count += 1
        return int.from_bytes(digest[:8], "big") % n

    def between(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return low + self.below(high - low + 1)

    def pick(self, choices: Sequence[T]) -> T:
        """One of the choices."""
        return choices[self.below(len(choices))]

    def some(self, choices: Sequence[T], k: int) -> list[T]:
        """k different choices, in random order."""
        left = list(choices)
        return [left.pop(self.below(len(left))) for _ in range(k)]

    def name(self) -> str:
        """A file name."""
        return f"{self.pick(STEMS)}.{self.pick(EXTENSIONS)}"

    def names(self, k: int) -> list[str]:
        """k file names with different stems."""
        return [f"{stem}.{self.pick(EXTENSIONS)}" for stem in self.some(STEMS, k)]

    def lines(self, low: int, high: int) -> list[str]:
        """Between low and high lines of one to three words."""
        count = self.between(low, high)
        return [" ".join(self.some(WORDS, self.between(1, 3))) for _ in range(count)]


def text(lines: Sequence[str]) -> bytes:
    """The lines as a file."""
    return "".join(f"{line}\n" for line in lines).encode()
