"""What must hold in a run's records, whatever was done to the run.

Each check reads the folder of a run that lives or has ended, and says what does not hold. They read
run.db by SQL of their own, and compare it with what others wrote down: `ledger.py`, the logs.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.store import StoreReader
from clawrl_gym.store.rows import unpack_ints
from tests.chaos.ledger import acknowledged, digest_of

_MOST_NAMED = 3
"""Cases that a violation names."""
MAX_GAP = 0.01
"""Largest log-prob gap of engine and learner, in float32: with other weights it is far larger."""


class Records:
    """One run's folder, opened for reading beside its writer."""

    def __init__(self, folder: Path, ledger: Path, max_staleness: int) -> None:
        self.folder = folder
        self.max_staleness = max_staleness
        self.acknowledged = acknowledged(ledger)  # first: what comes later may not be in the store
        self._db = sqlite3.connect(f"file:{folder / 'run.db'}?mode=ro", uri=True, timeout=30)
        self._db.row_factory = sqlite3.Row
        self._db.execute("BEGIN")  # all checks see one moment

    def rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        return self._db.execute(query, values).fetchall()

    def close(self) -> None:
        self._db.close()


@contextmanager
def records(folder: Path, ledger: Path, max_staleness: int) -> Iterator[Records]:
    """Closed at the end of the block."""
    opened = Records(folder, ledger, max_staleness)
    try:
        yield opened
    finally:
        opened.close()


Check = Callable[[Records], Iterator[str]]


def every_acknowledged_turn_is_there(run: Records) -> Iterator[str]:
    noted = run.acknowledged
    stored = Counter(digest_of(json.loads(row["reply"])) for row in run.rows("SELECT * FROM turns"))
    lost = noted - stored
    if lost:
        yield f"{lost.total()} of {noted.total()} acknowledged turns are not in the store"


def no_turn_is_there_twice(run: Records) -> Iterator[str]:
    reader = StoreReader(run.folder)
    try:
        for row in run.rows("SELECT session_id, count(*) AS n FROM turns GROUP BY session_id"):
            turns = reader.turns_of(row["session_id"])
            indexes = [turn.index for turn in turns]
            if indexes != list(range(len(turns))):
                yield f"session {row['session_id']} has turns {indexes}"
            prompts = Counter(tuple(turn.prompt_ids_T) for turn in turns if turn.kind == "main")
            if prompts and max(prompts.values()) > 1:
                yield f"session {row['session_id']} has {max(prompts.values())} turns for a request"
    finally:
        reader.close()


def no_sample_is_trained_twice(run: Records) -> Iterator[str]:
    for row in run.rows("SELECT sample_id FROM batches GROUP BY sample_id HAVING count(*) > 1"):
        yield f"sample {row['sample_id']} is in several batches"
    same = run.rows(
        "SELECT session_id, ids, versions FROM batches JOIN samples ON samples.id = sample_id "
        "GROUP BY session_id, ids, mask, versions HAVING count(*) > 1"
    )
    for row in same:
        yield f"session {row['session_id']} has one sample trained twice"
    for row in run.rows("SELECT group_id FROM groups GROUP BY group_id HAVING count(*) > 1"):
        yield f"group {row['group_id']} was accepted twice"


def no_member_of_a_group_is_trained_twice(run: Records) -> Iterator[str]:
    """An episode that was run again: g000001-MEMBER-RETRY-..., and one of them counts."""
    members = defaultdict(set)
    query = "SELECT DISTINCT session_id, group_id FROM batches JOIN samples ON id = sample_id"
    for row in run.rows(query):
        group, member = row["session_id"].split("-")[:2]
        members[row["group_id"], group, member].add(row["session_id"])
    for own in members.values():
        if len(own) > 1:
            yield f"{', '.join(sorted(own))} are one episode, and all are trained"


def samples_are_fresh_enough(run: Records) -> Iterator[str]:
    query = "SELECT version, sample_id, versions FROM batches JOIN samples ON id = sample_id"
    for row in run.rows(query):
        oldest = min(set(unpack_ints(row["versions"])) - {-1}, default=row["version"])
        age = row["version"] - 1 - oldest
        if age > run.max_staleness:
            yield f"update {row['version']} trained sample {row['sample_id']}, {age} versions old"


def groups_are_trained_whole(run: Records) -> Iterator[str]:
    query = """
        SELECT used_by, groups.group_id, count(*) AS samples, count(batches.sample_id) AS trained
        FROM groups JOIN samples USING (group_id) LEFT JOIN batches ON sample_id = samples.id
        WHERE used_by IS NOT NULL GROUP BY groups.group_id"""
    for row in run.rows(query):
        if 0 < row["trained"] < row["samples"]:
            yield (
                f"update {row['used_by']} trained {row['trained']} of the {row['samples']} samples "
                f"of group {row['group_id']}"
            )


def updates_follow_each_other(run: Records) -> Iterator[str]:
    versions = [row["version"] for row in run.rows("SELECT version FROM updates ORDER BY version")]
    if versions != list(range(1, len(versions) + 1)):
        yield f"the store has updates {versions}"
    used = [row["used_by"] for row in run.rows("SELECT used_by FROM groups ORDER BY position")]
    taken = [version for version in used if version is not None]
    if used[: len(taken)] != taken or taken != sorted(taken):
        yield f"groups were not trained in the order of their acceptance: {used}"
    sizes = {row["version"]: row["groups"] for row in run.rows("SELECT * FROM updates")}
    if Counter(taken) != Counter(sizes):
        yield f"updates used {Counter(taken)} groups and say {sizes}"


