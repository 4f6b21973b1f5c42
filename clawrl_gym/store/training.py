"""The learner's side of the store: groups in the order of their acceptance, batches, updates.

Jobs for the writer. An update uses up the next `groups` groups, so a batch can be formed again
exactly, groups without signal and samples that were left out included.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.types import Group, Sample, Taught
from clawrl_gym.store.rows import UpdateRow
from clawrl_gym.store.samples import sample_columns
from clawrl_gym.store.transaction import Transaction
from clawrl_gym.store.verdicts import settle


def add_samples(tx: Transaction, samples: list[Sample]) -> list[Sample]:
    """The samples with their positions, which only ever increase.

    A sample of one turn settles the turn's verdicts; it is left out when the turn was deleted.
    """
    there = [sample for sample in samples if sample.turn_id is None or _has_turn(tx, sample)]
    for sample in there:
        if sample.turn_id is not None:
            settle(tx, sample.turn_id)
    return [replace(sample, id=tx.add("samples", sample_columns(sample))) for sample in there]


def add_group(tx: Transaction, group: Group, samples: list[Sample]) -> list[Sample]:
    row = {
        "group_id": group.id, "task_id": group.task.id, "seed": group.task.seed,
        "split": group.task.split, "version": group.version, "created_s": time.time(),
    }  # fmt: skip
    tx.insert("INSERT INTO groups", row)
    return add_samples(tx, samples)


def add_update(
    tx: Transaction, update: UpdateRow, sample_ids: list[int], checkpoint: str | None
) -> dict[str, Any]:
    """The stored row; samples that were deleted meanwhile are left out of the batch.

    Raises StoreError when fewer groups wait than the update says it used.
    """
    row: dict[str, Any] = {
        "version": update.version, "groups": update.groups, "tokens": update.tokens,
        "duration_s": update.duration_s, "metrics": json.dumps(update.metrics),
        "created_s": update.created_s or time.time(), "checkpoint": checkpoint,
    }  # fmt: skip
    tx.insert("INSERT INTO updates", row)
    batch = [
        (update.version, at, sample_id)
        for at, sample_id in enumerate(sample_ids)
        if not _was_deleted(tx, sample_id)
    ]
    tx.db.executemany("INSERT INTO batches VALUES (?, ?, ?)", batch)
    used = tx.db.execute(
        "UPDATE groups SET used_by=? WHERE position IN (SELECT position FROM groups "
        "WHERE used_by IS NULL ORDER BY position LIMIT ?)",
        (update.version, update.groups),
    ).rowcount
    if used != update.groups:
        raise StoreError(
            f"got update {update.version} with {update.groups} groups, "
            f"expected at most the {used} that wait in the store"
        )
    if checkpoint is not None:
        tx.db.execute(
            "UPDATE samples SET trained_by=? WHERE trained_by IS NULL AND id IN "
            "(SELECT sample_id FROM batches WHERE version > (SELECT coalesce(max(version), -1) "
            "FROM updates WHERE checkpoint IS NOT NULL AND version < ?))",
            (update.version, update.version),
        )
    return row


def taught_turns(tx: Transaction, version: int, taught: list[Taught]) -> Iterator[dict[str, Any]]:
    """What the log tells of turns that were distilled; nothing of those that were deleted."""
    for one in taught:
        owner = tx.one("SELECT session_id FROM samples WHERE id=?", (one.sample_id,))
        if owner is not None:
            yield {
                "id": one.sample_id, "session_id": owner["session_id"], "turn_id": one.turn_id,
                "version": version, "prompt": one.prompt, "ids": one.ids_T, "gaps": one.gaps_T,
                "created_s": time.time(),
            }  # fmt: skip


def next_group_id(tx: Transaction) -> int:
    """Greater than any accepted group's."""
    return int(tx.db.execute("SELECT coalesce(max(group_id), -1) + 1 FROM groups").fetchone()[0])


def rollback(tx: Transaction) -> UpdateRow | None:
    """Undo what came after the last checkpoint; returns that checkpoint's update."""
    last = tx.one(
        "SELECT * FROM updates WHERE checkpoint IS NOT NULL ORDER BY version DESC LIMIT 1"
    )
    after = (-1 if last is None else last["version"],)
    tx.db.execute("DELETE FROM batches WHERE version > ?", after)
    tx.db.execute("DELETE FROM updates WHERE version > ?", after)
    tx.db.execute("UPDATE groups SET used_by=NULL WHERE used_by > ?", after)
    if last is None:
        return None
    return UpdateRow(**last | {"metrics": json.loads(last["metrics"])})


def _has_turn(tx: Transaction, sample: Sample) -> bool:
    return tx.one("SELECT 1 FROM turns WHERE id=?", (sample.turn_id,)) is not None


def _was_deleted(tx: Transaction, sample_id: int) -> bool:
    given = 0 < sample_id <= tx.numbers.last["samples"]
    return given and tx.one("SELECT 1 FROM samples WHERE id=?", (sample_id,)) is None
