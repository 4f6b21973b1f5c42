"""Solved composed tasks, as a table by difficulty and by family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_HEADS = ("tasks", "oracle", "nothing", "near")
_ROW = "{:>22} {:>6} {:>7} {:>8} {:>6} {:>9} {:>6}"


@dataclass(frozen=True, slots=True)
class Played:
    """One task, and who solved it."""

    family: str
    difficulty: int
    oracle: bool
    nothing: bool
    near: tuple[bool, ...]
    agents: tuple[bool, ...]
    """Others, in the order of their names."""


def show_table(tasks: Sequence[Played], agents: tuple[str, ...] = ("in order", "first")) -> None:
    """A row for each difficulty and family, for the hardest third, and for all.

    `agents`: what `Played.agents` are called.
    """
    played = sorted(tasks, key=lambda task: task.difficulty)
    hardest = played[-len(played) // 3 :]
    print(_ROW.format("", *_HEADS, *agents))
    for difficulty in sorted({task.difficulty for task in played}):
        _show(f"difficulty {difficulty}", [t for t in played if t.difficulty == difficulty])
    for family in sorted({task.family for task in played}):
        _show(family, [task for task in played if task.family == family])
    _show(f"hardest third ({hardest[0].difficulty}+)", hardest)
    _show("all", played)


def _show(label: str, played: Sequence[Played]) -> None:
    shares = (
        _share([task.oracle for task in played]),
        _share([task.nothing for task in played]),
        _share([solved for task in played for solved in task.near]),
        *(_share(solved) for solved in zip(*(task.agents for task in played), strict=True)),
    )
    print(_ROW.format(label, len(played), *(f"{share:.0%}" for share in shares)))


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values)
