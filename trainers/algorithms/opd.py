"""On-policy distillation: where the next state taught something, the policy follows a teacher.

The teacher is asked about the very tokens that the policy sampled, under the turn's prompt with the
hint in it; each token then moves towards what the teacher, knowing the hint, thinks of it. A turn
without a hint is not trained on, and no reward is ever used: that a reply could be corrected never
reinforces it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clawrl_gym.config import TrainerConfig
from clawrl_gym.core.types import Group
from clawrl_gym.trainers.algorithms.algorithm import (
    Algorithm,
    Prompts,
    TurnWeights,
    Verdicts,
    WeightsByTurn,
)

if TYPE_CHECKING:
    from clawrl_gym.dialogue.merging import Segment


class Opd(Algorithm):
    """Turns with hints, by distillation alone.

    `counts`: `used` groups, `no_hints` groups (nothing taught), `empty_segments` (no token with a
    known log-prob).
    """

    needs_hints = True
    reward_weight = 0.0

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self._weight = weight

    @classmethod
    def from_config(cls, config: TrainerConfig, group_size: int | None) -> Opd:
        return cls(config.opd_weight)

    @classmethod
    def distils(cls, config: TrainerConfig) -> bool:
        return config.opd_weight > 0

    def weights(
        self,
        group: Group,
        segments_G: list[list[Segment]],
        verdicts_G: Sequence[Verdicts],
        prompts_G: Sequence[Prompts],
    ) -> list[WeightsByTurn]:
        weights_G: list[WeightsByTurn] = []
        for segments, prompts in zip(segments_G, prompts_G, strict=True):
            turns = [turn for segment in segments for turn in segment.turn_indices]
            distilled = [turn for turn in turns if prompts.get(turn)] if self._weight else []
            weights_G.append({turn: TurnWeights(distill=self._weight) for turn in distilled})
        self.counts["used" if any(weights_G) else "no_hints"] += 1
        return weights_G
