"""Samples -> packs: whole sequences laid end to end, no padding, ready for one forward pass each.

Invariant: every sampled token with a known log-prob is in exactly one pack; every other token is
context only and its numbers are not read. Arrays are numpy's: nothing here knows the model, and
what a teacher said comes in beside the samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from clawrl_gym.core.errors import TrainerError
from clawrl_gym.core.types import Sample

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
ScalarT = TypeVar("ScalarT", bound=np.generic)


@dataclass(frozen=True, slots=True)
class TeacherScores:
    """The teacher's scores of the M tokens of one sample that are learned from, in order."""

    distill_M: Floats
    """Weight of the distillation term; 0 where the teacher said nothing."""
    teacher_M: Floats
    """The teacher's log-prob of each token; NaN where it said nothing."""
    topk_ids_MK: Ints | None = None
    """The tokens that are compared at each place; None when only the sampled one is."""
    topk_teacher_MK: Floats | None = None
    """The teacher's log-probs of them; NaN where it said nothing."""
    prompts: tuple[int | None, ...] = ()
    """Index of the prompt that it read for each of the sample's distillation targets; None:
    distillation target left out."""


@dataclass(frozen=True, slots=True)
class Pack:
    """Sequences end to end (T tokens) and the streams of their sampled tokens (M of the T)."""

    ids_T: Ints
    positions_T: Ints
    """Position inside its own sequence: starts again at 0."""
    lengths: list[int]
    """Tokens of each sequence, longest first; their sum is T."""
    predictors_M: Ints
    """Index in T of the hidden state that predicts each sampled token (one before it)."""
    targets_M: Ints
    """Id of each sampled token."""
    behaviour_M: Floats
    """The engine's log-prob of each sampled token."""
    advantages_M: Floats
    versions_M: Ints
    rows_M: Ints
    """Index of the sequence that each sampled token belongs to."""
    distill_M: Floats
    """Weight of the distillation term; 0 where no teacher spoke."""
    teacher_M: Floats
    """The teacher's log-prob; NaN where none spoke."""
    origins: list[int]
    """Place of each sequence among the samples that were packed."""
    topk_ids_MK: Ints | None = None
    """Tokens to compare beside the sampled one; any where no teacher spoke."""
    topk_teacher_MK: Floats | None = None
    """The teacher's log-probs of them; NaN where none spoke."""
    pictures: tuple[str, ...] = ()
    """Pictures of its one sequence."""
    temperatures_M: Floats | None = None
    """Temperature that each token was sampled at; NaN: the run's own. None: all were."""


def make_packs(
    samples: Sequence[Sample],
    max_tokens: int,
    readings: Sequence[TeacherScores | None] | None = None,
) -> list[Pack]:
    """Pack samples into rows of at most `max_tokens`; a longer sequence gets a row of its own.

    So does each sequence with pictures: its positions are not those of a text.
    Without readings nothing is distilled, whatever weights the samples bring.
    """
    all_readings = readings or [None for _ in samples]
    trained = [index for index, sample in enumerate(samples) if any(trainable(sample))]
    packs = []
    seeing = [index for index in trained if samples[index].pictures]
    trained = [index for index in trained if not samples[index].pictures]
    rows = [[trained[i] for i in row] for row in fill_rows(_lengths(samples, trained), max_tokens)]
    for origins in [*rows, *([index] for index in seeing)]:
        packs.append(
            _pack([samples[i] for i in origins], [all_readings[i] for i in origins], origins)
        )
    return packs


def _lengths(samples: Sequence[Sample], indices: Sequence[int]) -> list[int]:
    return [len(samples[index].ids_T) for index in indices]


