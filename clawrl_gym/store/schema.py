"""The tables of run.db and how the file is opened.

A turn stores only what it adds to the turn before it (`base_*`), so a long session stays cheap.
A sample belongs to at most one batch; `trained_by` is the checkpoint that made its training last,
`used_by` the update whose batch used a group up.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from pathlib import Path

from clawrl_gym.errors import StoreError

DATABASE_FILE = "run.db"
LOCK_FILE = "run.lock"
SCHEMA_VERSION = 1
MIN_FREE_MB = 64
"""Room that the disk must have before a run starts."""

_FORMAT = "clawrl_gym run"

_TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE sessions (
        id TEXT PRIMARY KEY, task_id TEXT, group_id INTEGER, split TEXT NOT NULL,
        source TEXT NOT NULL, created_s REAL NOT NULL, ended_s REAL, reward REAL,
        stop_reason TEXT, error TEXT)""",
    """CREATE TABLE turns (
        id INTEGER PRIMARY KEY, session_id TEXT NOT NULL REFERENCES sessions(id),
        idx INTEGER NOT NULL, kind TEXT NOT NULL, base_id INTEGER REFERENCES turns(id),
        base_tokens INTEGER NOT NULL, prompt BLOB NOT NULL, sampled BLOB NOT NULL,
        logprobs BLOB NOT NULL, versions BLOB NOT NULL, finish_reason TEXT NOT NULL,
        base_messages INTEGER NOT NULL, messages TEXT NOT NULL, reply TEXT NOT NULL,
        created_s REAL NOT NULL, UNIQUE (session_id, idx))""",
    """CREATE TABLE next_states (
        turn_id INTEGER PRIMARY KEY REFERENCES turns(id), messages TEXT NOT NULL,
        created_s REAL NOT NULL)""",
    """CREATE TABLE verdicts (
        id INTEGER PRIMARY KEY, turn_id INTEGER NOT NULL REFERENCES turns(id),
        kind TEXT NOT NULL, value INTEGER CHECK (value IN (-1, 0, 1)), detail TEXT NOT NULL,
        created_s REAL NOT NULL)""",
    "CREATE INDEX verdicts_by_turn ON verdicts (turn_id)",
    """CREATE TABLE samples (
        id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, group_id INTEGER NOT NULL,
        ids BLOB NOT NULL, mask BLOB NOT NULL, logprobs BLOB NOT NULL, versions BLOB NOT NULL,
        advantages BLOB NOT NULL, reward REAL NOT NULL, trained_by INTEGER)""",
    "CREATE INDEX samples_by_session ON samples (session_id)",
    "CREATE INDEX samples_by_group ON samples (group_id)",
    """CREATE TABLE groups (
        position INTEGER PRIMARY KEY, group_id INTEGER NOT NULL UNIQUE, task_id TEXT,
        seed INTEGER NOT NULL, split TEXT NOT NULL, version INTEGER NOT NULL,
        created_s REAL NOT NULL, used_by INTEGER)""",
    """CREATE TABLE updates (
        version INTEGER PRIMARY KEY, groups INTEGER NOT NULL, tokens INTEGER NOT NULL,
        duration_s REAL NOT NULL, metrics TEXT NOT NULL, created_s REAL NOT NULL,
        checkpoint TEXT)""",
    """CREATE TABLE batches (
        version INTEGER NOT NULL REFERENCES updates(version), position INTEGER NOT NULL,
        sample_id INTEGER NOT NULL UNIQUE REFERENCES samples(id),
        PRIMARY KEY (version, position)) WITHOUT ROWID""",
)


def lock_folder(folder: Path) -> int:
    """Hold the run's folder; returns the open file that holds it (the system frees it on death).

    Raises StoreError when a living process has it, or when the folder cannot be used.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(
            f"cannot use the run folder {str(folder)!r}: {error.strerror}; give another run.dir"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise StoreError(
            f"got the folder {str(folder)!r} of a run that is still going (process {owner}), "
            "expected a free one; give another run.name or end that run first"
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def check_disk(folder: Path) -> None:
    """Raises StoreError when the disk has too little room to begin."""
    free_mb = shutil.disk_usage(folder).free / 2**20
    if free_mb < MIN_FREE_MB:
        raise StoreError(
            f"got {free_mb:.0f} MB of free disk at {str(folder)!r}, expected at least "
            f"{MIN_FREE_MB} MB; make room or give another run.dir"
        )


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open or create the database for its one writer.

    `synchronous=FULL`: a commit outlives power loss as well as kill -9. Group commit pays its
    fsync once for all callers that wait, so `NORMAL` would gain latency only. Raises StoreError.
    """
    try:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
        try:
            _check_format(db, path)
            if db.execute("PRAGMA journal_mode=WAL").fetchone() != ("wal",):
                raise sqlite3.OperationalError("its disk cannot hold a write-ahead log")
            db.execute("PRAGMA synchronous=FULL")
            db.execute("PRAGMA foreign_keys=ON")
            _create(db)
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as error:
        raise StoreError(
            f"cannot open {str(path)!r} as a run's database: {error}; "
            "give another run.dir, or restore the file"
        ) from error
    return db


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open an existing database for reading beside its writer. Raises StoreError."""
    if not path.exists():
        raise StoreError(f"got {str(path.parent)!r}, expected a run's folder with a {path.name}")
    try:
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=10.0)
        try:
            db.row_factory = sqlite3.Row
            _check_format(db, path)
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as error:
        raise StoreError(f"cannot read {str(path)!r} as a run's database: {error}") from error
    return db


def _tables(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type='table'")}


def _check_format(db: sqlite3.Connection, path: Path) -> None:
    """Refuse a database that is not ours or has another schema; an empty one is fine."""
    tables = _tables(db)
    if not tables:
        return
    meta = dict(db.execute("SELECT key, value FROM meta")) if "meta" in tables else {}
    if meta.get("format") != _FORMAT:
        raise StoreError(
            f"got {str(path)!r}, a database of something else; expected a run's database: "
            "give another run.dir"
        )
    if meta.get("schema_version") != str(SCHEMA_VERSION):
        raise StoreError(
            f"got {str(path)!r} with schema version {meta.get('schema_version')}, expected "
            f"{SCHEMA_VERSION}: use the clawrl_gym version that wrote it, or begin a new run"
        )


def _create(db: sqlite3.Connection) -> None:
    """All tables in one transaction, so that a kill leaves either none or all."""
    if _tables(db):
        return
    db.execute("BEGIN IMMEDIATE")
    for statement in _TABLES:
        db.execute(statement)
    meta = {"format": _FORMAT, "schema_version": str(SCHEMA_VERSION)}
    db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
    db.execute("COMMIT")
