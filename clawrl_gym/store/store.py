"""The store of one run: events are on disk before anybody is told.

One writer per folder, held by a lock that dies with the process. Every write returns only after its
commit (SQLite WAL, synchronous=FULL, group commit), so a kill -9 loses nothing acknowledged. A
sample counts as trained only once a checkpoint that includes it is recorded. A run that is not
recorded is kept in memory: nothing of a conversation is on the disk, only the updates' numbers.
"""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Concatenate, ParamSpec, Self, TypeVar

from clawrl_gym.core.errors import DiskFull, StoreError, boundary
from clawrl_gym.core.files.folder_lock import lock_folder
from clawrl_gym.core.files.log_files import FULL_BYTES
from clawrl_gym.core.ownership import OWNER
from clawrl_gym.core.types import Compared, DistilledTurn, Group, Message, Sample, Turn, Verdict
from clawrl_gym.store import journal, pictures, schema, sessions, training, turns, verdicts
from clawrl_gym.store.deletion import Deleter, UnusedBytes, finish_interrupted
from clawrl_gym.store.reader import StoreReader
from clawrl_gym.store.rows import SessionRow, UpdateRow
from clawrl_gym.store.writer import Job, Transaction, Writer

T = TypeVar("T")
P = ParamSpec("P")
MIN_FREE_MB = 64
"""Free MB that the disk must have before a run starts."""


