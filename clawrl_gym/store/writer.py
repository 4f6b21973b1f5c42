"""The store's one writer: a thread that commits all waiting jobs in one transaction.

A job's future resolves only after the COMMIT that holds it; a job that fails is undone alone. Log
lines are written after the commit and before any caller has its answer.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from clawrl_gym.core.errors import DiskFull, StoreError
from clawrl_gym.core.files.jsonl import JsonLines
from clawrl_gym.core.repeats import Repeats

T = TypeVar("T")
MAX_GROUP = 1024
"""Jobs of one transaction; bounds the time until the first of them is acknowledged."""
_READERS_WAIT_MS = 100
"""Milliseconds that a checkpoint waits for readers of an older state."""
_TIMEOUT_MS = 10_000
_TABLES_WITH_POSITIONS = ("turns", "verdicts", "samples")

_log = logging.getLogger(__name__)
_waiting = Repeats(lambda line: _log.warning("%s", line))


class Positions:
    """The last position given to a row of each table, `save`d before the row may be deleted.

    Positions only ever increase, also past rows that were deleted: what still refers to a deleted
    row never meets another one.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        saved = dict(db.execute("SELECT key, value FROM meta WHERE key LIKE 'last_%'").fetchall())
        self.last: dict[str, int] = {
            table: max(
                db.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0],
                int(saved.get(f"last_{table}", 0)),
            )
            for table in _TABLES_WITH_POSITIONS
        }

    def next(self, table: str) -> int:
        position = self.last[table] + 1
        self.last[table] = position
        return position

    def save(self, db: sqlite3.Connection) -> None:
        """Save the positions; called by a job that deletes rows."""
        rows = [(f"last_{table}", str(last)) for table, last in self.last.items()]
        db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)


@dataclass(slots=True)
class Transaction:
    """A job's access to the store: the database, and log lines that follow its commit."""

    db: sqlite3.Connection
    positions: Positions
    lines: list[tuple[JsonLines, dict[str, object]]] = field(default_factory=list)

    def log(self, file: JsonLines, line: dict[str, object]) -> None:
        self.lines.append((file, line))

    def insert(self, statement: str, row: Mapping[str, object]) -> bool:
        """Insert one row; False when an existing one stayed."""
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        cursor = self.db.execute(f"{statement} ({names}) VALUES ({marks})", tuple(row.values()))
        return cursor.rowcount > 0

    def add(self, table: str, row: Mapping[str, object]) -> int:
        """Insert one row at the next position, which is returned."""
        position = self.positions.next(table)
        self.insert(f"INSERT INTO {table}", {"id": position, **row})
        return position

    def one(self, query: str, parameters: tuple[object, ...] = ()) -> sqlite3.Row | None:
        """The first row of a query."""
        row: sqlite3.Row | None = self.db.execute(query, parameters).fetchone()
        return row


Job = Callable[[Transaction], T]


@dataclass(frozen=True, slots=True)
class _Request:
    """Work for the writer's thread, and the future of its caller."""

    work: Callable[[Any], object]
    future: asyncio.Future[Any]
    alone: bool = False
    """`work` takes the connection and runs outside any transaction, else it is a `Job`."""


_Outcome = tuple[asyncio.Future[Any], object, Exception | None]


