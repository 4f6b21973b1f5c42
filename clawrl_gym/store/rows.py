"""Records of the store and their conversion to columns.

Streams are zlib-compressed arrays in native (little-endian) order: ids and versions int32,
log-probs, advantages and weights float64 (NaN stands for None), masks one byte. Messages are JSON.
"""

from __future__ import annotations

import json
import math
import sqlite3
import zlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Literal, TypedDict

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.ownership import OWNER
from clawrl_gym.core.types import Sample, Split, TurnKind, Verdict, VerdictKind, is_success

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
    """Unix time of its end; None while it is open."""
    reward: float | None = None
    """Its reward; None while it is open, and after an infrastructure failure."""
    stop_reason: str | None = None
    error: str | None = None
    matched_by: str | None = None
    """The source of a live session's id: a header, the path, its history."""
    samples: int | None = None
    """Number of its samples; None while that is not known."""
    why: str | None = None
    """Why it has no samples."""
    solved: bool | None = None
    """The environment's report of success; None: it reported nothing."""

    @property
    def success(self) -> bool:
        """Whether it solved its task, as an episode."""
        return is_success(self.reward, self.solved)


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A live session that has not ended."""

    id: str
    last_s: float
    """Unix time of its last turn; of its beginning when it has none."""


@dataclass(frozen=True, slots=True)
class StoredNode:
    """A turn's place in its conversation: what the gateway needs of a turn before reading it."""

    session_id: str
    turn_id: int
    index: int
    kind: TurnKind
    finish_reason: str
    created_s: float
    has_next_state: bool
    text: str
    """Text of the `TurnNode`, column `mark`; empty when the turn was recorded without one."""


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session as a list shows it."""

    session: SessionRow
    last_s: float
    """Unix time of its last turn; of its beginning when it has none."""
    main_turns: int
    side_turns: int
    verdicts: dict[str, int]
    """Number of turns by effective verdict: `+1`, `0`, `-1` and `abstain`."""


@dataclass(frozen=True, slots=True)
class UpdateRow:
    """One step of the learner."""

    version: int
    """The weight version that it published."""
    tokens: int
    duration_s: float
    groups: int = 0
    """Number of groups, in the order of their acceptance, that its batch used up."""
    metrics: dict[str, float] = field(default_factory=dict)
    created_s: float = 0.0
    checkpoint: str | None = None
    """Path of the checkpoint taken after this update; None when none was."""
    group_ids: tuple[int, ...] | None = None
    """The groups that it used up, where these are not the first ones; not stored in this form."""


@dataclass(slots=True)
class UserCounts:
    """Results of a user's live sessions, as far as they are kept."""

    turns: int = 0
    """Number of main turns."""
    feedback: int = 0
    """Number of recorded opinions."""
    learned: int = 0
    """Number of samples in updates that serve."""
    undone: int = 0
    """Number of samples in updates that the guards refused."""
    waiting: int = 0
    """Number of samples that no update has used."""


@dataclass(frozen=True, slots=True)
class JudgedTurn:
    """A turn of a live session, and the verdict that counts for it."""

    session_id: str
    version: int
    """The newest version that sampled it; -1 where none is known."""
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """An accepted group; one without signal has no samples."""

    id: int
    samples: list[Sample]
    user: str = OWNER
    """The user whose weights learn from it."""


class TurnColumns(TypedDict):
    """A stored turn."""

    id: int
    session_id: str
    idx: int
    kind: TurnKind
    rule: str
    base_id: int | None
    """The turn that this one adds to; None: it is stored whole."""
    base_tokens: int
    copies: str
    prompt: bytes
    sampled: bytes
    logprobs: bytes
    versions: bytes
    finish_reason: str
    base_messages: int
    messages: str
    reply: str
    created_s: float
    mark: str
    tools: bytes | None
    """Digest of an offer, like `template`."""
    template: bytes | None
    temperature: float | None
    untrainable: str
    stop_text: str | None
    answer_id: str


class NextStateColumns(TypedDict):
    """A stored next state and its session."""

    turn_id: int
    session_id: str
    messages: str
    created_s: float


class VerdictColumns(TypedDict):
    """A stored verdict and its session."""

    id: int
    session_id: str
    turn_id: int
    kind: VerdictKind
    value: Literal[-1, 0, 1] | None
    reward: float | None
    detail: str
    created_s: float
    weight: float


def to_json(record: object) -> str:
    """JSON text. Raises StoreError for numbers unknown to JSON (1e999 is read as infinity)."""
    try:
        return json.dumps(record, allow_nan=False)
    except ValueError as error:
        raise StoreError(
            f"got a record that is not JSON, expected finite numbers: {error}"
        ) from None


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


def verdict_of(row: sqlite3.Row) -> Verdict:
    return Verdict(
        turn_id=row["turn_id"],
        kind=row["kind"],
        value=row["value"],
        reward=row["reward"],
        detail=json.loads(row["detail"]),
        created_s=row["created_s"],
        id=row["id"],
        weight=row["weight"],
    )


_SESSION_COLUMNS = [column.name for column in fields(SessionRow)]


def session_of(row: sqlite3.Row) -> SessionRow:
    values = {name: row[name] for name in _SESSION_COLUMNS}
    solved = values["solved"]
    return SessionRow(**values | {"solved": None if solved is None else bool(solved)})


_UPDATE_COLUMNS = [column.name for column in fields(UpdateRow) if column.name != "group_ids"]


def update_of(row: sqlite3.Row) -> UpdateRow:
    values = {name: row[name] for name in _UPDATE_COLUMNS}
    return UpdateRow(**values | {"metrics": json.loads(row["metrics"])})
