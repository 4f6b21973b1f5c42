"""Deleting sessions so that no byte of them stays in the run's files, while others write.

The rows go in small transactions, zeroed by SQLite (`secure_delete`), which also note that log
lines are still to go: by a digest, because the id itself may tell something. Then the logs are
written again without those lines, the write-ahead log is emptied and the unused bytes of the
database's pages are wiped; only then is the note removed. What a kill interrupts is done when the
folder is opened again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.ownership import stored_id
from clawrl_gym.store.journal import Journal
from clawrl_gym.store.pictures import PictureFiles, references_of, unreferenced
from clawrl_gym.store.training import forget_user
from clawrl_gym.store.turns import Bases
from clawrl_gym.store.writer import Transaction, Writer, empty_wal

_BUDGET_S = 0.05
"""Seconds that one transaction deletes before others have their turn."""
_TRIES = 5
_PAUSE_S = 0.1
"""Seconds between tries, while somebody reads an older state of the database."""
_LATER_S = 10.0
"""Seconds between tries, once the caller has its answer."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Deletion:
    """A session whose rows are gone and whose log lines are not yet."""

    digest: bytes
    last_turn_id: int
    """Last turn of the deleted session; later turns are of another session with the same id."""
    asked_s: float


class Deleter:
    """Deletes sessions in small transactions, then cleans the files once for all of them."""

    def __init__(
        self,
        writer: Writer,
        journal: Journal,
        unused_bytes: UnusedBytes,
        bases: Bases,
        pictures: PictureFiles,
        *,
        has_files: bool,
    ) -> None:
        """`has_files` False: the database is in memory and there is nothing to clean."""
        self._writer = writer
        self._journal = journal
        self._unused_bytes = unused_bytes
        self._bases = bases
        self._pictures = pictures
        self._has_files = has_files
        self._cleaning = asyncio.Lock()
        self._running: set[asyncio.Task[int]] = set()
        self._retry: asyncio.Task[None] | None = None

    async def delete(self, session_ids: Iterable[str]) -> int:
        """Delete sessions; returns how many there were. Continues when its caller is cancelled."""
        task = asyncio.ensure_future(self._delete(list(dict.fromkeys(session_ids))))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def finish(self) -> None:
        """Wait for the work in progress; cleaning that readers prevent waits for `open`."""
        if self._running:
            await asyncio.wait(self._running)
        if self._retry is not None:
            self._retry.cancel()
            await asyncio.wait([self._retry])

    async def _delete(self, session_ids: list[str]) -> int:
        deleted = 0
        while session_ids:
            delete_rows = partial(self._delete_rows, session_ids=session_ids)
            tried, present, digests = await self._writer.submit(delete_rows)
            if digests:
                await asyncio.to_thread(self._pictures.remove, digests)
            session_ids = session_ids[tried:]
            deleted += present
        if deleted:
            await self._clean_or_retry()
        return deleted

    async def forget_user(self, user: str) -> None:
        """Delete whatever names a user whose sessions are gone. Continues when its caller is
        cancelled."""
        task = asyncio.ensure_future(self._forget_user(user))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.shield(task)

    async def _forget_user(self, user: str) -> int:
        def job(tx: Transaction) -> None:
            forget_user(tx, user)
            if not self._has_files:
                tx.db.execute("DELETE FROM disk.user_updates WHERE user=?", (user,))
            _note(tx, stored_id(user, ""))

        await self._writer.submit(job)
        await self._clean_or_retry()
        return 0

    async def _clean_or_retry(self) -> None:
        if not await self._clean() and (self._retry is None or self._retry.done()):
            _log.warning(
                "somebody reads the run's database: bytes of deleted sessions stay in it until "
                "they are done; this is tried again every %g s",
                _LATER_S,
            )
            self._retry = asyncio.create_task(self._clean_later())

    def _delete_rows(self, tx: Transaction, session_ids: list[str]) -> tuple[int, int, list[str]]:
        """Delete rows; returns how many were tried and existed, and pictures without a session."""
        digests = references_of(tx.db, session_ids)
        tried, present = _delete_some(tx, session_ids)
        for session_id in present:
            self._bases.drop(session_id)
        return tried, len(present), unreferenced(tx.db, digests)

    async def _clean_later(self) -> None:
        cleaned = False
        while not cleaned:
            await asyncio.sleep(_LATER_S)
            with suppress(StoreError):  # a full disk: room may be made
                cleaned = await self._clean()

    async def _clean(self) -> bool:
        """Remove deleted data from the files; False when readers prevent it."""
        async with self._cleaning:
            deletions = await self._writer.submit(lambda tx: _pending(tx.db))
            if deletions and self._has_files:
                await asyncio.to_thread(self._journal.rewrite, line_filter(deletions))
                if not await self._wipe():
                    return False
            if deletions:  # else another deletion's pass took these along
                await self._writer.submit(lambda tx: _complete(tx.db, deletions))
            return True

    async def _wipe(self) -> bool:
        """Wipe bytes of deleted rows; others write in between. False when readers prevent it."""
        page, tries = 0, 0
        while tries < _TRIES:
            next_page = await self._writer.alone(partial(self._unused_bytes.wipe, page=page))
            if next_page is None:
                return True
            if next_page == page:
                tries += 1
                await asyncio.sleep(_PAUSE_S)
            page = next_page
        return False


