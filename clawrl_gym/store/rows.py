"""Records of the store and how lists become columns.

Streams are zlib-compressed arrays in native (little-endian) order: ids and versions int32,
log-probs and advantages float64 (NaN stands for None), masks one byte. Messages are JSON.
"""

from __future__ import annotations

import json
import math
import sqlite3
import zlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from clawrl_gym.types import Message, Sample, Split, Turn

Source = Literal["rollout", "live"]


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A conversation as the gateway sees it."""

    id: str
    task_id: str | None
    group_id: int | None
    split: Split
    source: Source
    created_s: float
    ended_s: float | None = None
    """None while it is open."""
    reward: float | None = None
    """None while it is open, and after an infrastructure failure."""
    stop_reason: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class UpdateRow:
    """One step of the learner."""

    version: int
    """The weight version that it published."""
    tokens: int
    duration_s: float
    groups: int = 0
    """Groups, in the order of their acceptance, that its batch used up."""
    metrics: dict[str, float] = field(default_factory=dict)
    created_s: float = 0.0
    checkpoint: str | None = None
    """Path of the checkpoint taken after this update; None when none was."""


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """An accepted group; one without signal has no samples."""

    id: int
    samples: list[Sample]


def pack_ints(values: Iterable[int]) -> bytes:
    return zlib.compress(array("i", values).tobytes(), 1)


def unpack_ints(blob: bytes) -> list[int]:
    numbers = array("i")
    numbers.frombytes(zlib.decompress(blob))
    return numbers.tolist()


def pack_floats(values: Iterable[float | None]) -> bytes:
    numbers = array("d", (math.nan if value is None else value for value in values))
    return zlib.compress(numbers.tobytes(), 1)


def unpack_floats(blob: bytes) -> list[float]:
    numbers = array("d")
    numbers.frombytes(zlib.decompress(blob))
    return numbers.tolist()


def shared_prefix(old: list[Any], new: list[Any]) -> int:
    """How many leading items are equal."""
    if new[: len(old)] == old:
        return len(old)
    return next(
        (at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
        min(len(old), len(new)),
    )


def turn_columns(turn: Turn, base: Turn | None) -> dict[str, Any]:
    """The columns of a turn that is stored as what it adds to `base`."""
    tokens = messages = 0
    if base is not None:
        tokens = shared_prefix(base.prompt_ids_T + base.sampled_ids_T, turn.prompt_ids_T)
        messages = shared_prefix([*base.messages, base.reply], turn.messages)
    return {
        "session_id": turn.session_id,
        "idx": turn.index,
        "kind": turn.kind,
        "base_id": None if base is None else base.id,
        "base_tokens": tokens,
        "prompt": pack_ints(turn.prompt_ids_T[tokens:]),
        "sampled": pack_ints(turn.sampled_ids_T),
        "logprobs": pack_floats(turn.logprobs_T),
        "versions": pack_ints(turn.versions_T),
        "finish_reason": turn.finish_reason,
        "base_messages": messages,
        "messages": json.dumps(turn.messages[messages:]),
        "reply": json.dumps(turn.reply),
        "created_s": turn.created_s,
    }


def turn_of(row: sqlite3.Row, base: Turn | None) -> Turn:
    """The inverse of `turn_columns`."""
    prompt_ids_T = unpack_ints(row["prompt"])
    messages: list[Message] = json.loads(row["messages"])
    if base is not None:
        before_T = base.prompt_ids_T + base.sampled_ids_T
        prompt_ids_T = before_T[: row["base_tokens"]] + prompt_ids_T
        messages = [*base.messages, base.reply][: row["base_messages"]] + messages
    logprobs_T = unpack_floats(row["logprobs"])
    return Turn(
        session_id=row["session_id"],
        index=row["idx"],
        kind=row["kind"],
        prompt_ids_T=prompt_ids_T,
        sampled_ids_T=unpack_ints(row["sampled"]),
        logprobs_T=[None if math.isnan(value) else value for value in logprobs_T],
        versions_T=unpack_ints(row["versions"]),
        finish_reason=row["finish_reason"],
        messages=messages,
        reply=json.loads(row["reply"]),
        created_s=row["created_s"],
        id=row["id"],
    )


def sample_columns(sample: Sample) -> dict[str, Any]:
    return {
        "session_id": sample.session_id,
        "group_id": sample.group_id,
        "ids": pack_ints(sample.ids_T),
        "mask": zlib.compress(bytes(sample.mask_T), 1),
        "logprobs": pack_floats(sample.logprobs_T),
        "versions": pack_ints(sample.versions_T),
        "advantages": pack_floats(sample.advantages_T),
        "reward": sample.reward,
    }


def sample_of(row: sqlite3.Row) -> Sample:
    return Sample(
        session_id=row["session_id"],
        group_id=row["group_id"],
        ids_T=unpack_ints(row["ids"]),
        mask_T=[byte == 1 for byte in zlib.decompress(row["mask"])],
        logprobs_T=unpack_floats(row["logprobs"]),
        versions_T=unpack_ints(row["versions"]),
        advantages_T=unpack_floats(row["advantages"]),
        reward=row["reward"],
        id=row["id"],
    )


def session_of(row: sqlite3.Row) -> SessionRow:
    return SessionRow(**{key: row[key] for key in row.keys()})  # noqa: SIM118 (Row iterates values)


def update_of(row: sqlite3.Row) -> UpdateRow:
    values = {key: row[key] for key in row.keys()}  # noqa: SIM118 (Row iterates values)
    return UpdateRow(**values | {"metrics": json.loads(row["metrics"])})
