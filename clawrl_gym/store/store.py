"""The store of one run: what happened, on disk before anybody is told.

One writer per folder, held by a lock that dies with the process. Every write returns only after its
commit (SQLite WAL, synchronous=FULL, group commit), so a kill -9 loses nothing acknowledged. A
sample counts as trained only once a checkpoint that includes it is recorded. A run that is not
recorded is kept in memory: nothing of a conversation is on the disk, only the updates' numbers.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, Self, TypeVar

from clawrl_gym.core.errors import StoreError, boundary
from clawrl_gym.core.types import Group, Message, Sample, Taught, Turn, Verdict
from clawrl_gym.store import (
    journal,
    place,
    schema,
    sessions,
    showings,
    training,
    turns,
    verdicts,
)
from clawrl_gym.store.album import Album
from clawrl_gym.store.eraser import Eraser
from clawrl_gym.store.logs import Logs
from clawrl_gym.store.reader import StoreReader
from clawrl_gym.store.reads import StoreReads
from clawrl_gym.store.rows import SessionRow, UpdateRow
from clawrl_gym.store.slack import Slack
from clawrl_gym.store.transaction import Job, Transaction
from clawrl_gym.store.turns import Bases
from clawrl_gym.store.writer import Writer

T = TypeVar("T")


class Store(StoreReads):
    """Async writes and reads for one event loop; see `StoreReader` for reading a run offline."""

    def __init__(self, folder: Path, db: sqlite3.Connection, lock: int, record: bool) -> None:
        """Use `Store.open`."""
        self._lock: int | None = lock
        self.records = record
        """False: everything but the updates' numbers is in memory only."""
        self._slack = Slack(folder / schema.DATABASE_FILE)
        self._logs = Logs(folder if record else None)
        self._logs.mend(db, self._slack)
        self.album = Album(folder if record else None)
        if record:
            self.album.remove_others(showings.shown(db))
        self._bases = Bases()
        self._one_at_a_time: AbstractContextManager[Any] = (
            nullcontext() if record else threading.Lock()
        )
        self._next_group = 0
        self._writer = Writer(db, self._bases.clear, self._one_at_a_time)
        self._read_thread = ThreadPoolExecutor(1, thread_name_prefix="store-reader")
        self._reader = (
            self._read_thread.submit(StoreReader, folder)
            if record
            else self._read_thread.submit(StoreReader.sharing, db)
        )
        self._eraser = Eraser(
            self._writer, self._logs, self._slack, self._bases, self.album, files=record
        )

    @classmethod
    def open(cls, folder: Path, record: bool = True) -> Self:
        """Create the run's database or open it to go on.

        Without `record`, what was recorded before stays as it is and is not seen, but for updates:
        learning goes on from the last checkpoint.
        Raises StoreError: the folder cannot be used or belongs to a run that is still going, the
        disk has no room, the file is not a run's database or has another schema version.
        """
        lock = place.lock_folder(folder)
        try:
            place.check_disk(folder)
            connect = schema.connect_writer if record else schema.connect_memory
            db = connect(folder / schema.DATABASE_FILE)
            try:
                return cls(folder, db, lock, record)
            except BaseException:
                db.close()
                raise
        except BaseException:
            os.close(lock)
            raise

    @property
    def commits(self) -> int:
        """Transactions so far; many waiting writers share one."""
        return self._writer.commits

    async def add_session(self, session: SessionRow) -> bool:
        """Record a session's beginning; False when it was there already, which then stays."""
        return await self._write(lambda tx: sessions.add_session(tx, session))

    async def add_turn(self, turn: Turn, mark: str = "") -> int:
        """Record a turn; returns its store position once it is on disk.

        `mark` is what the gateway knows it by again, see `TurnMark`.
        """

        def job(tx: Transaction) -> int:
            row = turns.add_turn(tx, self._bases, turn, mark)
            self._logs.told(tx, journal.turn_line(row))
            return int(row["id"])

        return await self._write(job)

    async def add_next_state(self, turn_id: int, messages: list[Message]) -> None:
        """Record what came back after a turn; the first record of a turn stays."""

        def job(tx: Transaction) -> None:
            if row := sessions.add_next_state(tx, turn_id, messages):
                self._logs.told(tx, journal.next_state_line(row))

        await self._write(job)

    async def end_session(
        self, session_id: str, *, reward: float | None, stop_reason: str, error: str | None = None
    ) -> bool:
        """Record a session's outcome; False when it had ended before, which then stays."""

        def job(tx: Transaction) -> bool:
            row = sessions.end_session(tx, session_id, reward, stop_reason, error)
            if row is not None:
                self._logs.told(tx, journal.end_line(row))
            self._bases.drop(session_id)
            return row is not None

        return await self._write(job)

    async def reopen_session(self, session_id: str) -> bool:
        """Go on with a session that had ended; False when it had not."""
        return await self._write(lambda tx: sessions.reopen_session(tx, session_id))

    async def set_yield(self, session_id: str, samples: int, why: str | None) -> None:
        """Record how many samples came of a session, and why there is none."""
        await self._write(lambda tx: sessions.set_yield(tx, session_id, samples, why))

    async def delete_session(self, session_id: str) -> bool:
        """Delete a session with all its data; False when there is none of this id."""
        return await self.delete_sessions([session_id]) > 0

    async def delete_sessions(self, session_ids: Iterable[str]) -> int:
        """Delete sessions so that no byte of them stays in the files; returns how many there were.

        Many at once pass over the logs once. Goes on when its caller is cancelled; what a kill
        interrupts is done when the folder is opened again.
        """
        return await self._eraser.delete(session_ids)

    async def forget_pictures(self, digests: Iterable[str]) -> None:
        """Delete those of the pictures that no session shows and nobody holds."""
        wanted = set(digests)
        unshown = await self._write(lambda tx: showings.unshown(tx.db, wanted))
        await asyncio.to_thread(self.album.remove, unshown)

    async def add_verdict(self, verdict: Verdict) -> int:
        """Record a judgement; returns its position. Raises StoreError for an unknown turn."""

        def job(tx: Transaction) -> int:
            row = verdicts.add_verdict(tx, verdict)
            self._logs.told(tx, journal.verdict_line(row))
            return int(row["id"])

        return await self._write(job)

    async def settle(self, turn_id: int) -> None:
        """No sample comes of the verdicts that a turn has so far, and none is waited for."""
        await self._write(lambda tx: verdicts.settle(tx, turn_id))

    async def withdraw(self, turn_id: int) -> int:
        """Take back a turn's samples that are in no batch; returns how many. Groups stay, empty."""
        return await self._write(lambda tx: verdicts.withdraw(tx, turn_id))

    async def next_group_id(self) -> int:
        """An id that no accepted group has and that is never given again."""

        def job(tx: Transaction) -> int:
            given = max(self._next_group, training.next_group_id(tx))
            self._next_group = given + 1
            return given

        return await self._write(job)

    async def add_group(self, group: Group, samples: list[Sample]) -> list[Sample]:
        """Accept a whole group with its samples (none when it holds no signal), in one transaction.

        Returns the samples with their positions, without those of turns that were deleted. The
        order of these calls is the order of training.
        """
        return await self._write(lambda tx: training.add_group(tx, group, samples))

    async def add_samples(self, samples: list[Sample]) -> list[int]:
        """Record samples outside any group, all or none; returns their increasing positions."""
        stored = await self._write(lambda tx: training.add_samples(tx, samples))
        return [sample.id for sample in stored if sample.id is not None]

    async def add_update(
        self, update: UpdateRow, sample_ids: list[int], checkpoint: str | None
    ) -> None:
        """Record an update and its batch; with a checkpoint, all batches up to it are trained.

        One transaction; samples that were deleted meanwhile are left out. Raises StoreError when
        the version exists, a sample is unknown or in a batch already, or fewer groups wait than the
        update used; nothing of it is then stored.
        """

        def job(tx: Transaction) -> None:
            row = training.add_update(tx, update, sample_ids, checkpoint)
            if not self.records:
                tx.insert("INSERT INTO disk.updates", row | {"groups": 0})

        await self._write(job)

    async def add_taught(self, version: int, taught: list[Taught]) -> None:
        """Log what the teacher thought of turns in an update; not kept in the database."""

        def job(tx: Transaction) -> None:
            for row in training.taught_turns(tx, version, taught):
                self._logs.told(tx, journal.taught_line(row))

        await self._write(job)

    async def rollback_to_checkpoint(self) -> UpdateRow | None:
        """For resume: undo updates after the last checkpoint; their groups and samples wait again.

        Returns the update of that checkpoint, or None when the run has none yet.
        """

        def job(tx: Transaction) -> UpdateRow | None:
            last = training.rollback(tx)
            if not self.records:
                after = -1 if last is None else last.version
                tx.db.execute("DELETE FROM disk.updates WHERE version > ?", (after,))
            return last

        return await self._write(job)

    async def close(self) -> None:
        """Write what is waiting and free the folder. Idempotent."""
        if self._lock is None:
            return
        lock, self._lock = self._lock, None
        with ExitStack() as stack:
            stack.callback(os.close, lock)
            stack.callback(self._slack.close)
            stack.callback(self._logs.close)
            stack.callback(self.album.close)
            await self._eraser.finish()
            self._writer.end()
            await asyncio.to_thread(self._writer.close)
            await self._read(StoreReader.close)
            self._read_thread.shutdown(wait=False)

    async def _write(self, job: Job[T]) -> T:
        return await self._writer.submit(job)

    async def _read(self, read: Callable[[StoreReader], T]) -> T:
        def use() -> T:
            with self._one_at_a_time:
                return read(self._reader.result())

        loop = asyncio.get_running_loop()
        with boundary(StoreError, "cannot read the run's database"):
            return await loop.run_in_executor(self._read_thread, use)