def finish_interrupted(db: sqlite3.Connection, journal: Journal, unused_bytes: UnusedBytes) -> None:
    """Complete the deletions that a kill interrupted, before anybody writes."""
    if deletions := _pending(db):
        try:
            journal.rewrite(line_filter(deletions))
            if unused_bytes.wipe_all(db):
                _complete(db, deletions)
        except StoreError as error:
            _log.warning("deleted sessions stay in the logs for now: %s", error)


# The rows.


def _delete_some(tx: Transaction, session_ids: list[str]) -> tuple[int, list[str]]:
    """Delete the first sessions, as many as the budget of time allows and at least one.

    Returns how many it tried, and which of them were there.
    """
    began_s = time.monotonic()
    tx.positions.save(tx.db)
    present: list[str] = []
    for tried, session_id in enumerate(session_ids):
        if tried and time.monotonic() - began_s > _BUDGET_S:
            return tried, present
        if _delete_one(tx, session_id):
            present.append(session_id)
    return len(session_ids), present


def _delete_one(tx: Transaction, session_id: str) -> bool:
    groups = "SELECT group_id FROM samples WHERE session_id=? AND turn_id IS NOT NULL"
    samples = "SELECT id FROM samples WHERE session_id=?"
    turns = "SELECT id FROM turns WHERE session_id=?"
    for statement in (
        f"UPDATE groups SET task_id=NULL, compared=NULL WHERE group_id IN ({groups})",
        f"DELETE FROM batches WHERE sample_id IN ({samples})",
        "DELETE FROM samples WHERE session_id=?",
        f"DELETE FROM verdicts WHERE turn_id IN ({turns})",
        f"DELETE FROM next_states WHERE turn_id IN ({turns})",
        "DELETE FROM turns WHERE session_id=?",
        "DELETE FROM offers WHERE session_id=?",
        "DELETE FROM pictures WHERE session_id=?",
    ):
        tx.db.execute(statement, (session_id,))
    if not tx.db.execute("DELETE FROM sessions WHERE id=?", (session_id,)).rowcount:
        return False
    _note(tx, session_id)
    return True


def _note(tx: Transaction, session_id: str) -> None:
    """Note that log lines are still to be removed."""
    row = {
        "digest": digest_of(session_id), "last_turn_id": tx.positions.last["turns"],
        "asked_s": time.time(),
    }  # fmt: skip
    tx.insert("INSERT OR REPLACE INTO deletions", row)


def _pending(db: sqlite3.Connection) -> list[Deletion]:
    """Deletions whose log lines may still exist."""
    return [Deletion(*row) for row in db.execute("SELECT * FROM deletions")]


def _complete(db: sqlite3.Connection, deletions: list[Deletion]) -> None:
    """Forget these deletions, but not those of the same id that came meanwhile."""
    db.executemany(
        "DELETE FROM deletions WHERE digest=? AND asked_s=?",
        [(deletion.digest, deletion.asked_s) for deletion in deletions],
    )


# The lines of the logs.

_OWNER = re.compile(
    rb'\{"schema": \d+, "type": "(?:session_end", "id"|\w+", "id": \d+, "session_id"): '
    rb'("(?:[^"\\]|\\.)*")'
)
"""The beginning of a log line, up to its session; also of half a line that a crash left."""


def line_filter(deletions: list[Deletion]) -> Callable[[bytes], bool]:
    """A function that says whether a log line stays."""
    by_digest = {deletion.digest: deletion for deletion in deletions}

    def stays(line: bytes) -> bool:
        owner = _OWNER.match(line)
        if owner is None:
            return _is_whole(line)
        deletion = by_digest.get(digest_of(json.loads(owner[1])))
        return deletion is None or _is_later(line, deletion)

    return stays