def _awaited(
    read: Callable[Concatenate[StoreReader, P], T],
) -> Callable[Concatenate[Store, P], Coroutine[None, None, T]]:
    """A read of `StoreReader`, off the event loop."""

    @functools.wraps(read)
    async def read_on_thread(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store._read(lambda reader: read(reader, *args, **kwargs))

    return read_on_thread


class Store:
    """Async writes and reads for one event loop; see `StoreReader` for reading a run offline."""

    def __init__(
        self, folder: Path, db: sqlite3.Connection, lock: int, record: bool, log_bytes: int
    ) -> None:
        """Private; use `Store.open`."""
        self._lock: int | None = lock
        self.records = record
        """False: everything but the updates' numbers is in memory only."""
        self._unused_bytes = UnusedBytes(folder / schema.DATABASE_FILE)
        self._journal = journal.Journal(folder if record else None, log_bytes)
        finish_interrupted(db, self._journal, self._unused_bytes)
        self._journal.add_missing(db)
        self.pictures = pictures.PictureFiles(folder if record else None)
        if record:
            self.pictures.remove_all_but(pictures.all_references(db))
        self._bases = turns.Bases()
        self._exclusive: AbstractContextManager[object] = (
            nullcontext() if record else threading.Lock()
        )
        self._next_group = 0
        self._writer = Writer(db, self._bases.clear, self._exclusive)
        self._read_thread = ThreadPoolExecutor(1, thread_name_prefix="store-reader")
        self._reader = self._read_thread.submit(StoreReader, folder, None if record else db)
        self._deleter = Deleter(
            self._writer,
            self._journal,
            self._unused_bytes,
            self._bases,
            self.pictures,
            has_files=record,
        )

    @classmethod
    def open(cls, folder: Path, record: bool = True, log_bytes: int = FULL_BYTES) -> Self:
        """Create the run's database, or open it to resume.

        `log_bytes`: of a file of the logs, before the next one begins.

        Without `record`, what was recorded before stays as it is and is not seen, but for updates:
        learning resumes from the last checkpoint.
        Raises StoreError: the folder cannot be used or belongs to a run that is still going, the
        disk has no room, the file is not a run's database or has another schema version.
        """
        lock = lock_folder(folder)
        try:
            _check_disk(folder)
            connect = schema.connect_writer if record else schema.connect_memory
            db = connect(folder / schema.DATABASE_FILE)
            try:
                return cls(folder, db, lock, record, log_bytes)
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
        """Record a session's start; False when it existed already, which then stays."""
        return await self._write(lambda tx: sessions.add_session(tx, session))

    async def add_turn(self, turn: Turn, node: str = "") -> int:
        """Record a turn; returns its store position once it is on disk.

        `node` is its place in the conversation, as the text of a `TurnNode`.
        """

        def job(tx: Transaction) -> int:
            columns = turns.add_turn(tx, self._bases, turn, node)
            self._journal.log(tx, journal.turn_line(columns))
            return columns["id"]

        return await self._write(job)

    async def add_next_state(self, turn_id: int, messages: list[Message]) -> None:
        """Record the messages after a turn; the first record of a turn stays."""

        def job(tx: Transaction) -> None:
            if columns := sessions.add_next_state(tx, turn_id, messages):
                self._journal.log(tx, journal.next_state_line(columns))

        await self._write(job)

    async def end_session(
        self,
        session_id: str,
        *,
        reward: float | None,
        stop_reason: str,
        error: str | None = None,
        solved: bool | None = None,
    ) -> bool:
        """Record a session's outcome; False when it had ended before, which then stays. `solved`:
        the environment's report of success."""

        def job(tx: Transaction) -> bool:
            row = sessions.end_session(tx, session_id, reward, stop_reason, error, solved)
            if row is not None:
                self._journal.log(tx, journal.end_line(row))
            self._bases.drop(session_id)
            return row is not None

        return await self._write(job)

    async def end_open_rollouts(self, why: str) -> int:
        """Record an end for episodes that nobody plays any more; returns how many."""

        def job(tx: Transaction) -> int:
            rows = sessions.end_open_rollouts(tx, why)
            for row in rows:
                self._journal.log(tx, journal.end_line(row))
                self._bases.drop(row["id"])
            return len(rows)

        return await self._write(job)

    async def reopen_session(self, session_id: str) -> bool:
        """Reopen a session that had ended; False when it had not."""
        return await self._write(lambda tx: sessions.reopen_session(tx, session_id))

    async def set_yield(self, session_id: str, samples: int, why: str | None) -> None:
        """Record the number of a session's samples, and why there are none."""
        await self._write(lambda tx: sessions.set_yield(tx, session_id, samples, why))

    async def delete_session(self, session_id: str) -> bool:
        """Delete a session with all its data; False when there is none of this id."""
        return await self.delete_sessions([session_id]) > 0

    async def delete_sessions(self, session_ids: Iterable[str]) -> int:
        """Delete sessions so that no byte of them stays in the files; returns how many there were.

        Many at once pass over the logs once. Goes on when its caller is cancelled; what a kill
        interrupts is done when the folder is opened again.
        """
        return await self._deleter.delete(session_ids)

    async def sessions_of_user(self, user: str) -> list[str]:
        """Ids of all sessions of a user other than the owner; every write that came before this
        call is seen."""
        return await self._write(lambda tx: sessions.ids_of_user(tx, user))

    async def delete_user(self, user: str) -> int:
        """Delete all sessions and updates of a user other than the owner, so that no byte of them
        stays in the files; returns how many sessions there were."""
        deleted = 0
        while session_ids := await self.sessions_of_user(user):
            deleted += await self.delete_sessions(session_ids)
        await self._deleter.forget_user(user)
        return deleted

    async def forget_pictures(self, digests: Iterable[str]) -> None:
        """Delete the pictures among these that no session refers to and nobody has pinned."""
        candidates = set(digests)
        unreferenced = await self._write(lambda tx: pictures.unreferenced(tx.db, candidates))
        await asyncio.to_thread(self.pictures.remove, unreferenced)

    async def add_verdict(self, verdict: Verdict) -> int:
        """Record a judgement; returns its position. Raises StoreError for an unknown turn."""

        def job(tx: Transaction) -> int:
            columns = verdicts.add_verdict(tx, verdict)
            self._journal.log(tx, journal.verdict_line(columns))
            return columns["id"]

        return await self._write(job)

    async def settle(self, turn_id: int) -> None:
        """Record that a turn's present verdicts yield no sample, and that none is waited for."""
        await self._write(lambda tx: verdicts.settle(tx, turn_id))

    async def withdraw(self, turn_id: int) -> int:
        """Take back a turn's samples that are in no batch; returns how many. Groups stay, empty."""
        return await self._write(lambda tx: verdicts.withdraw(tx, turn_id))

    async def next_group_id(self) -> int:
        """An id that no accepted group has and that is never given again."""

        def job(tx: Transaction) -> int:
            group_id = max(self._next_group, training.next_group_id(tx))
            self._next_group = group_id + 1
            return group_id

        return await self._write(job)

    async def add_group(
        self,
        group: Group,
        samples: list[Sample],
        compared: Sequence[Compared] = (),
        user: str = OWNER,
    ) -> list[Sample]:
        """Accept a whole group with its samples (none when it holds no signal), in one transaction.

        `user`: whose weights learn of it.
        `compared` is what the algorithm's running means took in with it. Returns the samples with
        their positions, without those of turns that were deleted. The order of these calls is the
        order of training.
        """
        return await self._write(lambda tx: training.add_group(tx, group, samples, compared, user))

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

    async def add_user_update(self, user: str, update: UpdateRow, checkpoint: str | None) -> None:
        """Record an update of a user's own weights; with a checkpoint, all groups that their
        updates used are trained.

        One transaction. Raises StoreError when the version exists, or fewer groups of theirs wait
        than the update used; nothing of it is then stored.
        """

        def job(tx: Transaction) -> None:
            row = training.add_user_update(tx, user, update, checkpoint)
            if not self.records:
                tx.insert("INSERT INTO disk.user_updates", row | {"groups": 0})

        await self._write(job)

    async def add_distilled_turns(self, version: int, distilled_turns: list[DistilledTurn]) -> None:
        """Log the teacher's gaps on turns in an update; not kept in the database."""

        def job(tx: Transaction) -> None:
            for turn in distilled_turns:
                session_id = training.session_of_sample(tx, turn.sample_id)
                if session_id is not None:  # else it was deleted
                    line = journal.distilled_turn_line(turn, session_id, version, time.time())
                    self._journal.log(tx, line)

        await self._write(job)

    async def rollback_to_checkpoint(self) -> UpdateRow | None:
        """For resume: undo updates after the last checkpoint, of the run's own weights and of each
        user's; their groups and samples wait again.

        Returns the update of the run's own checkpoint, or None when it has none yet.
        """

        def job(tx: Transaction) -> UpdateRow | None:
            last = training.rollback(tx)
            if not self.records:
                after = -1 if last is None else last.version
                tx.db.execute("DELETE FROM disk.updates WHERE version > ?", (after,))
                training.forget_unkept(tx, "disk")
            return last

        return await self._write(job)

    # Every read of `StoreReader`, awaited; what each returns is documented there.

    session = _awaited(StoreReader.session)
    sessions = _awaited(StoreReader.sessions)
    session_summaries = _awaited(StoreReader.session_summaries)
    open_live_sessions = _awaited(StoreReader.open_live_sessions)
    stored_bytes = _awaited(StoreReader.stored_bytes)
    expired_sessions = _awaited(StoreReader.expired_sessions)
    turn = _awaited(StoreReader.turn)
    answered_turn = _awaited(StoreReader.answered_turn)
    turns_of = _awaited(StoreReader.turns_of)
    page_of_turns = _awaited(StoreReader.page_of_turns)
    last_turns = _awaited(StoreReader.last_turns)
    nodes_of = _awaited(StoreReader.nodes_of)
    open_nodes = _awaited(StoreReader.open_nodes)
    last_main_turn = _awaited(StoreReader.last_main_turn)
    unanswered_turns = _awaited(StoreReader.unanswered_turns)
    next_state_of = _awaited(StoreReader.next_state_of)
    next_states_of = _awaited(StoreReader.next_states_of)
    verdicts_of = _awaited(StoreReader.verdicts_of)
    unjudged = _awaited(StoreReader.unjudged)
    judged_without_sample = _awaited(StoreReader.judged_without_sample)
    compared = _awaited(StoreReader.compared)
    ended_without_yield = _awaited(StoreReader.ended_without_yield)
    untrained_samples = _awaited(StoreReader.untrained_samples)
    untrained_groups = _awaited(StoreReader.untrained_groups)
    is_taught_by_feedback = _awaited(StoreReader.is_taught_by_feedback)
    judged_turns = _awaited(StoreReader.judged_turns)
    praised_samples = _awaited(StoreReader.praised_samples)
    group_numbers = _awaited(StoreReader.group_numbers)
    group_outcomes = _awaited(StoreReader.group_outcomes)
    begun_groups = _awaited(StoreReader.begun_groups)
    samples_of_session = _awaited(StoreReader.samples_of_session)
    samples_of_update = _awaited(StoreReader.samples_of_update)
    updates = _awaited(StoreReader.updates)
    updates_of = _awaited(StoreReader.updates_of)
    newest_of_users = _awaited(StoreReader.newest_of_users)

    async def close(self) -> None:
        """Write pending jobs and free the folder. Idempotent."""
        if self._lock is None:
            return
        lock, self._lock = self._lock, None
        with ExitStack() as stack:
            stack.callback(os.close, lock)
            stack.callback(self._unused_bytes.close)
            stack.callback(self._journal.close)
            stack.callback(self.pictures.close)
            await self._deleter.finish()
            self._writer.end()
            await asyncio.to_thread(self._writer.finish)
            await self._read(StoreReader.close)
            self._read_thread.shutdown(wait=False)
            await asyncio.to_thread(self._writer.close)

    async def _write(self, job: Job[T]) -> T:
        return await self._writer.submit(job)

    async def _read(self, read: Callable[[StoreReader], T]) -> T:
        def read_exclusively() -> T:
            with self._exclusive:
                return read(self._reader.result())

        loop = asyncio.get_running_loop()
        with boundary(StoreError, "cannot read the run's database"):
            return await loop.run_in_executor(self._read_thread, read_exclusively)


def _check_disk(folder: Path) -> None:
    """Raise DiskFull when there is too little room to begin."""
    free_mb = shutil.disk_usage(folder).free / 2**20
    if free_mb < MIN_FREE_MB:
        raise DiskFull(
            f"got {free_mb:.0f} MB of free disk at {str(folder)!r}, expected at least "
            f"{MIN_FREE_MB} MB; make room or give another run.dir"
        )
