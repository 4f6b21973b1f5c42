"""Lessons as they are shown: hints in words, and the teacher's reading of the policy's tokens.

Both are in evaluations.jsonl, from which a deleted session is gone. A log can be long: only the
lines about lessons are parsed.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from clawrl_gym.core.log_files import files_of_log
from clawrl_gym.core.types import Sample, Turn, Verdict, VerdictDetail
from clawrl_gym.judge.enhance import hints_of
from clawrl_gym.store import SessionRow, StoreReader, effective
from clawrl_gym.store.journal import EVALUATIONS_FILE
from clawrl_gym.ui.transcripts import (
    Decoder,
    TranscriptMessage,
    TranscriptTurn,
    transcript_message,
    transcript_turn,
)

_HINTS = 12
MOST_LESSONS = 6
_KEYS = (b'"hints"', b'"refused"', b'"taught"', b'"feedback"')


class _VerdictRow(TypedDict):
    """A verdict in evaluations.jsonl, as far as it is read here."""

    session_id: str
    turn_id: int
    kind: str
    value: int | None
    detail: VerdictDetail


class _TaughtRow(TypedDict):
    """A lesson in evaluations.jsonl."""

    version: int
    id: int
    """Id of the sample."""
    session_id: str
    turn_id: int | None
    prompt: int
    ids: list[int]
    gaps: list[float | None]


@dataclass(frozen=True, slots=True)
class HintLine:
    """One text that a judge gave as a hint, or a person as a correction."""

    session_id: str
    turn_id: int
    kind: str
    value: int | None
    """Value of the verdict that came with it; None is an abstention."""
    text: str
    refused: str = ""
    """Why it was not accepted."""


@dataclass(frozen=True, slots=True)
class TaughtLine:
    """The teacher's gaps on one turn in one update."""

    update: int
    session_id: str
    sample_id: int
    turn_id: int | None
    prompt: int
    ids_T: list[int]
    gaps_T: list[float | None]
    """The teacher's gaps; None where it scored nothing."""


@dataclass(frozen=True, slots=True)
class LessonLog:
    """The hints and lessons of evaluations.jsonl, oldest first."""

    hints: list[HintLine]
    """The newest ones."""
    taught: list[TaughtLine]


@dataclass(frozen=True, slots=True)
class LessonCard:
    """A turn, what came back, what was made of it, and the teacher's opinion of each token."""

    update: int
    session: SessionRow
    turn: TranscriptTurn
    hint: str
    outcome: list[TranscriptMessage]


def read_lesson_log(folder: Path) -> LessonLog:
    """Read the log; lines that are damaged or of another form are passed over."""
    hints: deque[HintLine] = deque(maxlen=_HINTS)
    taught: dict[tuple[object, ...], TaughtLine] = {}
    for path in files_of_log(folder / EVALUATIONS_FILE):
        with path.open("rb") as file:
            for line in file:
                if any(key in line for key in _KEYS):
                    _add_line(line, hints, taught)
    return LessonLog(list(hints), sorted(taught.values(), key=lambda line: line.update))


def _add_line(
    line: bytes, hints: deque[HintLine], taught: dict[tuple[object, ...], TaughtLine]
) -> None:
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        row = json.loads(line)
        if row["type"] == "verdict":
            hints.extend(_hints_of(row))
        elif row["type"] == "taught":
            lesson = _taught_of(row)
            # A resumed run may do an update again: the later line counts.
            taught[lesson.update, lesson.sample_id, tuple(lesson.ids_T)] = lesson


def _hints_of(row: _VerdictRow) -> list[HintLine]:
    fields = (str(row["session_id"]), int(row["turn_id"]), str(row["kind"]), row["value"])
    detail = row["detail"]
    lines = [HintLine(*fields, str(text)) for text in detail.get("hints") or ()]
    if detail.get("text"):
        lines.append(HintLine(*fields, str(detail["text"])))
    for refused in detail.get("refused") or ():
        lines.append(HintLine(*fields, str(refused["hint"]), str(refused["why"])))
    return lines


def _taught_of(row: _TaughtRow) -> TaughtLine:
    """A line of the log; its `id` is that of the sample."""
    ids_T = [int(token_id) for token_id in row["ids"]]
    gaps_T = [None if gap is None else float(gap) for gap in row["gaps"]]
    if len(ids_T) != len(gaps_T) or not all(math.isfinite(gap or 0.0) for gap in gaps_T):
        raise ValueError("a lesson's ids and gaps differ in length, or a gap is no number")
    turn_id = row["turn_id"]
    return TaughtLine(
        int(row["version"]), str(row["session_id"]), int(row["id"]),
        None if turn_id is None else int(turn_id), int(row["prompt"]), ids_T, gaps_T,
    )  # fmt: skip


def lesson_cards(
    reader: StoreReader, taught: Iterable[TaughtLine], decoder: Decoder | None
) -> list[LessonCard]:
    """Cards of the lessons whose turns are in the store."""
    cards = (_card(reader, line, decoder) for line in taught)
    return [card for card in cards if card is not None]


def _card(reader: StoreReader, line: TaughtLine, decoder: Decoder | None) -> LessonCard | None:
    session = reader.session(line.session_id)
    turns = [turn for turn in reader.turns_of(line.session_id) if turn.kind == "main"]
    position = next((i for i, turn in enumerate(turns) if _is_taught(turn, line)), None)
    if session is None or position is None:
        return None
    turn = turns[position]
    assert turn.id is not None
    samples = reader.samples_of_session(line.session_id)
    verdicts = reader.verdicts_of(line.session_id).get(turn.id, [])
    before = turns[position - 1].messages if position else []
    shown_turn = transcript_turn(turn, before, samples, decoder, effective(verdicts), line.gaps_T)
    hint = hint_read(line, verdicts, samples, decoder)
    outcome = [transcript_message(message) for message in reader.next_state_of(turn.id) or []]
    return LessonCard(line.update, session, shown_turn, hint, outcome)


def _is_taught(turn: Turn, line: TaughtLine) -> bool:
    return turn.id == line.turn_id if line.turn_id is not None else turn.sampled_ids_T == line.ids_T


def hint_read(
    line: TaughtLine, verdicts: Sequence[Verdict], samples: Sequence[Sample],
    decoder: Decoder | None,
) -> str:  # fmt: skip
    """The hint that the teacher read: of several the one that stands in its prompt."""
    hints = hints_of(verdicts)
    sample = next((sample for sample in samples if sample.id == line.sample_id), None)
    if len(hints) < 2 or sample is None or decoder is None:
        return next(iter(hints), "")
    prompts = [
        decoder.decode(lesson.prompts[line.prompt], skip_special_tokens=False)
        for lesson in sample.lessons
        if line.prompt < len(lesson.prompts)
        and sample.ids_T[lesson.start : lesson.start + lesson.length] == line.ids_T
    ]
    read = [hint for hint in hints if any(hint in prompt for prompt in prompts)]
    return max(read, key=len, default=hints[0])
