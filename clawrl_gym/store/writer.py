"""The store's one writer: a thread that commits all waiting jobs in one transaction.

A job's future resolves only after the COMMIT that holds it; a job that fails is undone alone. Log
lines are written after the commit and before anybody is told.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from clawrl_gym.errors import StoreError
from clawrl_gym.jsonl import JsonLines

T = TypeVar("T")
MAX_GROUP = 1024
"""Jobs of one transaction; bounds the time until the first of them is acknowledged."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Transaction:
    """What a job may use: the database, and log lines that follow its commit."""

    db: sqlite3.Connection
    lines: list[tuple[JsonLines, dict[str, Any]]] = field(default_factory=list)

    def log(self, file: JsonLines, line: dict[str, Any]) -> None:
        self.lines.append((file, line))

    def insert(self, statement: str, row: dict[str, Any]) -> int:
        """Insert one row; returns its position, or 0 when an existing one stayed."""
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        cursor = self.db.execute(f"{statement} ({names}) VALUES ({marks})", tuple(row.values()))
        return (cursor.lastrowid or 0) if cursor.rowcount else 0

    def one(self, query: str, values: tuple[Any, ...] = ()) -> dict[str, Any] | None:
        cursor = self.db.execute(query, values)
        names = [column[0] for column in cursor.description]
        found = cursor.fetchone()
        return None if found is None else dict(zip(names, found, strict=True))


Job = Callable[[Transaction], T]
_Asked = tuple[Job[Any], asyncio.Future[Any]]
_Outcome = tuple[asyncio.Future[Any], Any, Exception | None]


class Writer:
    """Owns the write connection from construction to `close`."""

    def __init__(self, db: sqlite3.Connection, on_undo: Callable[[], None]) -> None:
        """`on_undo` runs on the writer's thread whenever something written was undone."""
        self._db = db
        self._on_undo = on_undo
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._closed = False
        self.commits = 0
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Job[T]) -> asyncio.Future[T]:
        """Run `job` in the next transaction; the future resolves once it is on disk."""
        if self._closed:
            raise StoreError("the store is closed: nothing more can be written to it")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._asked.put((job, future))
        return future

    def end(self) -> None:
        """Take no more jobs. On the thread that submits, so that none slips in behind the end."""
        if not self._closed:
            self._closed = True
            self._asked.put(None)

    def close(self) -> None:
        """Write what is waiting, then close the database. Blocks; after `end`."""
        self._thread.join()
        try:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            _log.warning("the write-ahead log stays beside run.db, which is complete: %s", error)
        self._db.close()

    def _run(self) -> None:
        ending = False
        while not ending:
            group: list[_Asked] = []
            asked = self._asked.get()
            while asked is not None:
                group.append(asked)
                if len(group) >= MAX_GROUP:
                    break
                try:
                    asked = self._asked.get_nowait()
                except queue.Empty:
                    break
            ending = asked is None
            if group:
                _deliver(self._commit(group))

    def _commit(self, group: list[_Asked]) -> list[_Outcome]:
        transaction = Transaction(self._db)
        try:
            self._db.execute("BEGIN IMMEDIATE")
            outcomes = [self._attempt(job, future, transaction) for job, future in group]
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._on_undo()
            failure = StoreError(f"cannot write to the run's database: {error}; {_cure(error)}")
            return [(future, None, failure) for _, future in group]
        self.commits += 1
        _append(transaction.lines)
        return outcomes

    def _attempt(
        self, job: Job[Any], future: asyncio.Future[Any], transaction: Transaction
    ) -> _Outcome:
        """Run one job; undo it alone when it fails. An sqlite3.OperationalError ends the group."""
        lines = len(transaction.lines)
        self._db.execute("SAVEPOINT job")
        result: Any = None
        failure: Exception | None = None
        try:
            result = job(transaction)
        except sqlite3.OperationalError:
            raise
        except sqlite3.IntegrityError as error:
            failure = StoreError(f"the store refused a record: {error}")
        except Exception as error:  # noqa: BLE001 (handed to the caller who waits for it)
            failure = error
        if failure is not None:
            self._db.execute("ROLLBACK TO job")
            del transaction.lines[lines:]
            self._on_undo()
        self._db.execute("RELEASE job")
        return future, result, failure


def _append(lines: list[tuple[JsonLines, dict[str, Any]]]) -> None:
    """The commit holds whatever happens here: reopening the run adds a line that failed."""
    for file, line in lines:
        try:
            file.append(line)
        except (StoreError, ValueError) as error:
            _log.warning("a log line waits until the run is resumed: %s", error)


def _deliver(outcomes: list[_Outcome]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome[0].get_loop(), []).append(outcome)
    for loop, own in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, own)
        except RuntimeError:
            _log.debug("the loop of %d writers has ended before their commit", len(own))


def _settle(outcomes: list[_Outcome]) -> None:
    for future, result, failure in outcomes:
        if future.done():
            continue
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)


def _cure(error: sqlite3.Error) -> str:
    if "full" in str(error) or "disk I/O" in str(error):
        return "make room on the disk, then go on with resume="
    return "nothing of it was acknowledged; go on with resume="
