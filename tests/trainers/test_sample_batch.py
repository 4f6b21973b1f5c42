"""Samples go out as arrays and come back as they were."""

from __future__ import annotations

import io
import math
from dataclasses import fields

import numpy as np
import pytest

from clawrl_gym.core.types import DistillTarget, Sample
from clawrl_gym.trainers import sample_batch
from clawrl_gym.trainers.sample_batch import SampleBatch

PLAIN = Sample("s", 3, [1, 2, 7], [False, True, True], [0.0, -1.25, 0.1 + 0.2], [-1, 0, 4],
               [0.0, 1.0, 1 / 3], 1.0)  # fmt: skip
RICH = Sample(
    "anna/t",
    -1,
    [9, 5, 151_935, 4],
    [False, True, False, True],
    [0.0, math.nan, 0.0, -math.inf],
    [-1, 2, -1, 3],
    [0.0, -0.5, 0.0, 1e-300],
    -0.25,
    turn_id=12,
    distill_T=[0.0, 1.0, 0.0, 0.5],
    distill_targets=(DistillTarget(1, 1, ([3, 4], [8]), 2), DistillTarget(3, 1, ([6],))),
    pictures=("abc", "def"),
    strength=0.3,
    temperature=0.7,
    signal="feedback",
    id=77,
)
SILENT = Sample("empty", 0, [], [], [], [], [], 0.0)


@pytest.mark.parametrize("samples", [[], [PLAIN], [RICH, SILENT, PLAIN], [SILENT]])
def test_samples_come_back_bit_by_bit(samples: list[Sample]) -> None:
    batch = SampleBatch.of(samples)
    assert len(batch) == len(samples)
    assert repr(batch.samples()) == repr(samples), "nan is not equal to itself"
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **batch.arrays())
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        again = SampleBatch.of_arrays(arrays)
    assert repr(again.samples()) == repr(samples)


def test_streams_lie_end_to_end() -> None:
    batch = SampleBatch.of([PLAIN, RICH])
    assert batch.lengths_N.tolist() == [3, 4]
    assert batch.ids_T.tolist() == [1, 2, 7, 9, 5, 151_935, 4]
    assert batch.prompts_P.tolist() == [3, 4, 8, 6]
    assert batch.distill_T.tolist() == [0, 0, 0, 0, 1, 0, 0.5]
    assert {array.dtype.kind for array in batch.arrays().values()} == set("bfiu")


def test_every_field_of_a_sample_travels() -> None:
    carried = {*sample_batch._STREAMS, *sample_batch._REST, "distill_T", "distill_targets"}
    assert carried == {field.name for field in fields(Sample)}
    in_target = {field.name for field in fields(DistillTarget)}
    assert in_target == {"start", "length", "prompts", "pictures"}


def test_an_array_that_is_missing_is_told() -> None:
    arrays = SampleBatch.of([PLAIN]).arrays()
    del arrays["advantages_T"]
    with pytest.raises(KeyError, match="advantages_T"):
        SampleBatch.of_arrays(arrays)