class Writer:
    """Owns the write connection from construction to `close`."""

    def __init__(
        self,
        db: sqlite3.Connection,
        on_undo: Callable[[], None],
        exclusive: AbstractContextManager[object],
    ) -> None:
        """`on_undo` runs on the writer's thread whenever something written was undone.

        `exclusive` is entered for each transaction: one database in memory has one connection.
        """
        self._db = db
        self._on_undo = on_undo
        self._exclusive = exclusive
        self._positions = Positions(db)
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._closed = False
        self.commits = 0
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Job[T]) -> asyncio.Future[T]:
        """Run `job` in the next transaction; the future resolves once it is on disk."""
        return self._request(job, alone=False)

    def alone(self, work: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run `work` on the writer's thread, outside its transactions."""
        return self._request(work, alone=True)

    def end(self) -> None:
        """Take no more jobs. On the thread that submits, so that none slips in behind the end."""
        if not self._closed:
            self._closed = True
            self._requests.put(None)

    def finish(self) -> None:
        """Write pending jobs. Blocks; after `end`."""
        self._thread.join()

    def close(self) -> None:
        """Close the database. Blocks; after `finish`.

        Without a write-ahead log, unless somebody reads: so reading a run that is over leaves no
        files beside it, and goes without the right to write there.
        """
        try:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._db.execute("PRAGMA busy_timeout=0")
            with suppress(sqlite3.OperationalError):
                self._db.execute("PRAGMA journal_mode=DELETE")
        except sqlite3.Error as error:
            _log.warning("the write-ahead log stays beside run.db, which is complete: %s", error)
        self._db.close()

    def _request(self, work: Callable[[Any], T], alone: bool) -> asyncio.Future[T]:
        if self._closed:
            raise StoreError("the store is closed: nothing more can be written to it")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._requests.put(_Request(work, future, alone))
        return future

    def _run(self) -> None:
        ending = False
        while not ending:
            jobs: list[_Request] = []
            request = self._requests.get()
            while request is not None and not request.alone:
                jobs.append(request)
                if len(jobs) >= MAX_GROUP:
                    break
                try:
                    request = self._requests.get_nowait()
                except queue.Empty:
                    break
            ending = request is None
            if jobs:
                with self._exclusive:
                    outcomes = self._commit(jobs)
                _deliver(outcomes)
            if request is not None and request.alone:
                _deliver([self._work_alone(request)])

    def _work_alone(self, request: _Request) -> _Outcome:
        try:
            with self._exclusive:
                return request.future, request.work(self._db), None
        except (sqlite3.Error, OSError) as error:
            failure = StoreError(f"cannot write to the run's database: {error}")
            return request.future, None, failure

    def _commit(self, jobs: list[_Request]) -> list[_Outcome]:
        transaction = Transaction(self._db, self._positions)
        try:
            self._db.execute("BEGIN IMMEDIATE")
            outcomes = [self._attempt(request, transaction) for request in jobs]
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._on_undo()
            failure = _failure(error)
            return [(request.future, None, failure) for request in jobs]
        self.commits += 1
        _append(transaction.lines)
        return outcomes

    def _attempt(self, request: _Request, transaction: Transaction) -> _Outcome:
        """Run one job; undo it alone when it fails. An sqlite3.OperationalError ends the group."""
        lines = len(transaction.lines)
        self._db.execute("SAVEPOINT job")
        result: object = None
        failure: Exception | None = None
        try:
            result = request.work(transaction)
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
        return request.future, result, failure


def empty_wal(db: sqlite3.Connection) -> bool:
    """Move all into the database file and leave no byte beside it; False if readers prevent it."""
    try:
        db.execute(f"PRAGMA busy_timeout={_READERS_WAIT_MS}")
        busy = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.Error as error:
        _log.warning("the write-ahead log stays for now: %s", error)
        return False
    finally:
        db.execute(f"PRAGMA busy_timeout={_TIMEOUT_MS}")
    return not busy


def _append(lines: list[tuple[JsonLines, dict[str, object]]]) -> None:
    """Append lines. The commit stands anyway: reopening the run adds a line that failed."""
    for file, line in lines:
        try:
            file.append(line)
        except (StoreError, ValueError) as error:
            _waiting.add(f"a log line waits until the run is resumed: {error}")


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


def _failure(error: sqlite3.Error) -> StoreError:
    what = f"cannot write to the run's database: {error}"
    if "full" in str(error) or "disk I/O" in str(error):
        return DiskFull(f"{what}; make room on the disk, then resume with resume=")
    return StoreError(f"{what}; nothing of it was acknowledged; resume with resume=")
