"""The store of one run: what happened, on disk before anybody is told.

One writer per folder, held by a lock that dies with the process. Every write returns only after its
commit (SQLite WAL, synchronous=FULL, group commit), so a kill -9 loses nothing acknowledged. A
sample counts as trained only once a checkpoint that includes it is recorded.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

from clawrl_gym.errors import StoreError, boundary
from clawrl_gym.jsonl import JsonLines
from clawrl_gym.store import journal, schema, training
from clawrl_gym.store.reader import StoreReader
from clawrl_gym.store.rows import SessionRow, StoredGroup, UpdateRow, turn_columns
from clawrl_gym.store.writer import Job, Transaction, Writer
from clawrl_gym.types import Group, Message, Sample, Turn

T = TypeVar("T")
BASES_KEPT = 4096
"""Open conversations whose last turn is kept, so that the next one stores only what it adds."""


class Store:
    """Async writes and reads for one event loop; see `StoreReader` for reading a run offline."""

    def __init__(self, folder: Path, db: sqlite3.Connection, lock: int) -> None:
        """Use `Store.open`."""
        self._lock: int | None = lock
        self._conversations = JsonLines(folder / journal.CONVERSATIONS_FILE)
        self._evaluations = JsonLines(folder / journal.EVALUATIONS_FILE)
        journal.add_missing(db, folder, journal.CONVERSATIONS_FILE, self._conversations)
        journal.add_missing(db, folder, journal.EVALUATIONS_FILE, self._evaluations)
        self._bases: OrderedDict[tuple[str, str], Turn] = OrderedDict()
        self._writer = Writer(db, on_undo=self._bases.clear)
        self._read_thread = ThreadPoolExecutor(1, thread_name_prefix="store-reader")
        self._reader = self._read_thread.submit(StoreReader, folder)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Create the run's database or open it to go on.

        Raises StoreError: the folder cannot be used or belongs to a run that is still going, the
        disk has no room, the file is not a run's database or has another schema version.
        """
        lock = schema.lock_folder(folder)
        try:
            schema.check_disk(folder)
            db = schema.connect_writer(folder / schema.DATABASE_FILE)
            try:
                return cls(folder, db, lock)
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
        return await self._write(
            lambda tx: tx.insert(
                "INSERT OR IGNORE INTO sessions",
                {
                    "id": session.id, "task_id": session.task_id, "group_id": session.group_id,
                    "split": session.split, "source": session.source,
                    "created_s": session.created_s,
                },
            ) != 0
        )  # fmt: skip

    async def add_turn(self, turn: Turn) -> int:
        """Record a turn; returns its store position once it is on disk."""
        return await self._write(lambda tx: self._add_turn(tx, turn))

    async def add_next_state(self, turn_id: int, messages: list[Message]) -> None:
        """Record what came back after a turn; the first record of a turn stays."""

        def job(tx: Transaction) -> None:
            owner = tx.db.execute("SELECT session_id FROM turns WHERE id=?", (turn_id,)).fetchone()
            if owner is None:
                raise StoreError(f"got a next state for turn {turn_id}, expected a stored turn")
            row: dict[str, Any] = {
                "turn_id": turn_id, "messages": json.dumps(messages), "created_s": time.time(),
            }  # fmt: skip
            if tx.insert("INSERT OR IGNORE INTO next_states", row):
                tx.log(self._conversations, journal.next_state_line(session_id=owner[0], **row))

        await self._write(job)

    async def end_session(
        self, session_id: str, *, reward: float | None, stop_reason: str, error: str | None = None
    ) -> bool:
        """Record a session's outcome; False when it had ended before, which then stays."""

        def job(tx: Transaction) -> bool:
            changed = tx.db.execute(
                "UPDATE sessions SET ended_s=?, reward=?, stop_reason=?, error=? "
                "WHERE id=? AND ended_s IS NULL",
                (time.time(), reward, stop_reason, error, session_id),
            ).rowcount
            row = tx.one("SELECT * FROM sessions WHERE id=?", (session_id,))
            if row is None:
                raise StoreError(f"got the end of session {session_id!r}, expected a stored one")
            if changed:
                tx.log(self._evaluations, journal.end_line(row))
            for kind in ("main", "side"):
                self._bases.pop((session_id, kind), None)
            return bool(changed)

        return await self._write(job)

    async def add_verdict(
        self, turn_id: int, kind: str, value: int | None, detail: dict[str, Any]
    ) -> int:
        """Record a judgement of a turn: `value` is -1, 0, +1, or None for an abstention."""

        def job(tx: Transaction) -> int:
            row = {
                "turn_id": turn_id, "kind": kind, "value": value,
                "detail": json.dumps(detail), "created_s": time.time(),
            }  # fmt: skip
            position = tx.insert("INSERT INTO verdicts", row)
            tx.log(self._evaluations, journal.verdict_line({"id": position, **row}))
            return position

        return await self._write(job)

    async def add_group(self, group: Group, samples: list[Sample]) -> list[Sample]:
        """Accept a whole group with its samples (none when it holds no signal), in one transaction.

        Returns the samples with their positions. The order of these calls is the order of training.
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

        One transaction. Raises StoreError when the version exists, a sample is unknown or in a
        batch already, or fewer groups wait than the update used; nothing of it is then stored.
        """
        await self._write(lambda tx: training.add_update(tx, update, sample_ids, checkpoint))

    async def rollback_to_checkpoint(self) -> UpdateRow | None:
        """For resume: undo updates after the last checkpoint; their groups and samples wait again.

        Returns the update of that checkpoint, or None when the run has none yet.
        """
        return await self._write(training.rollback)

    async def session(self, session_id: str) -> SessionRow | None:
        return await self._read(lambda reader: reader.session(session_id))

    async def sessions(self) -> list[SessionRow]:
        return await self._read(StoreReader.sessions)

    async def turns_of(self, session_id: str) -> list[Turn]:
        return await self._read(lambda reader: reader.turns_of(session_id))

    async def next_states_of(self, session_id: str) -> dict[int, list[Message]]:
        return await self._read(lambda reader: reader.next_states_of(session_id))

    async def untrained_samples(self) -> list[Sample]:
        """Samples that wait for training: in store order, groups kept together."""
        return await self._read(StoreReader.untrained_samples)

    async def untrained_groups(self) -> list[StoredGroup]:
        """Accepted groups that no update has used, in the order of their acceptance."""
        return await self._read(StoreReader.untrained_groups)

    async def group_numbers(self) -> set[int]:
        """Ids of all accepted groups."""
        return await self._read(StoreReader.group_numbers)

    async def samples_of_update(self, version: int) -> list[Sample]:
        return await self._read(lambda reader: reader.samples_of_update(version))

    async def updates(self) -> list[UpdateRow]:
        return await self._read(StoreReader.updates)

    async def close(self) -> None:
        """Write what is waiting and free the folder. Idempotent."""
        if self._lock is None:
            return
        lock, self._lock = self._lock, None
        with ExitStack() as stack:
            stack.callback(os.close, lock)
            for log in (self._conversations, self._evaluations):
                stack.callback(_close_log, log)
            self._writer.end()
            await asyncio.to_thread(self._writer.close)
            await self._read(StoreReader.close)
            self._read_thread.shutdown(wait=False)

    def _add_turn(self, tx: Transaction, turn: Turn) -> int:
        key = (turn.session_id, turn.kind)
        columns = turn_columns(turn, self._bases.get(key))
        position = tx.insert("INSERT INTO turns", columns)
        tx.log(self._conversations, journal.turn_line(position, columns))
        self._bases[key] = replace(turn, id=position)
        self._bases.move_to_end(key)
        if len(self._bases) > BASES_KEPT:
            self._bases.popitem(last=False)
        return position

    async def _write(self, job: Job[T]) -> T:
        return await self._writer.submit(job)

    async def _read(self, read: Callable[[StoreReader], T]) -> T:
        loop = asyncio.get_running_loop()
        with boundary(StoreError, "cannot read the run's database"):
            return await loop.run_in_executor(
                self._read_thread, lambda: read(self._reader.result())
            )


def _close_log(log: JsonLines) -> None:
    """A full disk must not keep the folder locked; reopening the run adds what was not written."""
    with suppress(OSError):
        log.close()
