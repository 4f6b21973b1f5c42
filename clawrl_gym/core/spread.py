"""An even selection of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def evenly(entries: Sequence[T], count: int) -> list[T]:
    """At most `count` entries, in order; of two and more the first and the last are among them."""
    if len(entries) <= count:
        return list(entries)
    if count < 2:
        return list(entries[:count])
    last = len(entries) - 1
    return [entries[round(index * last / (count - 1))] for index in range(count)]
