"""Samples as rows."""

from __future__ import annotations

import sqlite3
import zlib
from typing import Any

from clawrl_gym.core.types import Sample
from clawrl_gym.store.lessons import pack_lessons, unpack_lessons
from clawrl_gym.store.rows import pack_floats, pack_ints, unpack_floats, unpack_ints


def sample_columns(sample: Sample) -> dict[str, Any]:
    lessons = sample.lessons
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
        "distill": pack_floats(sample.distill_T) if sample.distill_T else None,
        "pictures": " ".join(sample.pictures) or None,
        "lessons": pack_lessons(lessons, sample.ids_T) if lessons else None,
    }


def sample_of(row: sqlite3.Row) -> Sample:
    ids_T = unpack_ints(row["ids"])
    distill, lessons = row["distill"], row["lessons"]
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
        lessons=() if lessons is None else unpack_lessons(lessons, ids_T),
        pictures=tuple((row["pictures"] or "").split()),
        id=row["id"],
    )
