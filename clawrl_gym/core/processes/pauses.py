"""Pauses between attempts: short at first, so that a hiccup costs little, then longer."""

from __future__ import annotations

from collections.abc import Iterator


def growing_pauses_s(first_s: float, longest_s: float) -> Iterator[float]:
    """`first_s`, then each twice the one before, but none above `longest_s`; without an end."""
    pause_s = first_s
    while True:
        yield min(pause_s, longest_s)
        pause_s = min(2 * pause_s, longest_s)
