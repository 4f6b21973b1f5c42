"""The learner's side of the store: samples, groups in the order of their acceptance, updates.

Jobs for the writer. An update uses up the next `groups` groups, so a batch can be formed again
exactly, groups without signal and samples that were left out included.
"""

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.ownership import OWNER
from clawrl_gym.core.types import Compared, DistillTarget, Group, Sample
from clawrl_gym.dialogue.delta import diff_ids, patch_ids
from clawrl_gym.store.rows import (
    UpdateRow,
    pack_floats,
    pack_ints,
    unpack_floats,
    unpack_ints,
    update_of,
)
from clawrl_gym.store.verdicts import settle
from clawrl_gym.store.writer import Transaction


def add_samples(tx: Transaction, samples: list[Sample]) -> list[Sample]:
    """Store samples; returns them with their positions, which only ever increase.

    A sample of one turn settles the turn's verdicts; it is left out when the turn was deleted.
    """
    present = [sample for sample in samples if sample.turn_id is None or _has_turn(tx, sample)]
    for sample in present:
        if sample.turn_id is not None:
            settle(tx, sample.turn_id)
    return [replace(sample, id=tx.add("samples", sample_columns(sample))) for sample in present]


def add_group(
    tx: Transaction, group: Group, samples: list[Sample], compared: Sequence[Compared], user: str
) -> list[Sample]:
    row = {
        "group_id": group.id, "task_id": group.task.id, "seed": group.task.seed,
        "split": group.task.split, "version": group.version, "created_s": time.time(),
        "compared": json.dumps(compared) if compared else None, "user": user,
    }  # fmt: skip
    tx.insert("INSERT INTO groups", row)
    return add_samples(tx, samples)


def add_update(
    tx: Transaction, update: UpdateRow, sample_ids: list[int], checkpoint: str | None
) -> dict[str, object]:
    """Store an update; returns its row. Samples that were deleted meanwhile are left out.

    Raises StoreError when fewer groups wait than the update says it used.
    """
    row = _update_columns(update, checkpoint)
    tx.insert("INSERT INTO updates", row)
    batch = [
        (update.version, at, sample_id)
        for at, sample_id in enumerate(sample_ids)
        if not _was_deleted(tx, sample_id)
    ]
    tx.db.executemany("INSERT INTO batches VALUES (?, ?, ?)", batch)
    _use_up(tx, update, OWNER)
    if checkpoint is not None:
        tx.db.execute(
            "UPDATE samples SET trained_by=? WHERE trained_by IS NULL AND id IN "
            "(SELECT sample_id FROM batches WHERE version > (SELECT coalesce(max(version), -1) "
            "FROM updates WHERE checkpoint IS NOT NULL AND version < ?))",
            (update.version, update.version),
        )
    return row


def add_user_update(
    tx: Transaction, user: str, update: UpdateRow, checkpoint: str | None
) -> dict[str, object]:
    """Store an update of a user's own weights; returns its row."""
    row = {"user": user, **_update_columns(update, checkpoint)}
    tx.insert("INSERT INTO user_updates", row)
    _use_up(tx, update, user)
    if checkpoint is not None:
        tx.db.execute(
            "UPDATE samples SET trained_by=? WHERE trained_by IS NULL AND group_id IN "
            "(SELECT group_id FROM groups WHERE user=? AND used_by<=?)",
            (update.version, user, update.version),
        )
    return row


def _update_columns(update: UpdateRow, checkpoint: str | None) -> dict[str, object]:
    return {
        "version": update.version, "groups": update.groups, "tokens": update.tokens,
        "duration_s": update.duration_s, "metrics": json.dumps(update.metrics),
        "created_s": update.created_s or time.time(), "checkpoint": checkpoint,
    }  # fmt: skip


def _use_up(tx: Transaction, update: UpdateRow, user: str) -> None:
    if update.group_ids is None:
        used = tx.db.execute(
            "UPDATE groups SET used_by=? WHERE position IN (SELECT position FROM groups "
            "WHERE used_by IS NULL AND user=? ORDER BY position LIMIT ?)",
            (update.version, user, update.groups),
        ).rowcount
    else:
        used = sum(
            tx.db.execute(
                "UPDATE groups SET used_by=? WHERE group_id=? AND used_by IS NULL AND user=?",
                (update.version, group_id, user),
            ).rowcount
            for group_id in update.group_ids
        )
    if used != update.groups:
        raise StoreError(
            f"got update {update.version} with {update.groups} groups, "
            f"expected at most the {used} that wait in the store"
        )


def session_of_sample(tx: Transaction, sample_id: int) -> str | None:
    """The sample's session; None when it was deleted."""
    sample = tx.one("SELECT session_id FROM samples WHERE id=?", (sample_id,))
    return None if sample is None else sample["session_id"]


def next_group_id(tx: Transaction) -> int:
    """An id greater than any accepted group's."""
    return int(tx.db.execute("SELECT coalesce(max(group_id), -1) + 1 FROM groups").fetchone()[0])


def rollback(tx: Transaction) -> UpdateRow | None:
    """Undo everything after the last checkpoint, for the run's own weights and each user's; returns
    the run's own update at it."""
    last = tx.one(
        "SELECT * FROM updates WHERE checkpoint IS NOT NULL ORDER BY version DESC LIMIT 1"
    )
    after = (-1 if last is None else last["version"],)
    tx.db.execute("DELETE FROM batches WHERE version > ?", after)
    tx.db.execute("DELETE FROM updates WHERE version > ?", after)
    tx.db.execute("UPDATE groups SET used_by=NULL WHERE used_by > ? AND user=''", after)
    tx.db.execute(
        f"UPDATE groups SET used_by=NULL WHERE user!='' AND used_by > {_last_of('groups.user')}"
    )
    forget_unkept(tx, "main")
    return None if last is None else update_of(last)


