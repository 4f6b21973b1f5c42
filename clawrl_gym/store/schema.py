"""The tables of run.db and how the file is opened.

A turn stores only what it adds to the turn before it (`base_*`, see `delta.py`), and of its tools
only a digest (`offers`), so a long session stays cheap. A sample belongs to at most one batch;
`trained_by` is the checkpoint that made its training last, `used_by` the update whose batch used a
group up, `compared` what its verdicts and outcomes brought to the algorithm's running means.
`signal` is the kind of verdict that a live sample was made by.
`user` says whose weights learn of a group; it is empty for the run's own. A user's versions are
counted by themselves: `user_updates` has them, `updates` the run's own.
`bytes` is what a session's turns and next states take on the disk, since version 7. `solved` is
what its environment said of success, NULL where it said nothing.
`judged` and `settled` say that nobody waits for a turn's verdict, or for the sample of one: partial
indexes hold the rest.
`answer_id` is how a client names a turn that it continues, where its dialect lets it.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from pathlib import Path

from clawrl_gym.core.errors import StoreError

DATABASE_FILE = "run.db"
SCHEMA_VERSION = 9

_FORMAT = "clawrl_gym run"

_DELETIONS = """CREATE TABLE deletions (
    digest BLOB PRIMARY KEY, last_turn_id INTEGER NOT NULL, asked_s REAL NOT NULL) WITHOUT ROWID"""
"""Sessions whose rows are gone and whose log lines may not be; the id itself is not stored."""

_OFFERS = """CREATE TABLE offers (
    session_id TEXT NOT NULL REFERENCES sessions(id), digest BLOB NOT NULL, body BLOB NOT NULL,
    UNIQUE (session_id, digest))"""
"""Each distinct list of tools, and other words of the chat template, of a session."""

_PICTURES = """CREATE TABLE pictures (
    session_id TEXT NOT NULL REFERENCES sessions(id), digest TEXT NOT NULL,
    PRIMARY KEY (session_id, digest)) WITHOUT ROWID"""
"""The pictures that each session refers to."""

_USER_UPDATES = """CREATE TABLE user_updates (
    user TEXT NOT NULL, version INTEGER NOT NULL, groups INTEGER NOT NULL, tokens INTEGER NOT NULL,
    duration_s REAL NOT NULL, metrics TEXT NOT NULL, created_s REAL NOT NULL, checkpoint TEXT,
    PRIMARY KEY (user, version)) WITHOUT ROWID"""
"""Updates of the weights of users who have their own."""

_PICTURES_INDEX = "CREATE INDEX pictures_by_digest ON pictures (digest)"

_ANSWERS_INDEX = "CREATE INDEX turns_by_answer ON turns (answer_id) WHERE answer_id != ''"

_INDEXES = (
    "CREATE INDEX turns_by_base ON turns (base_id)",
    _ANSWERS_INDEX,
    "CREATE INDEX verdicts_waiting ON verdicts (turn_id) WHERE settled = 0",
    "CREATE INDEX next_states_waiting ON next_states (turn_id) WHERE judged = 0",
    "CREATE INDEX samples_by_turn ON samples (turn_id) WHERE turn_id IS NOT NULL",
    "CREATE INDEX groups_waiting ON groups (position) WHERE used_by IS NULL",
    "CREATE INDEX sessions_by_last ON sessions (last_s)",
    "CREATE INDEX sessions_open ON sessions (last_s) WHERE ended_s IS NULL",
    "CREATE INDEX sessions_ended ON sessions (ended_s) WHERE source = 'live'",
    "CREATE INDEX sessions_uncounted ON sessions (ended_s) "
    "WHERE source = 'live' AND samples IS NULL",
)

_TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE sessions (
        id TEXT PRIMARY KEY, task_id TEXT, group_id INTEGER, split TEXT NOT NULL,
        source TEXT NOT NULL, created_s REAL NOT NULL, ended_s REAL, reward REAL,
        stop_reason TEXT, error TEXT, matched_by TEXT, samples INTEGER, why TEXT,
        last_s REAL NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0, solved INTEGER)""",
    """CREATE TABLE turns (
        id INTEGER PRIMARY KEY, session_id TEXT NOT NULL REFERENCES sessions(id),
        idx INTEGER NOT NULL, kind TEXT NOT NULL, base_id INTEGER REFERENCES turns(id),
        base_tokens INTEGER NOT NULL, prompt BLOB NOT NULL, sampled BLOB NOT NULL,
        logprobs BLOB NOT NULL, versions BLOB NOT NULL, finish_reason TEXT NOT NULL,
        base_messages INTEGER NOT NULL, messages TEXT NOT NULL, reply TEXT NOT NULL,
        created_s REAL NOT NULL, rule TEXT NOT NULL DEFAULT '', copies TEXT NOT NULL DEFAULT '[]',
        mark TEXT NOT NULL DEFAULT '', tools BLOB, template BLOB, temperature REAL,
        untrainable TEXT NOT NULL DEFAULT '', stop_text TEXT,
        answer_id TEXT NOT NULL DEFAULT '', UNIQUE (session_id, idx))""",
    """CREATE TABLE next_states (
        turn_id INTEGER PRIMARY KEY REFERENCES turns(id), messages TEXT NOT NULL,
        created_s REAL NOT NULL, judged INTEGER NOT NULL DEFAULT 1)""",
    """CREATE TABLE verdicts (
        id INTEGER PRIMARY KEY, turn_id INTEGER NOT NULL REFERENCES turns(id),
        kind TEXT NOT NULL, value INTEGER CHECK (value IN (-1, 0, 1)), detail TEXT NOT NULL,
        created_s REAL NOT NULL, reward REAL, settled INTEGER NOT NULL DEFAULT 1,
        weight REAL NOT NULL DEFAULT 1)""",
    "CREATE INDEX verdicts_by_turn ON verdicts (turn_id)",
    """CREATE TABLE samples (
        id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, group_id INTEGER NOT NULL,
        ids BLOB NOT NULL, mask BLOB NOT NULL, logprobs BLOB NOT NULL, versions BLOB NOT NULL,
        advantages BLOB NOT NULL, reward REAL NOT NULL, trained_by INTEGER, turn_id INTEGER,
        distill BLOB, lessons BLOB, pictures TEXT, strength REAL NOT NULL DEFAULT 1,
        temperature REAL, signal TEXT NOT NULL DEFAULT '')""",
    "CREATE INDEX samples_by_session ON samples (session_id)",
    "CREATE INDEX samples_by_group ON samples (group_id)",
    """CREATE TABLE groups (
        position INTEGER PRIMARY KEY, group_id INTEGER NOT NULL UNIQUE, task_id TEXT,
        seed INTEGER NOT NULL, split TEXT NOT NULL, version INTEGER NOT NULL,
        created_s REAL NOT NULL, used_by INTEGER, compared TEXT,
        user TEXT NOT NULL DEFAULT '')""",
    """CREATE TABLE updates (
        version INTEGER PRIMARY KEY, groups INTEGER NOT NULL, tokens INTEGER NOT NULL,
        duration_s REAL NOT NULL, metrics TEXT NOT NULL, created_s REAL NOT NULL,
        checkpoint TEXT)""",
    """CREATE TABLE batches (
        version INTEGER NOT NULL REFERENCES updates(version), position INTEGER NOT NULL,
        sample_id INTEGER NOT NULL UNIQUE REFERENCES samples(id),
        PRIMARY KEY (version, position)) WITHOUT ROWID""",
    _DELETIONS,
    _OFFERS,
    _PICTURES,
    _PICTURES_INDEX,
    _USER_UPDATES,
    *_INDEXES,
)

