"""What one learner step is seen to do, summed over its packs and minibatches.

A number that could not be measured (no token of the current version, no reference) is left out
of the metrics instead of being reported as 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from clawrl_gym.trainers.batch import Pack

if TYPE_CHECKING:
    from clawrl_gym.trainers.loss import LossTerms
    from clawrl_gym.trainers.model import Scores


class Watch:
    """Sums of one step; `metrics` turns them into means."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.loss = 0.0
        self.tokens = 0
        self.entropy = 0.0
        self.clipped = 0.0
        self.kl: float | None = None
        self.gap = 0.0
        self.gap_tokens = 0
        self.gap_max = 0.0
        self.norms: list[float] = []

    def pack(
        self, pack: Pack, scores: Scores, terms: LossTerms, old_M: Tensor, mu_M: Tensor
    ) -> None:
        """Take in one pack's forward pass."""
        self.loss += float(terms.loss.detach())
        self.tokens += len(pack.targets_M)
        self.entropy += float(scores.entropies_M.sum())
        self.clipped += float(terms.clipped.sum())
        if terms.kl_M is not None:
            self.kl = (self.kl or 0.0) + float(terms.kl_M.sum())
        gaps = (old_M - mu_M).abs().cpu().numpy()[pack.versions_M == self.version]
        if len(gaps):
            self.gap += float(gaps.sum())
            self.gap_tokens += len(gaps)
            self.gap_max = max(self.gap_max, float(gaps.max()))

    def step(self, norm: float) -> None:
        """Take in one optimizer step's gradient norm (before clipping)."""
        self.norms.append(norm)

    def metrics(self) -> dict[str, float]:
        """The step's numbers by name; empty when there was nothing to learn from."""
        if not self.tokens:
            return {}
        metrics = {
            "learner/loss": self.loss / len(self.norms),
            "learner/grad_norm": sum(self.norms) / len(self.norms),
            "learner/entropy": self.entropy / self.tokens,
            "learner/clip_share": self.clipped / self.tokens,
            "learner/sampled_tokens": float(self.tokens),
        }
        if self.kl is not None:
            metrics["learner/kl"] = self.kl / self.tokens
        if self.gap_tokens:
            metrics["logprob_gap/mean"] = self.gap / self.gap_tokens
            metrics["logprob_gap/max"] = self.gap_max
        return metrics
