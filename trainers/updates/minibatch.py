"""The part of a batch that one optimizer step is made on, and its loss, pack by pack."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clawrl_gym.config import DistillationConfig
from clawrl_gym.core.errors import TrainerError
from clawrl_gym.core.types import DistilledTurn, Sample
from clawrl_gym.trainers.losses.loss import LossSettings, LossTerms, policy_loss
from clawrl_gym.trainers.models.distillation import topk_divergence
from clawrl_gym.trainers.models.packing import (
    Pack,
    TeacherScores,
    count_sequences,
    count_tokens,
    make_packs,
)
from clawrl_gym.trainers.updates.teacher import show

if TYPE_CHECKING:
    from clawrl_gym.trainers.models.model import Scores


@dataclass(frozen=True, slots=True)
class Minibatch:
    """Samples, the teacher's scores of them, and both as packs (whose origins count samples)."""

    samples: list[Sample]
    readings: list[TeacherScores | None]
    packs: list[Pack]
    tokens: int
    """Denominator of the mean: all tokens that are learned from, taught or not."""
    sequences: int


def split(
    samples: Sequence[Sample],
    readings: Sequence[TeacherScores | None],
    parts: int,
    max_tokens: int,
    draw: random.Random,
) -> list[Minibatch]:
    """The batch in `parts`, drawn at random; samples without a token to learn from are left out."""
    order = list(zip(samples, readings, strict=True))
    if parts > 1:
        draw.shuffle(order)
    minibatches = []
    for index in range(parts):
        part = [sample for sample, _ in order[index::parts]]
        part_readings = [reading for _, reading in order[index::parts]]
        packs = make_packs(part, max_tokens, part_readings)
        if packs:
            counts = count_tokens(part), count_sequences(part)
            minibatches.append(Minibatch(part, part_readings, packs, *counts))
    return minibatches


def pack_loss(
    pack: Pack,
    minibatch: Minibatch,
    scores: Scores,
    old_M: Tensor,
    reference_M: Tensor | None,
    settings: LossSettings,
    config: DistillationConfig,
) -> LossTerms:
    """The pack's share of the minibatch's loss, with the teacher's term where it spoke."""
    mu_M, advantages_M, rows_M, distill_M, teacher_M = (
        torch.from_numpy(stream).to(old_M.device)
        for stream in (
            pack.behaviour_M, pack.advantages_M, pack.rows_M, pack.distill_M, pack.teacher_M
        )
    )  # fmt: skip
    distilled = bool(pack.distill_M.any())
    divergence_M = None
    if distilled and config.form == "topk":
        if scores.topk_MK is None or pack.topk_teacher_MK is None:
            raise TrainerError(
                "got a pack to distil without the log-probs of its most likely tokens, expected "
                "them with trainer.distillation.form=topk"
            )
        topk_teacher_MK = torch.from_numpy(pack.topk_teacher_MK).to(old_M.device)
        divergence_M = topk_divergence(scores.topk_MK, topk_teacher_MK, config.divergence)
    return policy_loss(
        scores.logprobs_M,
        old_M,
        mu_M,
        advantages_M,
        minibatch.tokens,
        settings,
        reference_M,
        distill_M=distill_M if distilled else None,
        teacher_M=teacher_M if distilled else None,
        gap_clip=config.gap_clip,
        divergence_M=divergence_M,
        rows_M=rows_M,
        sequences=minibatch.sequences,
    )


def distilled_turns_of(
    pack: Pack, minibatch: Minibatch, terms: LossTerms
) -> Iterator[DistilledTurn]:
    """The pack's turns with the teacher's scores; nothing where it did not speak."""
    if terms.gap_M is None:
        return
    gaps = terms.gap_M.cpu().numpy()
    for row, origin in enumerate(pack.origins):
        reading = minibatch.readings[origin]
        if reading is not None:
            yield from show(minibatch.samples[origin], reading, gaps[pack.rows_M == row])
