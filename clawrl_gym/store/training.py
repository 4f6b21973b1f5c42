"""The learner's side of the store: groups in the order of their acceptance, batches, updates.

Jobs for the writer. An update uses up the next `groups` groups, so a batch can be formed again
exactly, groups without signal and samples that were left out included.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

from clawrl_gym.errors import StoreError
from clawrl_gym.store.rows import UpdateRow, sample_columns
from clawrl_gym.store.writer import Transaction
from clawrl_gym.types import Group, Sample


def add_samples(tx: Transaction, samples: list[Sample]) -> list[Sample]:
    """The samples with their positions, which only ever increase."""
    return [
        replace(sample, id=tx.insert("INSERT INTO samples", sample_columns(sample)))
        for sample in samples
    ]


def add_group(tx: Transaction, group: Group, samples: list[Sample]) -> list[Sample]:
    row = {
        "group_id": group.id, "task_id": group.task.id, "seed": group.task.seed,
        "split": group.task.split, "version": group.version, "created_s": time.time(),
    }  # fmt: skip
    tx.insert("INSERT INTO groups", row)
    return add_samples(tx, samples)


def add_update(
    tx: Transaction, update: UpdateRow, sample_ids: list[int], checkpoint: str | None
) -> None:
    """Raises StoreError when fewer groups wait than the update says it used."""
    row: dict[str, Any] = {
        "version": update.version, "groups": update.groups, "tokens": update.tokens,
        "duration_s": update.duration_s, "metrics": json.dumps(update.metrics),
        "created_s": update.created_s or time.time(), "checkpoint": checkpoint,
    }  # fmt: skip
    tx.insert("INSERT INTO updates", row)
    batch = [(update.version, at, sample_id) for at, sample_id in enumerate(sample_ids)]
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
            "UPDATE samples SET trained_by=? WHERE trained_by IS NULL "
            "AND id IN (SELECT sample_id FROM batches)",
            (update.version,),
        )


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