def digest_of(session_id: str) -> bytes:
    return hashlib.blake2b(session_id.encode(errors="surrogatepass"), digest_size=16).digest()


def _is_whole(line: bytes) -> bool:
    """False for half a line without a session's id: nobody can tell whose it is, or read it."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _is_later(line: bytes, deletion: Deletion) -> bool:
    """Whether the line is of another session that took the id of the deleted one."""
    try:
        row = json.loads(line)
    except ValueError:
        return False
    if row["type"] in ("session_end", "taught"):  # a turn's number may be missing
        return bool(row["time_s"] > deletion.asked_s)
    return bool(row.get("turn_id", row["id"]) > deletion.last_turn_id)


# The pages of the database.

_PAGES_AT_ONCE = 1024
"""Pages wiped in one go, while nobody else writes."""
_INTERIOR, _LEAF = (2, 5), (10, 13)
"""First byte of the pages of trees. That of all others is the highest byte of a page number."""
_MAX_PAGES = 2 * 2**24
"""Beyond so many (128 GiB) that byte could be one of the above."""
_FILE_HEADER_BYTES = 100


class UnusedBytes:
    """Zeroes the bytes that SQLite leaves of moved rows in its file.

    `secure_delete` zeroes deleted rows, and the places that they had at the end. When pages are
    balanced, rows move to a neighbour and their bytes stay behind in the unused middle of the old
    page: a later delete does not know of them. The layout of a page is documented and stable
    (sqlite.org/fileformat2.html, "B-tree Pages"), so these middles can be found and wiped.

    Holds the file open as long as the database is: closing any handle of it would free the locks
    that SQLite holds for this process.
    """

    def __init__(self, path: Path) -> None:
        self._wal = path.with_name(path.name + "-wal")
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def wipe(self, db: sqlite3.Connection, page: int = 0) -> int | None:
        """Wipe some pages from `page` on; returns the page to continue with, None at the end.

        On the writer's thread, outside its transactions. The page that it returns is the same while
        somebody who reads an older state is in the way.
        """
        if not empty_wal(db):
            return page
        page_size = int(db.execute("PRAGMA page_size").fetchone()[0])
        db.execute("BEGIN IMMEDIATE")
        try:
            has_log = self._wal.exists() and self._wal.stat().st_size > 0
            if has_log or os.fstat(self._file).st_size > page_size * _MAX_PAGES:
                return page
            # with the log empty and the right to write held, nobody else writes the file now
            pages = os.pread(self._file, page_size * _PAGES_AT_ONCE, page_size * page)
            if self._wipe_pages(pages, page_size, page):
                os.fsync(self._file)
        finally:
            db.execute("ROLLBACK")
            db.execute("PRAGMA shrink_memory")  # pages in memory still have what was wiped
        return page + _PAGES_AT_ONCE if len(pages) == page_size * _PAGES_AT_ONCE else None

    def wipe_all(self, db: sqlite3.Connection) -> bool:
        """Wipe the whole file; False when a reader of an older state prevents it."""
        page: int | None = 0
        while page is not None:
            before, page = page, self.wipe(db, page)
            if page == before:
                return False
        return True

    def close(self) -> None:
        """Close the file, after the last connection to the database is closed."""
        os.close(self._file)

    def _wipe_pages(self, pages: bytes, page_size: int, first_page: int) -> bool:
        has_changed = False
        for start in range(0, len(pages), page_size):
            header = start if first_page or start else _FILE_HEADER_BYTES
            begin, end = _unused_range(pages, header, start)
            if pages.count(0, begin, end) < end - begin:
                os.pwrite(self._file, bytes(end - begin), page_size * first_page + begin)
                has_changed = True
        return has_changed


def _unused_range(pages: bytes, header: int, start: int) -> tuple[int, int]:
    """The unused range of a tree's page: between its list of cells and its first cell."""
    page_type = pages[header]
    if page_type not in _INTERIOR + _LEAF:
        return start, start
    cells = int.from_bytes(pages[header + 3 : header + 5])
    first_cell = int.from_bytes(pages[header + 5 : header + 7]) or 2**16
    begin = header + (12 if page_type in _INTERIOR else 8) + 2 * cells
    return begin, max(begin, start + first_cell)
