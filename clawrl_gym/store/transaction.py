"""What a job of the writer works with.

Positions of rows only ever increase, also past rows that were deleted: what still asks for a
deleted row never meets another one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from clawrl_gym.core.jsonl import JsonLines

T = TypeVar("T")
_NUMBERED = ("turns", "verdicts", "samples")


class Numbers:
    """The last position given in each table; `keep` makes it outlive the deletion of its row."""

    def __init__(self, db: sqlite3.Connection) -> None:
        kept = dict(db.execute("SELECT key, value FROM meta WHERE key LIKE 'last_%'").fetchall())
        self.last: dict[str, int] = {
            table: max(
                db.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0],
                int(kept.get(f"last_{table}", 0)),
            )
            for table in _NUMBERED
        }

    def next(self, table: str) -> int:
        position = self.last[table] + 1
        self.last[table] = position
        return position

    def keep(self, db: sqlite3.Connection) -> None:
        """To be called by a job that deletes rows."""
        rows = [(f"last_{table}", str(last)) for table, last in self.last.items()]
        db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)


@dataclass(slots=True)
class Transaction:
    """What a job may use: the database, and log lines that follow its commit."""

    db: sqlite3.Connection
    numbers: Numbers
    lines: list[tuple[JsonLines, dict[str, Any]]] = field(default_factory=list)

    def log(self, file: JsonLines, line: dict[str, Any]) -> None:
        self.lines.append((file, line))

    def insert(self, statement: str, row: dict[str, Any]) -> bool:
        """Insert one row; False when an existing one stayed."""
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        cursor = self.db.execute(f"{statement} ({names}) VALUES ({marks})", tuple(row.values()))
        return cursor.rowcount > 0

    def add(self, table: str, row: dict[str, Any]) -> int:
        """Insert one row at the next position, which is returned."""
        position = self.numbers.next(table)
        self.insert(f"INSERT INTO {table}", {"id": position, **row})
        return position

    def one(self, query: str, values: tuple[Any, ...] = ()) -> dict[str, Any] | None:
        found = self.db.execute(query, values).fetchone()
        return None if found is None else dict(found)


Job = Callable[[Transaction], T]