_ADDED_COLUMNS: dict[int, dict[str, tuple[tuple[str, str], ...]]] = {
    2: {
        "sessions": (
            ("matched_by", "TEXT"), ("samples", "INTEGER"), ("why", "TEXT"),
            ("last_s", "REAL NOT NULL DEFAULT 0"),
        ),
        "turns": (
            ("rule", "TEXT NOT NULL DEFAULT ''"), ("copies", "TEXT NOT NULL DEFAULT '[]'"),
            ("mark", "TEXT NOT NULL DEFAULT ''"),
        ),
        "next_states": (("judged", "INTEGER NOT NULL DEFAULT 1"),),
        "verdicts": (("reward", "REAL"), ("settled", "INTEGER NOT NULL DEFAULT 1")),
        "samples": (("turn_id", "INTEGER"),),
    },
    3: {
        "turns": (("tools", "BLOB"), ("template", "BLOB")),
        "samples": (("distill", "BLOB"), ("lessons", "BLOB")),
    },
    4: {"samples": (("pictures", "TEXT"),)},
    5: {
        "verdicts": (("weight", "REAL NOT NULL DEFAULT 1"),),
        "samples": (("strength", "REAL NOT NULL DEFAULT 1"),),
        "groups": (("compared", "TEXT"),),
    },
    6: {
        "groups": (("user", "TEXT NOT NULL DEFAULT ''"),),
    },
    7: {
        "turns": (("temperature", "REAL"), ("untrainable", "TEXT NOT NULL DEFAULT ''")),
        "samples": (("temperature", "REAL"), ("signal", "TEXT NOT NULL DEFAULT ''")),
        "sessions": (("bytes", "INTEGER NOT NULL DEFAULT 0"),),
    },
    8: {"sessions": (("solved", "INTEGER"),)},
    9: {"turns": (("stop_text", "TEXT"), ("answer_id", "TEXT NOT NULL DEFAULT ''"))},
}  # fmt: skip
"""Columns that a version added to the one before it, by table."""


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open or create the database for its one writer; an older one is upgraded.

    `synchronous=FULL`: a commit outlives power loss as well as kill -9. Group commit pays its fsync
    once for all callers that wait, so `NORMAL` would gain latency only. Raises StoreError.
    """
    try:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
        try:
            version = _check_format(db, path)
            if db.execute("PRAGMA journal_mode=WAL").fetchone() != ("wal",):
                raise sqlite3.OperationalError("its disk cannot hold a write-ahead log")
            db.execute("PRAGMA synchronous=FULL")
            _prepare(db, version)
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as error:
        raise StoreError(
            f"cannot open {str(path)!r} as a run's database: {error}; "
            "give another run.dir, or restore the file"
        ) from error
    return db


def connect_memory(path: Path) -> sqlite3.Connection:
    """A database in memory, for reading and writing. It sees only the updates of the file.

    An update is numbers and the path of a checkpoint: learning resumes from there, and nothing of a
    conversation is on the disk. `disk` is the file, attached. Raises StoreError.
    """
    connect_writer(path).close()
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _prepare(db, None)
    db.execute("ATTACH ? AS disk", (str(path),))
    db.execute("PRAGMA disk.synchronous=FULL")
    db.execute("INSERT INTO main.updates SELECT * FROM disk.updates")
    db.execute("INSERT INTO main.user_updates SELECT * FROM disk.user_updates")
    return db


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open an existing database for reading beside its writer. Raises StoreError."""
    if not path.exists():
        raise StoreError(f"got {str(path.parent)!r}, expected a run's folder with a {path.name}")
    try:
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=10.0)
        try:
            version = _check_format(db, path)
            db.row_factory = sqlite3.Row
            db.execute("PRAGMA temp_store=MEMORY")
            if version is not None and version < SCHEMA_VERSION:
                _read_as_current(db, version)
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as error:
        raise StoreError(f"cannot read {str(path)!r} as a run's database: {error}") from error
    return db


