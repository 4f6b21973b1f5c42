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

from clawrl_gym.core.files.log_files import files_of_log
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
MOST_DISTILLED_TURNS = 6
_KEYS = (b'"hints"', b'"refused"', b'"taught"', b'"feedback"')


class _VerdictRow(TypedDict):
    """A verdict in evaluations.jsonl, as far as it is read here."""

    session_id: str
    turn_id: int
    kind: str
    value: int | None
    detail: VerdictDetail


class _DistilledTurnRow(TypedDict):
    """A distilled turn in evaluations.jsonl."""

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
class DistilledTurnLine:
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
class DistillLog:
    """The hints and distilled turns of evaluations.jsonl, oldest first."""

    hints: list[HintLine]
    """The newest ones."""
    distilled_turns: list[DistilledTurnLine]


@dataclass(frozen=True, slots=True)
class DistilledTurnCard:
    """A turn, what came back, what was made of it, and the teacher's opinion of each token."""

    update: int
    session: SessionRow
    turn: TranscriptTurn
    hint: str
    outcome: list[TranscriptMessage]


def read_distill_log(folder: Path) -> DistillLog:
    """Read the log; lines that are damaged or of another form are passed over."""
    hints: deque[HintLine] = deque(maxlen=_HINTS)
    distilled_turns: dict[tuple[object, ...], DistilledTurnLine] = {}
    for path in files_of_log(folder / EVALUATIONS_FILE):
        with path.open("rb") as file:
            for line in file:
                if any(key in line for key in _KEYS):
                    _add_line(line, hints, distilled_turns)
    return DistillLog(list(hints), sorted(distilled_turns.values(), key=lambda line: line.update))


def _add_line(
    line: bytes,
    hints: deque[HintLine],
    distilled_turns: dict[tuple[object, ...], DistilledTurnLine],
) -> None:
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        row = json.loads(line)
        if row["type"] == "verdict":
            hints.extend(_hints_of(row))
        elif row["type"] == "taught":
            found = _distilled_turn_of(row)
            # A resumed run may do an update again: the later line counts.
            distilled_turns[found.update, found.sample_id, tuple(found.ids_T)] = found


def _hints_of(row: _VerdictRow) -> list[HintLine]:
    fields = (str(row["session_id"]), int(row["turn_id"]), str(row["kind"]), row["value"])
    detail = row["detail"]
    lines = [HintLine(*fields, str(text)) for text in detail.get("hints") or ()]
    if detail.get("text"):
        lines.append(HintLine(*fields, str(detail["text"])))
    for refused in detail.get("refused") or ():
        lines.append(HintLine(*fields, str(refused["hint"]), str(refused["why"])))
    return lines


def _distilled_turn_of(row: _DistilledTurnRow) -> DistilledTurnLine:
    """A line of the log; its `id` is that of the sample."""
    ids_T = [int(token_id) for token_id in row["ids"]]
    gaps_T = [None if gap is None else float(gap) for gap in row["gaps"]]
    if len(ids_T) != len(gaps_T) or not all(math.isfinite(gap or 0.0) for gap in gaps_T):
        raise ValueError("a distilled turn's ids and gaps differ in length, or a gap is no number")
    turn_id = row["turn_id"]
    return DistilledTurnLine(
        int(row["version"]), str(row["session_id"]), int(row["id"]),
        None if turn_id is None else int(turn_id), int(row["prompt"]), ids_T, gaps_T,
    )  # fmt: skip


def distilled_turn_cards(
    reader: StoreReader, distilled_turns: Iterable[DistilledTurnLine], decoder: Decoder | None
) -> list[DistilledTurnCard]:
    """Cards of the distilled turns whose turns are in the store."""
    cards = (_card(reader, line, decoder) for line in distilled_turns)
    return [card for card in cards if card is not None]


def _card(
    reader: StoreReader, line: DistilledTurnLine, decoder: Decoder | None
) -> DistilledTurnCard | None:
    session = reader.session(line.session_id)
    turns = [turn for turn in reader.turns_of(line.session_id) if turn.kind == "main"]
    position = next((i for i, turn in enumerate(turns) if _is_distilled_turn(turn, line)), None)
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
    return DistilledTurnCard(line.update, session, shown_turn, hint, outcome)


def _is_distilled_turn(turn: Turn, line: DistilledTurnLine) -> bool:
    return turn.id == line.turn_id if line.turn_id is not None else turn.sampled_ids_T == line.ids_T


def hint_read(
    line: DistilledTurnLine, verdicts: Sequence[Verdict], samples: Sequence[Sample],
    decoder: Decoder | None,
) -> str:  # fmt: skip
    """The hint that the teacher read: of several the one that stands in its prompt."""
    hints = hints_of(verdicts)
    sample = next((sample for sample in samples if sample.id == line.sample_id), None)
    if len(hints) < 2 or sample is None or decoder is None:
        return next(iter(hints), "")
    prompts = [
        decoder.decode(target.prompts[line.prompt], skip_special_tokens=False)
        for target in sample.distill_targets
        if line.prompt < len(target.prompts)
        and sample.ids_T[target.start : target.start + target.length] == line.ids_T
    ]
    read = [hint for hint in hints if any(hint in prompt for prompt in prompts)]
    return max(read, key=len, default=hints[0])