def what_serves_is_what_was_learned(run: Records) -> Iterator[str]:
    rows: list[dict[str, Any]] = read_json_lines(run.folder / "metrics.jsonl")
    for row in rows:
        gap = row.get("logprob_gap/mean")
        if gap is not None and gap > MAX_GAP:
            yield f"update {row['step']}: log-probs of engine and learner differ by {gap:.3g}"


ALWAYS: tuple[Check, ...] = (
    every_acknowledged_turn_is_there,
    no_turn_is_there_twice,
    no_sample_is_trained_twice,
    no_member_of_a_group_is_trained_twice,
    samples_are_fresh_enough,
    groups_are_trained_whole,
    updates_follow_each_other,
    what_serves_is_what_was_learned,
)
"""Hold at any moment."""


def logs_agree_with_the_store(run: Records) -> Iterator[str]:
    lines: list[dict[str, Any]] = read_json_lines(run.folder / "conversations.jsonl")
    logged = sorted(line["id"] for line in lines if line["type"] == "turn")
    stored = [row["id"] for row in run.rows("SELECT id FROM turns ORDER BY id")]
    if logged != stored:
        yield f"conversations.jsonl has {len(logged)} turns, the store {len(stored)}"


def no_session_stays_open(run: Records) -> Iterator[str]:
    (row,) = run.rows("SELECT count(*) AS n, min(id) AS one FROM sessions WHERE ended_s IS NULL")
    if row["n"]:
        yield f"{row['n']} sessions were never ended, {row['one']} among them"


def the_target_is_reached(run: Records) -> Iterator[str]:
    steps = _configured(run, "trainer", "steps")
    updates = run.rows("SELECT version, checkpoint FROM updates ORDER BY version")
    if len(updates) != steps:
        yield f"the run made {len(updates)} updates of {steps}"
    elif not Path(updates[-1]["checkpoint"] or "/nowhere").is_dir():
        yield "the last update has no checkpoint"
    if not (run.folder / "report.html").is_file():
        yield "there is no report"


AT_THE_END: tuple[Check, ...] = (
    *ALWAYS,
    logs_agree_with_the_store,
    no_session_stays_open,
    the_target_is_reached,
)
"""Hold of a run that came to its end."""


def _configured(run: Records, part: str, key: str) -> int:
    import yaml

    config: dict[str, Any] = yaml.safe_load((run.folder / "config.yaml").read_text())
    return int(config[part][key])


def violations(run: Records, checks: tuple[Check, ...]) -> list[str]:
    """What does not hold, a few cases of each check."""
    told = []
    for check in checks:
        cases = list(check(run))
        more = f" (and {len(cases) - _MOST_NAMED} more)" if len(cases) > _MOST_NAMED else ""
        told += [f"{check.__name__}: {'; '.join(cases[:_MOST_NAMED])}{more}"] if cases else []
    return told


@dataclass(frozen=True, slots=True)
class Forecast:
    """The batches that a run would have made of what it had accepted when it was killed.

    Groups are trained in the order of their acceptance; those behind the last checkpoint again.
    """

    version: int
    """Version of the last checkpoint."""
    groups: tuple[tuple[int, str], ...]
    """Each that is still to be trained, with a digest of its samples."""

    @classmethod
    def of(cls, run: Records) -> Forecast:
        (last,) = run.rows(
            "SELECT coalesce(max(version), 0) AS version FROM updates WHERE checkpoint IS NOT NULL"
        )
        waiting = run.rows(
            "SELECT group_id FROM groups WHERE used_by IS NULL OR used_by > ? ORDER BY position",
            last["version"],
        )
        groups = tuple((row["group_id"], _digest_of_group(run, row["group_id"])) for row in waiting)
        return cls(last["version"], groups)

    def contradictions(self, run: Records) -> Iterator[str]:
        """What the run made of it since; nothing as long as it made nothing."""
        waiting = list(self.groups)
        updates = run.rows(
            "SELECT version, groups FROM updates WHERE version > ? ORDER BY version", self.version
        )
        for update in updates:
            expected, waiting = waiting[: update["groups"]], waiting[update["groups"] :]
            query = "SELECT group_id FROM groups WHERE used_by = ? ORDER BY position"
            used = [row["group_id"] for row in run.rows(query, update["version"])]
            came = [(group, _digest_of_group(run, group)) for group in used[: len(expected)]]
            if came != expected:
                yield f"update {update['version']} trained {came}, expected {expected}"
            yield from _left_out(run, update["version"], [group for group, _ in expected])


def _left_out(run: Records, version: int, groups: list[int]) -> Iterator[str]:
    """Groups that were fresh enough for an update that used them, and that it did not train."""
    for group in groups:
        query = """SELECT versions, sample_id FROM samples LEFT JOIN batches
            ON sample_id = samples.id AND version = ? WHERE group_id = ?"""
        samples = run.rows(query, version, group)
        oldest = min(
            (v for row in samples for v in unpack_ints(row["versions"]) if v >= 0), default=0
        )
        fresh = version - 1 - oldest <= run.max_staleness
        trained = [row["sample_id"] is not None for row in samples]
        if fresh and not all(trained):
            yield f"update {version} left out samples of group {group}, which was fresh enough"


def _digest_of_group(run: Records, group_id: int) -> str:
    digest = hashlib.blake2b(digest_size=8)
    query = """SELECT session_id, ids, mask, logprobs, versions, advantages, reward FROM samples
        WHERE group_id = ? ORDER BY id"""
    for row in run.rows(query, group_id):
        digest.update(repr(tuple(row)).encode())
    return digest.hexdigest()
