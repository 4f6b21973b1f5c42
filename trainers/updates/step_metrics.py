"""Metrics of one learner step, summed over its packs and minibatches.

A number that could not be measured (no token of the current version, no reference, no teacher) is
left out of the metrics instead of being reported as 0. Of each configured term of the loss the
share of tokens that it ran on is reported always, so that a term that did nothing is seen, and so
are the shares of tokens that were masked for their importance ratio, and for their sequence's.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from clawrl_gym.trainers.models.packing import Floats, Pack
from clawrl_gym.trainers.objectives import (
    DISTILLATION_SAMPLED,
    DISTILLATION_TOPK,
    KL,
    POLICY_GRADIENT,
)

if TYPE_CHECKING:
    from clawrl_gym.trainers.losses.loss import LossTerms
    from clawrl_gym.trainers.models.model import Scores


class StepMetrics:
    """Sums of one step; `metrics` turns them into means."""

    def __init__(
        self, version: int, objectives: frozenset[str], tis_cap: float, gap_clip: float | None
    ) -> None:
        """`objectives` are the terms of the loss as it was configured; `gap_clip` is None where no
        gap is cut."""
        self.version = version
        self.objectives = objectives
        self.loss = 0.0
        self.tokens = 0
        self.entropy = 0.0
        self.clipped = 0.0
        self.kl: float | None = None
        self.ran: Counter[str] = Counter()
        self.engine = EngineGap(version, tis_cap)
        self.teacher = TeacherGap(gap_clip)
        self.norms: list[float] = []
        self.strengths: list[float] = []
        self.masked = 0.0
        self.masked_sequences = 0.0

    def pack(
        self, pack: Pack, scores: Scores, terms: LossTerms, old_M: Tensor, mu_M: Tensor
    ) -> None:
        """Take in one pack's forward pass."""
        self.loss += float(terms.loss.detach())
        self.tokens += len(pack.targets_M)
        self.entropy += float(scores.entropies_M.sum())
        self.clipped += float(terms.clipped.sum())
        self.masked += float(terms.masked_M.sum())
        self.masked_sequences += float(terms.in_masked_sequence_M.sum())
        if terms.kl_M is not None:
            self.kl = (self.kl or 0.0) + float(terms.kl_M.sum())
            self.ran[KL] += len(pack.targets_M)
        self.ran[POLICY_GRADIENT] += int(np.count_nonzero(pack.advantages_M))
        self.engine.add(pack, (old_M - mu_M).cpu().numpy())
        if terms.gap_M is not None:
            form = DISTILLATION_SAMPLED if pack.topk_ids_MK is None else DISTILLATION_TOPK
            self.ran[form] += int(np.count_nonzero(pack.distill_M))
            self.teacher.add(terms.gap_M.cpu().numpy()[pack.distill_M != 0])

    def step(self, norm: float, strength: float) -> None:
        """Take in one optimizer step's gradient norm (before clipping) and strength of evidence."""
        self.norms.append(norm)
        self.strengths.append(strength)

    def metrics(self) -> dict[str, float]:
        """The step's numbers by name; empty when there was nothing to learn from."""
        if not self.tokens:
            return {}
        metrics = {
            "learner/loss": self.loss / len(self.norms),
            "learner/grad_norm": sum(self.norms) / len(self.norms),
            "learner/entropy": self.entropy / self.tokens,
            "learner/clip_share": self.clipped / self.tokens,
            "learner/masked_share": self.masked / self.tokens,
            "learner/masked_sequences_share": self.masked_sequences / self.tokens,
            "learner/strength": sum(self.strengths) / len(self.strengths),
            "learner/sampled_tokens": float(self.tokens),
        }
        if self.kl is not None:
            metrics["learner/kl"] = self.kl / self.tokens
        for name in sorted(self.objectives | {name for name in self.ran if self.ran[name]}):
            metrics[f"objective/{name}"] = self.ran[name] / self.tokens
        return metrics | self.engine.metrics() | self.teacher.metrics()


class EngineGap:
    """Distance of the learner's log-probs, before the update, from those that the engine sampled
    with."""

    def __init__(self, version: int, tis_cap: float) -> None:
        self._version = version
        self._max_log = math.log(tis_cap)
        self._tokens = 0
        self._importance = 0.0
        self._capped = 0
        self._gap = 0.0
        self._gap_tokens = 0
        self._gap_max = 0.0

    def add(self, pack: Pack, log_ratio_M: Floats) -> None:
        """Take in one pack; the gap itself is measured on tokens of the current version only."""
        self._tokens += len(log_ratio_M)
        self._importance += float(np.exp(np.minimum(log_ratio_M, self._max_log)).sum())
        self._capped += int((log_ratio_M > self._max_log).sum())
        gaps = np.abs(log_ratio_M)[pack.versions_M == self._version]
        if len(gaps):
            self._gap += float(gaps.sum())
            self._gap_tokens += len(gaps)
            self._gap_max = max(self._gap_max, float(gaps.max()))

    def metrics(self) -> dict[str, float]:
        """Means over tokens; `learner/capped_share` is the share of clipped importance weights."""
        metrics = {
            "learner/importance": self._importance / self._tokens,
            "learner/capped_share": self._capped / self._tokens,
        }
        if self._gap_tokens:
            metrics["logprob_gap/mean"] = self._gap / self._gap_tokens
            metrics["logprob_gap/max"] = self._gap_max
        return metrics


class TeacherGap:
    """Distance of the teacher's log-probs from the learner's, before the update."""

    def __init__(self, gap_clip: float | None) -> None:
        self._clip = gap_clip
        self._tokens = 0
        self._sum = 0.0
        self._abs = 0.0
        self._clipped = 0

    def add(self, gaps_M: Floats) -> None:
        """Take in the gaps of tokens that are distilled."""
        self._tokens += len(gaps_M)
        self._sum += float(gaps_M.sum())
        self._abs += float(np.abs(gaps_M).sum())
        if self._clip is not None:
            self._clipped += int((np.abs(gaps_M) > self._clip).sum())

    def metrics(self) -> dict[str, float]:
        """Means over tokens; empty without any."""
        if not self._tokens:
            return {}
        metrics = {
            "teacher/tokens": float(self._tokens),
            "teacher/gap_mean": self._sum / self._tokens,
            "teacher/gap_abs": self._abs / self._tokens,
        }
        if self._clip is not None:
            metrics["teacher/gap_clipped"] = self._clipped / self._tokens
        return metrics