def _tables(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type='table'")}


def _check_format(db: sqlite3.Connection, path: Path) -> int | None:
    """The schema version, None for an empty database; refuses foreign files and newer versions."""
    tables = _tables(db)
    if not tables:
        return None
    meta = dict(db.execute("SELECT key, value FROM meta")) if "meta" in tables else {}
    if meta.get("format") != _FORMAT:
        raise StoreError(
            f"got {str(path)!r}, a database of something else; expected a run's database: "
            "give another run.dir"
        )
    version = meta.get("schema_version")
    if version not in {str(older) for older in range(1, SCHEMA_VERSION + 1)}:
        raise StoreError(
            f"got {str(path)!r} with schema version {version}, expected "
            f"{SCHEMA_VERSION}: use the clawrl_gym version that wrote it, or begin a new run"
        )
    return int(version)


def _prepare(db: sqlite3.Connection, version: int | None) -> None:
    """Settings and tables; in one transaction, so that a kill leaves all of a version or none."""
    db.row_factory = sqlite3.Row
    db.execute("PRAGMA temp_store=MEMORY")
    db.execute("PRAGMA secure_delete=ON")
    db.execute("PRAGMA foreign_keys=ON")
    if version == SCHEMA_VERSION:
        return
    db.execute("BEGIN IMMEDIATE")
    if version is None:
        for statement in _TABLES:
            db.execute(statement)
    else:
        _upgrade(db, version)
    meta = {"format": _FORMAT, "schema_version": str(SCHEMA_VERSION)}
    db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())
    db.execute("COMMIT")


def _upgrade(db: sqlite3.Connection, version: int) -> None:
    """Upgrade an older version: added columns rewrite no row, so a large run takes no longer."""
    for table, columns in _added_since(version).items():
        for name, kind in columns:
            db.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")
    if version == 1:
        db.execute("UPDATE sessions SET last_s = coalesce(ended_s, created_s)")
        db.execute("UPDATE verdicts SET reward = value")
        for statement in (_DELETIONS, *_INDEXES):
            db.execute(statement)
    if version < 3:
        db.execute(_OFFERS)
    if version < 4:
        db.execute(_PICTURES)
        db.execute(_PICTURES_INDEX)
    if version < 7:
        db.execute(_USER_UPDATES)
    if 1 < version < 9:
        db.execute(_ANSWERS_INDEX)


def _read_as_current(db: sqlite3.Connection, version: int) -> None:
    """Views of this connection alone, in front of the tables of an older version: they stay."""
    expressions = {"last_s": "coalesce(ended_s, created_s)", "reward": "value", "rule": "''",
            "copies": "'[]'", "mark": "''", "judged": "1", "settled": "1", "weight": "1.0",
            "strength": "1.0", "user": "''", "untrainable": "''", "signal": "''",
            "bytes": "0", "answer_id": "''"}  # fmt: skip
    for table, columns in _added_since(version).items():
        added = ", ".join(f"{expressions.get(name, 'NULL')} AS {name}" for name, _ in columns)
        db.execute(
            f"CREATE TEMP VIEW {table} AS SELECT rowid AS rowid, *, {added} FROM main.{table}"
        )
    if version < 3:
        db.execute(f"CREATE TEMP {_OFFERS.removeprefix('CREATE')}")
    if version < 4:
        db.execute(f"CREATE TEMP {_PICTURES.removeprefix('CREATE')}")
    if version < 7:
        db.execute(f"CREATE TEMP {_USER_UPDATES.removeprefix('CREATE')}")


def _added_since(version: int) -> dict[str, list[tuple[str, str]]]:
    added: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for later, tables in _ADDED_COLUMNS.items():
        for table, columns in tables.items():
            added[table] += columns if later > version else ()
    return {table: columns for table, columns in added.items() if columns}
