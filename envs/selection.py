"""The used part of a set of tasks, and why not the rest: the same words for every loader.

A loader tries each task of a set when the set is opened and keeps those that load: what cannot load
is never drawn, and no single one refuses the others. `Selection` holds the count of the used and a
reason for each that is left out. A run says it at its start and in its report, `validate` after its
table. A set of which nothing is left is refused with the reasons.

A source of tasks that chooses has a property `selection`; one that takes everything has none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from clawrl_gym.core.errors import ClawError, TaskError, boundary

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

_MOST_REASONS = 12
_MOST_NAMES = 5
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One task that is not used."""

    name: str
    """Id or place by which it is found again."""
    reason: str
    """Reason in words, for people who can fix it."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Result of selecting from a set."""

    used: int
    left_out: tuple[LeftOut, ...] = ()
    untrusted: tuple[str, ...] = ()
    """Ids among the used whose grades an agent may have prepared."""
    notes: tuple[str, ...] = ()
    """Further notes on the set, such as what is held out and why."""

    @property
    def summary(self) -> str:
        """Both counts in one line."""
        tasks = "task" if self.used == 1 else "tasks"
        return f"{self.used:,} {tasks} used, {len(self.left_out):,} left out"

    def lines(self) -> tuple[str, ...]:
        """The counts, then the reasons, the most frequent first, when not all are used; then what
        else there is to know."""
        return (*self._left_out_lines(), *self._untrusted_lines(), *self.notes)

    def _untrusted_lines(self) -> tuple[str, ...]:
        if not self.untrusted:
            return ()
        grades = f"{len(self.untrusted):,} of {self.used:,} tasks used have grades that are not"
        return (f"{grades} trusted, as an agent may have prepared them {_names(self.untrusted)}",)

    def _left_out_lines(self) -> tuple[str, ...]:
        if not self.left_out:
            return ()
        groups = self.reasons()
        lines = [_group_line(reason, names) for reason, names in groups[:_MOST_REASONS]]
        if len(groups) > _MOST_REASONS:
            rest = sum(len(names) for _, names in groups[_MOST_REASONS:])
            lines.append(f"{rest:,}: {len(groups) - _MOST_REASONS} further reasons")
        return (f"{self.summary}:", *(f"  {line}" for line in lines))

    def reasons(self) -> list[tuple[str, list[str]]]:
        """The first reason of each kind with the names of all that have one like it.

        Reasons are of one kind when they differ only in quoted words, paths and numbers.
        """
        groups: dict[str, tuple[str, list[str]]] = {}
        for entry in self.left_out:
            kind = _VARYING.sub("*", entry.reason.replace(entry.name, "*"))
            groups.setdefault(kind, (entry.reason, []))[1].append(entry.name)
        return sorted(groups.values(), key=lambda group: -len(group[1]))

    def reason_of(self, name: str) -> str | None:
        """Why a task is left out; None when it is not."""
        return next((entry.reason for entry in self.left_out if entry.name == name), None)

    def require_some(self, where: str) -> None:
        """Raises TaskError with the reasons when nothing is used of the set at `where`."""
        if not self.used:
            reasons = (
                "; ".join(line.strip() for line in self._left_out_lines()[1:]) or "there is none"
            )
            raise TaskError(f"no task of {where} can be used here: {reasons}")


@runtime_checkable
class SelectiveSource(Protocol):
    """A source of tasks that may leave some out."""

    @property
    def selection(self) -> Selection: ...


def selection_of(source: object) -> Selection | None:
    """Selection of a source; None for one that takes everything."""
    return source.selection if isinstance(source, SelectiveSource) else None


def select(
    entries: Iterable[tuple[KeyT, ValueT]], load: Callable[[ValueT], object]
) -> tuple[list[KeyT], tuple[LeftOut, ...]]:
    """Try to load each entry: the keys of those that load, and the reasons of the others."""
    used: list[KeyT] = []
    left_out: list[LeftOut] = []
    for key, value in entries:
        try:
            with boundary(TaskError, f"task {str(key)!r}"):
                load(value)
        except ClawError as error:
            left_out.append(LeftOut(str(key), str(error)))
        else:
            used.append(key)
    return used, tuple(left_out)


_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\S*/\S*|\d+")
"""Parts of a reason that differ from task to task."""


def _group_line(reason: str, names: list[str]) -> str:
    shortened = _whole(" ".join(reason.split()))
    if len(shortened) > _LONGEST_REASON:
        shortened = f"{shortened[: _LONGEST_REASON - 4]} ..."
    return f"{len(names):,}: {shortened} {_names(names)}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return f"({', '.join(_whole(name) for name in names[:_MOST_NAMES])}{more})"


def _whole(text: str) -> str:
    """The text as a terminal can show it, whatever a data file calls its rows."""
    return text.encode(errors="replace").decode()
