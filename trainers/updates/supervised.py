"""Supervised learning (SFT): its loss, its numbers, and which samples each update takes.

    L = -mean_t w_t lp_t          over all marked tokens of the batch; w_t = 1 usually

The order of samples is a function of the seed and the update's number alone, so that a run that
was stopped resumes with the batches that it would have had.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clawrl_gym.core.types import Sample
from clawrl_gym.trainers.models.packing import Pack

if TYPE_CHECKING:
    from clawrl_gym.trainers.models.model import Scores


def supervised_loss(lp_M: Tensor, pack: Pack, count: int) -> Tensor:
    """Cross-entropy of the pack's marked tokens as their part of the mean over `count` tokens."""
    weights_M = torch.from_numpy(pack.advantages_M).to(lp_M.device)
    return -(weights_M * lp_M).sum() / count


class SupervisedMetrics:
    """Sums over the packs of one update."""

    def __init__(self) -> None:
        self._loss = 0.0
        self._entropy = 0.0
        self._tokens = 0

    def pack(self, loss: float, scores: Scores) -> None:
        """Take in one pack's forward pass; `loss` is its part of the batch's."""
        self._loss += loss
        self._entropy += float(scores.entropies_M.sum())
        self._tokens += len(scores.entropies_M)

    def metrics(self) -> dict[str, float]:
        """The update's loss, the entropy before it and the tokens that both are means over."""
        return {
            "learner/loss": self._loss,
            "learner/entropy": self._entropy / self._tokens,
            "learner/target_tokens": float(self._tokens),
        }


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """Order of samples: all of them once an epoch, in an order of the epoch's own."""

    samples: int
    batch: int
    seed: int

    @property
    def updates_per_epoch(self) -> int:
        """Updates of one epoch; its last batch may be smaller."""
        return math.ceil(self.samples / self.batch)

    def indices(self, update: int) -> list[int]:
        """Indices of the samples of update `update`; 0 is the first."""
        epoch, place = divmod(update, self.updates_per_epoch)
        order = list(range(self.samples))
        random.Random(f"{self.seed}:{epoch}").shuffle(order)
        return order[place * self.batch : (place + 1) * self.batch]


def mean_loss(logprobs: Sequence[Sequence[float]]) -> float:
    """Mean over the tokens of some samples, from the log-probs of the learner's review of them."""
    tokens = sum(map(len, logprobs))
    return -sum(map(sum, logprobs)) / tokens


def make_supervised_sample(session_id: str, ids_T: list[int], mask_T: list[bool]) -> Sample:
    """A sample whose marked tokens are imitated, each with the weight 1."""
    return Sample(
        session_id=session_id,
        group_id=0,
        ids_T=ids_T,
        mask_T=mask_T,
        logprobs_T=[0.0] * len(ids_T),
        versions_T=[-1] * len(ids_T),
        advantages_T=[float(is_learned) for is_learned in mask_T],
        reward=1.0,
    )
