"""What SQLite leaves of moved rows in its file, made zero.

`secure_delete` zeroes deleted rows, and the places that they had at the end. When pages are
balanced, rows move to a neighbour and their bytes stay behind in the unused middle of the old page:
a later delete does not know of them. The layout of a page is documented and stable
(sqlite.org/fileformat2.html, "B-tree Pages"), so these middles can be found and wiped.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from clawrl_gym.store.writer import empty_wal

PAGES_AT_ONCE = 1024
"""Pages wiped while nobody else writes."""
_INTERIOR, _LEAF = (2, 5), (10, 13)
"""First byte of the pages of trees. That of all others is the highest byte of a page number."""
_MAX_PAGES = 2 * 2**24
"""Beyond so many (128 GiB) that byte could be one of the above."""
_FILE_HEADER_BYTES = 100


class Slack:
    """The unused bytes of one database file.

    Holds the file open as long as the database is: closing any handle of it would free the locks
    that SQLite holds for this process.
    """

    def __init__(self, path: Path) -> None:
        self._wal = path.with_name(path.name + "-wal")
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def wipe(self, db: sqlite3.Connection, page: int = 0) -> int | None:
        """Wipe some pages from `page` on; returns the page to go on with, None at the end.

        On the writer's thread, outside its transactions. The page given back is the same while
        somebody who reads an older state is in the way.
        """
        if not empty_wal(db):
            return page
        size = int(db.execute("PRAGMA page_size").fetchone()[0])
        db.execute("BEGIN IMMEDIATE")
        try:
            has_log = self._wal.exists() and self._wal.stat().st_size > 0
            if has_log or os.fstat(self._file).st_size > size * _MAX_PAGES:
                return page
            # with the log empty and the right to write held, nobody else writes the file now
            told = os.pread(self._file, size * PAGES_AT_ONCE, size * page)
            if self._wipe_some(told, size, page):
                os.fsync(self._file)
        finally:
            db.execute("ROLLBACK")
            db.execute("PRAGMA shrink_memory")  # pages in memory still have what was wiped
        return page + PAGES_AT_ONCE if len(told) == size * PAGES_AT_ONCE else None

    def wipe_all(self, db: sqlite3.Connection) -> bool:
        """Wipe the whole file; False when somebody who reads an older state is in the way."""
        page: int | None = 0
        while page is not None:
            before, page = page, self.wipe(db, page)
            if page == before:
                return False
        return True

    def close(self) -> None:
        """After the last connection to the database is closed."""
        os.close(self._file)

    def _wipe_some(self, told: bytes, size: int, page: int) -> bool:
        changed = False
        for at in range(0, len(told), size):
            header = at if page or at else _FILE_HEADER_BYTES
            begin, end = _unused(told, header, at)
            if told.count(0, begin, end) < end - begin:
                os.pwrite(self._file, bytes(end - begin), size * page + begin)
                changed = True
        return changed


def _unused(told: bytes, header: int, page: int) -> tuple[int, int]:
    """Where a tree's page has nothing: between its list of cells and its first cell."""
    kind = told[header]
    if kind not in _INTERIOR + _LEAF:
        return page, page
    cells = int.from_bytes(told[header + 3 : header + 5])
    first_cell = int.from_bytes(told[header + 5 : header + 7]) or 2**16
    begin = header + (12 if kind in _INTERIOR else 8) + 2 * cells
    return begin, max(begin, page + first_cell)