def fill_rows(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Indices by row, longest first (first-fit decreasing: close to the fewest rows)."""
    rows: list[list[int]] = []
    room: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        length = lengths[index]
        row = next((r for r, free in enumerate(room) if free >= length), len(rows))
        if row == len(rows):
            rows.append([])
            room.append(max_tokens)
        rows[row].append(index)
        room[row] -= length
    return rows


def count_tokens(samples: Sequence[Sample]) -> int:
    """Number of tokens that the loss is a mean over."""
    return sum(sum(trainable(sample)) for sample in samples)


def count_sequences(samples: Sequence[Sample]) -> int:
    """Number of samples with at least one of these tokens."""
    return sum(any(trainable(sample)) for sample in samples)


def staleness(samples: Sequence[Sample], version: int) -> dict[str, float]:
    """Age of the samples' oldest tokens, in versions."""
    ages = [version - s.oldest_version for s in samples if s.oldest_version >= 0]
    if not ages:
        return {}
    return {"staleness/mean": sum(ages) / len(ages), "staleness/max": float(max(ages))}


def trainable(sample: Sample) -> list[bool]:
    """Which tokens are learned from: the mask, less the tokens whose log-prob is not a number."""
    return [
        sampled and math.isfinite(logprob)
        for sampled, logprob in zip(sample.mask_T, sample.logprobs_T, strict=True)
    ]


def _pack(samples: list[Sample], readings: list[TeacherScores | None], origins: list[int]) -> Pack:
    lengths = [len(sample.ids_T) for sample in samples]
    starts = np.cumsum([0, *lengths[:-1]])
    masks = [np.array(trainable(sample)) for sample in samples]
    for sample, mask in zip(samples, masks, strict=True):
        if mask[0]:
            raise TrainerError(
                f"session {sample.session_id!r}: the first token of a sequence is marked as "
                "sampled, expected at least one prompt token before it"
            )
    where = [np.flatnonzero(mask) for mask in masks]
    counts = [len(w) for w in where]
    all_readings = [
        reading or _silence(count) for reading, count in zip(readings, counts, strict=True)
    ]
    topk_ids_MK, topk_teacher_MK = _topk(all_readings)
    return Pack(
        ids_T=np.concatenate([np.asarray(s.ids_T, np.int64) for s in samples]),
        positions_T=np.concatenate([np.arange(length) for length in lengths]),
        lengths=lengths,
        predictors_M=np.concatenate([w + s - 1 for w, s in zip(where, starts, strict=True)]),
        targets_M=_at(where, [sample.ids_T for sample in samples]).astype(np.int64),
        behaviour_M=_at(where, [sample.logprobs_T for sample in samples]).astype(np.float32),
        advantages_M=_at(where, [sample.advantages_T for sample in samples]).astype(np.float32),
        versions_M=_at(where, [sample.versions_T for sample in samples]).astype(np.int64),
        rows_M=np.repeat(np.arange(len(samples)), counts),
        distill_M=np.concatenate([reading.distill_M for reading in all_readings]),
        teacher_M=np.concatenate([reading.teacher_M for reading in all_readings]),
        origins=origins,
        topk_ids_MK=topk_ids_MK,
        topk_teacher_MK=topk_teacher_MK,
        pictures=samples[0].pictures,
        temperatures_M=_temperatures(samples, counts),
    )


def _temperatures(samples: list[Sample], counts: list[int]) -> Floats | None:
    known = [math.nan if sample.temperature is None else sample.temperature for sample in samples]
    if all(map(math.isnan, known)):
        return None
    return np.repeat(np.array(known, np.float32), counts)


def _at(where: list[Ints], streams: Sequence[Sequence[float]]) -> NDArray[np.generic]:
    """The streams' values at the sampled tokens, end to end."""
    return np.concatenate([np.asarray(s)[w] for s, w in zip(streams, where, strict=True)])


def _silence(count: int) -> TeacherScores:
    """Scores of a sample without distillation targets."""
    return TeacherScores(np.zeros(count, np.float32), np.full(count, math.nan, np.float32))


def _topk(readings: list[TeacherScores]) -> tuple[Ints | None, Floats | None]:
    """Compared tokens and log-probs, end to end; None when no reading has any."""
    shapes = [
        reading.topk_ids_MK.shape[1] for reading in readings if reading.topk_ids_MK is not None
    ]
    if not shapes:
        return None, None
    ids, logprobs = [], []
    for reading in readings:
        empty = (len(reading.teacher_M), shapes[0])
        ids.append(_or_else(reading.topk_ids_MK, np.zeros(empty, np.int64)))
        logprobs.append(_or_else(reading.topk_teacher_MK, np.full(empty, math.nan, np.float32)))
    return np.concatenate(ids), np.concatenate(logprobs)


def _or_else(stream: NDArray[ScalarT] | None, otherwise: NDArray[ScalarT]) -> NDArray[ScalarT]:
    return otherwise if stream is None else stream