def forget_unkept(tx: Transaction, database: str) -> None:
    """Delete updates of users' own weights after their last checkpoints."""
    tx.db.execute(
        f"DELETE FROM {database}.user_updates AS later WHERE version > {_last_of('later.user')}"
    )


def _last_of(user: str) -> str:
    """SQL of the version of a user's last checkpoint; -1 without one."""
    return (
        "(SELECT coalesce(max(version), -1) FROM main.user_updates "
        f"WHERE user={user} AND checkpoint IS NOT NULL)"
    )


def forget_user(tx: Transaction, user: str) -> None:
    """Job: the updates of a user whose sessions are deleted, and their empty groups."""
    tx.db.execute("DELETE FROM groups WHERE user=?", (user,))
    tx.db.execute("DELETE FROM user_updates WHERE user=?", (user,))


def _has_turn(tx: Transaction, sample: Sample) -> bool:
    return tx.one("SELECT 1 FROM turns WHERE id=?", (sample.turn_id,)) is not None


def _was_deleted(tx: Transaction, sample_id: int) -> bool:
    existed = 0 < sample_id <= tx.positions.last["samples"]
    return existed and tx.one("SELECT 1 FROM samples WHERE id=?", (sample_id,)) is None


def sample_columns(sample: Sample) -> dict[str, object]:
    targets = sample.distill_targets
    return {
        "session_id": sample.session_id,
        "group_id": sample.group_id,
        "turn_id": sample.turn_id,
        "ids": pack_ints(sample.ids_T),
        "mask": zlib.compress(bytes(sample.mask_T), 1),
        "logprobs": pack_floats(sample.logprobs_T),
        "versions": pack_ints(sample.versions_T),
        "advantages": pack_floats(sample.advantages_T),
        "reward": sample.reward,
        "strength": sample.strength,
        "temperature": sample.temperature,
        "signal": sample.signal,
        "distill": pack_floats(sample.distill_T) if sample.distill_T else None,
        "pictures": " ".join(sample.pictures) or None,
        "lessons": pack_distill_targets(targets, sample.ids_T) if targets else None,
    }


def sample_of(row: sqlite3.Row) -> Sample:
    ids_T = unpack_ints(row["ids"])
    distill, targets = row["distill"], row["lessons"]
    return Sample(
        session_id=row["session_id"],
        group_id=row["group_id"],
        ids_T=ids_T,
        mask_T=[byte == 1 for byte in zlib.decompress(row["mask"])],
        logprobs_T=unpack_floats(row["logprobs"]),
        versions_T=unpack_ints(row["versions"]),
        advantages_T=unpack_floats(row["advantages"]),
        reward=row["reward"],
        turn_id=row["turn_id"],
        distill_T=[] if distill is None else unpack_floats(distill),
        distill_targets=() if targets is None else unpack_distill_targets(targets, ids_T),
        pictures=tuple((row["pictures"] or "").split()),
        strength=row["strength"],
        temperature=row["temperature"],
        signal=row["signal"],
        id=row["id"],
    )


# Distillation targets of a sample as one list of numbers. A prompt with a hint in it has nearly all
# ids in common with the prompt that was used, which the sample holds before the turn's first token:
# only the difference is stored, see `delta.py`.
#
#   distillation targets: how many; each: start, length, how many prompts
#   pictures: of each distillation target; left out when none has any
#   prompt: ids that it begins with, how many runs, each run's three numbers, how many own ids, ids


def pack_distill_targets(targets: Sequence[DistillTarget], ids_T: list[int]) -> bytes:
    """Pack the distillation targets of the sample with these ids."""
    ids = array("i", ids_T)
    packed = array("i", [len(targets)])
    for target in targets:
        packed.extend((target.start, target.length, len(target.prompts)))
        used = ids[: target.start]
        for prompt_T in target.prompts:
            prefix, own, copies = diff_ids(used, array("i", prompt_T))
            packed.extend((prefix, len(copies), *chain.from_iterable(copies), len(own)))
            packed.extend(own)
    if any(target.pictures for target in targets):
        packed.extend(target.pictures for target in targets)
    return pack_ints(packed)


def unpack_distill_targets(blob: bytes, ids_T: list[int]) -> tuple[DistillTarget, ...]:
    """The inverse of `pack_distill_targets`."""
    numbers = iter(unpack_ints(blob))
    targets = [_distill_target(numbers, ids_T) for _ in range(next(numbers))]
    return tuple(replace(target, pictures=next(numbers, 0)) for target in targets)


def _distill_target(numbers: Iterator[int], ids_T: list[int]) -> DistillTarget:
    start, length, count = islice(numbers, 3)
    return DistillTarget(
        start, length, tuple(_prompt(numbers, ids_T[:start]) for _ in range(count))
    )


def _prompt(numbers: Iterator[int], used: list[int]) -> list[int]:
    prefix, runs = islice(numbers, 2)
    copies = [tuple(islice(numbers, 3)) for _ in range(runs)]
    patch_ids(used, prefix, list(islice(numbers, next(numbers))), copies)
    return used
