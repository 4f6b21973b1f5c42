"""Packing loses no token and reads no number that is not there."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from clawrl_gym.core.errors import TrainerError
from clawrl_gym.trainers.models.packing import (
    TeacherScores,
    count_sequences,
    count_tokens,
    fill_rows,
    make_packs,
    staleness,
)
from tests.reference.tiny_model import make_samples

LENGTHS = [5, 30, 17, 4, 17, 60, 9]


def test_rows_hold_every_sequence_once_within_the_limit() -> None:
    draw = random.Random(1)
    for _ in range(100):
        lengths = [draw.randrange(1, 100) for _ in range(draw.randrange(30))]
        rows = fill_rows(lengths, 128)
        assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
        assert all(sum(lengths[i] for i in row) <= 128 for row in rows)
        assert len(rows) <= 1.5 * math.ceil(sum(lengths) / 128) + 1


def test_a_sequence_longer_than_a_row_has_one_to_itself() -> None:
    assert fill_rows([10, 200, 20], 100) == [[1], [2, 0]]


def test_packs_carry_each_sampled_token_with_its_own_streams() -> None:
    samples = make_samples(LENGTHS)
    packs = make_packs(samples, 64)
    assert sum(len(pack.targets_M) for pack in packs) == count_tokens(samples)
    got = [
        row
        for pack in packs
        for row in zip(
            pack.targets_M.tolist(),
            pack.ids_T[pack.predictors_M].tolist(),
            pack.positions_T[pack.predictors_M].tolist(),
            pack.behaviour_M.tolist(),
            pack.advantages_M.tolist(),
            pack.versions_M.tolist(),
            strict=True,
        )
    ]
    expected = [
        (
            s.ids_T[i],
            s.ids_T[i - 1],
            i - 1,
            float(np.float32(s.logprobs_T[i])),
            s.advantages_T[i],
            0,
        )
        for s in samples
        for i in range(len(s.ids_T))
        if s.mask_T[i]
    ]
    assert sorted(got) == sorted(expected)


def test_positions_start_again_with_each_sequence() -> None:
    (pack,) = make_packs(make_samples([3, 2, 4]), 128)
    assert pack.lengths == [4, 3, 2]
    assert pack.positions_T.tolist() == [0, 1, 2, 3, 0, 1, 2, 0, 1]


def test_numbers_of_masked_tokens_are_never_read() -> None:
    nan = float("nan")
    clean = make_samples(LENGTHS)
    dirty = [
        replace(
            s,
            logprobs_T=[p if m else nan for p, m in zip(s.logprobs_T, s.mask_T, strict=True)],
            advantages_T=[a if m else nan for a, m in zip(s.advantages_T, s.mask_T, strict=True)],
        )
        for s in clean
    ]
    for one, other in zip(make_packs(clean, 64), make_packs(dirty, 64), strict=True):
        assert one.behaviour_M.tolist() == other.behaviour_M.tolist()
        assert one.advantages_M.tolist() == other.advantages_M.tolist()


def test_a_logprob_that_is_not_a_number_masks_its_token() -> None:
    (sample,) = make_samples([12])
    at = sample.mask_T.index(True)
    logprobs = [float("nan") if i == at else p for i, p in enumerate(sample.logprobs_T)]
    broken = replace(sample, logprobs_T=logprobs)
    (pack,) = make_packs([broken], 64)
    assert len(pack.targets_M) == sum(sample.mask_T) - 1 == count_tokens([broken])
    assert np.isfinite(pack.behaviour_M).all()


def test_samples_without_a_sampled_token_are_left_out() -> None:
    (sample,) = make_samples([6])
    empty = replace(sample, mask_T=[False] * 6)
    assert make_packs([empty], 64) == []
    assert make_packs([], 64) == []
    assert len(make_packs([empty, sample], 64)[0].lengths) == 1


def test_a_sampled_first_token_is_refused() -> None:
    (sample,) = make_samples([6])
    with pytest.raises(TrainerError, match="at least one prompt token"):
        make_packs([replace(sample, mask_T=[True] * 6)], 64)


def test_staleness_counts_from_the_oldest_token_of_each_sample() -> None:
    fresh, old = make_samples([6], version=4)[0], make_samples([9], version=2)[0]
    mixed = replace(old, versions_T=[v + (v >= 0) * (i % 2) for i, v in enumerate(old.versions_T)])
    assert staleness([fresh, mixed], 4) == {"staleness/mean": 1.0, "staleness/max": 2.0}
    assert staleness([], 4) == {}


def test_each_token_knows_its_sequence_and_each_sequence_its_sample() -> None:
    samples = make_samples(LENGTHS)
    empty = replace(samples[0], mask_T=[False] * len(samples[0].mask_T))
    batch = [empty, *samples]
    seen = []
    for pack in make_packs(batch, 64):
        assert pack.rows_M.max() == len(pack.lengths) - 1
        for row, origin in enumerate(pack.origins):
            known = [i for i, m in zip(batch[origin].ids_T, batch[origin].mask_T, strict=True) if m]
            assert pack.targets_M[pack.rows_M == row].tolist() == known
            seen.append(origin)
    assert sorted(seen) == list(range(1, len(batch)))
    assert count_sequences(batch) == len(samples)


def test_what_a_teacher_said_lies_beside_the_tokens_it_is_about() -> None:
    silent, taught = make_samples([30, 12])
    count = sum(taught.mask_T)
    reading = TeacherScores(
        distill_M=np.full(count, 0.5, np.float32),
        teacher_M=np.arange(count, dtype=np.float32),
        topk_ids_MK=np.arange(3 * count).reshape(count, 3),
        topk_teacher_MK=np.full((count, 3), -1, np.float32),
    )
    (pack,) = make_packs([silent, taught], 64, [None, reading])
    theirs = pack.rows_M == pack.origins.index(1)
    assert pack.topk_ids_MK is not None
    assert pack.topk_teacher_MK is not None
    assert pack.distill_M.tolist() == [0.5 if t else 0.0 for t in theirs]
    assert pack.teacher_M[theirs].tolist() == list(range(count))
    assert reading.topk_ids_MK is not None
    assert pack.topk_ids_MK[theirs].tolist() == reading.topk_ids_MK.tolist()
    assert np.isnan(pack.teacher_M[~theirs]).all()
    assert np.isnan(pack.topk_teacher_MK[~theirs]).all()
    assert pack.topk_ids_MK.shape == (len(pack.targets_M), 3)


def test_without_readings_no_token_is_distilled() -> None:
    (sample,) = make_samples([12])
    weighted = replace(sample, distill_T=[1.0] * 12)
    (pack,) = make_packs([weighted], 64)
    assert not pack.distill_M.any()
    assert np.isnan(pack.teacher_M).all()
    assert pack.topk_ids_MK is None
