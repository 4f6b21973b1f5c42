"""Samples -> packs: whole sequences laid end to end, no padding, ready for one forward pass each.

Invariant: every sampled token with a known log-prob is in exactly one pack; every other token is
context only and its numbers are not read. Arrays are numpy's: nothing here knows the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clawrl_gym.errors import TrainerError
from clawrl_gym.types import Sample

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Pack:
    """Sequences end to end (T tokens) and the streams of their sampled tokens (M of the T)."""

    ids_T: Ints
    positions_T: Ints
    """Position inside its own sequence: starts again at 0."""
    lengths: list[int]
    """Tokens of each sequence, longest first; their sum is T."""
    predictors_M: Ints
    """Where in T the hidden state is that predicts each sampled token (one before it)."""
    targets_M: Ints
    """Id of each sampled token."""
    behaviour_M: Floats
    """vLLM's log-prob of it."""
    advantages_M: Floats
    versions_M: Ints


def make_packs(samples: Sequence[Sample], max_tokens: int) -> list[Pack]:
    """Pack samples into rows of at most `max_tokens`; a longer sequence gets a row of its own."""
    kept = [sample for sample in samples if any(_trainable(sample))]
    rows = fill_rows([len(sample.ids_T) for sample in kept], max_tokens)
    return [_pack([kept[index] for index in row]) for row in rows]


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
    """Tokens that the loss is a mean over."""
    return sum(sum(_trainable(sample)) for sample in samples)


def staleness(samples: Sequence[Sample], version: int) -> dict[str, float]:
    """How many versions old the samples' oldest tokens are."""
    ages = [version - s.oldest_version for s in samples if s.oldest_version >= 0]
    if not ages:
        return {}
    return {"staleness/mean": sum(ages) / len(ages), "staleness/max": float(max(ages))}


def _trainable(sample: Sample) -> list[bool]:
    """The mask, less the tokens whose log-prob is not a number."""
    return [
        sampled and math.isfinite(logprob)
        for sampled, logprob in zip(sample.mask_T, sample.logprobs_T, strict=True)
    ]


def _pack(samples: list[Sample]) -> Pack:
    lengths = [len(sample.ids_T) for sample in samples]
    starts = np.cumsum([0, *lengths[:-1]])
    masks = [np.array(_trainable(sample)) for sample in samples]
    for sample, mask in zip(samples, masks, strict=True):
        if mask[0]:
            raise TrainerError(
                f"session {sample.session_id!r}: the first token of a sequence is marked as "
                "sampled, expected at least one prompt token before it"
            )
    where = [np.flatnonzero(mask) for mask in masks]
    return Pack(
        ids_T=np.concatenate([np.asarray(s.ids_T, np.int64) for s in samples]),
        positions_T=np.concatenate([np.arange(length) for length in lengths]),
        lengths=lengths,
        predictors_M=np.concatenate([w + s - 1 for w, s in zip(where, starts, strict=True)]),
        targets_M=_at(where, [sample.ids_T for sample in samples]).astype(np.int64),
        behaviour_M=_at(where, [sample.logprobs_T for sample in samples]).astype(np.float32),
        advantages_M=_at(where, [sample.advantages_T for sample in samples]).astype(np.float32),
        versions_M=_at(where, [sample.versions_T for sample in samples]).astype(np.int64),
    )


def _at(where: list[Ints], streams: Sequence[Sequence[float]]) -> NDArray[Any]:
    """The streams' values at the sampled tokens, end to end."""
    return np.concatenate([np.asarray(s)[w] for s, w in zip(streams, where, strict=True)])
