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
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.jsonl import JsonLines
from clawrl_gym.store.transaction import Job, Numbers, Transaction

T = TypeVar("T")
MAX_GROUP = 1024
"""Jobs of one transaction; bounds the time until the first of them is acknowledged."""
_READERS_WAIT_MS = 100
"""How long a checkpoint waits for those who read an older state."""
_TIMEOUT_MS = 10_000

_log = logging.getLogger(__name__)


_Outcome = tuple[asyncio.Future[Any], Any, Exception | None]


@dataclass(frozen=True, slots=True)
class _Asked:
    work: Callable[[Any], Any]
    future: asyncio.Future[Any]
    alone: bool = False
    """`work` takes the connection and runs outside any transaction."""


class Writer:
    """Owns the write connection from construction to `close`."""

    def __init__(
        self,
        db: sqlite3.Connection,
        on_undo: Callable[[], None],
        turn_of_use: AbstractContextManager[Any],
    ) -> None:
        """`on_undo` runs on the writer's thread whenever something written was undone.

        `turn_of_use` is held for each transaction: one database in memory has one connection.
        """
        self._db = db
        self._on_undo = on_undo
        self._turn_of_use = turn_of_use
        self._numbers = Numbers(db)
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._closed = False
        self.commits = 0
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Job[T]) -> asyncio.Future[T]:
        """Run `job` in the next transaction; the future resolves once it is on disk."""
        return self._ask(job, alone=False)

    def alone(self, work: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run `work` on the writer's thread, outside its transactions."""
        return self._ask(work, alone=True)

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

    def _ask(self, work: Callable[[Any], Any], alone: bool) -> asyncio.Future[Any]:
        if self._closed:
            raise StoreError("the store is closed: nothing more can be written to it")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked.put(_Asked(work, future, alone))
        return future

    def _run(self) -> None:
        ending = False
        while not ending:
            jobs: list[_Asked] = []
            asked = self._asked.get()
            while asked is not None and not asked.alone:
                jobs.append(asked)
                if len(jobs) >= MAX_GROUP:
                    break
                try:
                    asked = self._asked.get_nowait()
                except queue.Empty:
                    break
            ending = asked is None
            if jobs:
                with self._turn_of_use:
                    outcomes = self._commit(jobs)
                _deliver(outcomes)
            if asked is not None and asked.alone:
                _deliver([self._work_alone(asked)])

    def _work_alone(self, asked: _Asked) -> _Outcome:
        try:
            with self._turn_of_use:
                return asked.future, asked.work(self._db), None
        except (sqlite3.Error, OSError) as error:
            failure = StoreError(f"cannot write to the run's database: {error}")
            return asked.future, None, failure

    def _commit(self, jobs: list[_Asked]) -> list[_Outcome]:
        transaction = Transaction(self._db, self._numbers)
        try:
            self._db.execute("BEGIN IMMEDIATE")
            outcomes = [self._attempt(asked.work, asked.future, transaction) for asked in jobs]
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._on_undo()
            failure = StoreError(f"cannot write to the run's database: {error}; {_cure(error)}")
            return [(asked.future, None, failure) for asked in jobs]
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


def empty_wal(db: sqlite3.Connection) -> bool:
    """Bring all into the database file and leave no byte beside it; False when readers forbid."""
    try:
        db.execute(f"PRAGMA busy_timeout={_READERS_WAIT_MS}")
        busy = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.Error as error:
        _log.warning("the write-ahead log stays for now: %s", error)
        return False
    finally:
        db.execute(f"PRAGMA busy_timeout={_TIMEOUT_MS}")
    return not busy


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
