"""Rewards and hints together: a turn is trained by the next state's verdict, good or bad, and by
what that state teaches.

    A = rl_weight * A_reward          where the rewards give an advantage
    w = opd_weight                    where there is a hint

Both terms are independent: a turn may bring one, both or none, and each keeps its own scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from clawrl_gym.config import TrainerConfig
from clawrl_gym.core.types import Compared, Group
from clawrl_gym.trainers.algorithms.algorithm import (
    Algorithm,
    Prompts,
    TurnWeights,
    Verdicts,
    Weight,
    WeightsByTurn,
)
from clawrl_gym.trainers.algorithms.grpo import Grpo
from clawrl_gym.trainers.algorithms.opd import Opd

if TYPE_CHECKING:
    from clawrl_gym.dialogue.merging import Segment


class Hybrid(Algorithm):
    """One algorithm for rewards, with distillation beside it.

    `counts`: `used` groups, of them `hints_only` and `rewards_only`; `neither` groups (nothing
    taught), `empty_segments` (no token with a known log-prob).
    """

    needs_hints = True

    def __init__(self, rewards: Algorithm, hints: Opd, rl_weight: float = 1.0) -> None:
        super().__init__()
        self.reward_weight = rl_weight
        self._rewards = rewards
        self._hints = hints

    @classmethod
    def from_config(cls, config: TrainerConfig, group_size: int | None) -> Algorithm:
        rewards = Grpo.from_config(config, group_size)
        return cls(rewards, Opd.from_config(config, group_size), config.rl_weight)

    @classmethod
    def has_rewards(cls, config: TrainerConfig) -> bool:
        return config.rl_weight > 0

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
        rewarded_G = self._rewards.weights(group, segments_G, verdicts_G, prompts_G)
        distilled_G = self._hints.weights(group, segments_G, verdicts_G, prompts_G)
        if not self.reward_weight:
            rewarded_G = [{} for _ in rewarded_G]
        self._count(any(rewarded_G), any(distilled_G))
        return [
            self._merged(rewarded, distilled)
            for rewarded, distilled in zip(rewarded_G, distilled_G, strict=True)
        ]

    def compared(self) -> list[Compared]:
        return self._rewards.compared()

    def replay(self, rewards: Iterable[Compared]) -> None:
        self._rewards.replay(rewards)

    def _merged(self, rewarded: WeightsByTurn, distilled: WeightsByTurn) -> WeightsByTurn:
        nothing = TurnWeights()
        return {
            turn: TurnWeights(
                _scaled(rewarded.get(turn, nothing).advantage, self.reward_weight),
                distilled.get(turn, nothing).distill,
                rewarded.get(turn, nothing).strength,
            )
            for turn in sorted(rewarded.keys() | distilled.keys())
        }

    def _count(self, rewarded: bool, distilled: bool) -> None:
        if not rewarded and not distilled:
            self.counts["neither"] += 1
            return
        self.counts["used"] += 1
        if not rewarded:
            self.counts["hints_only"] += 1
        elif not distilled:
            self.counts["rewards_only"] += 1


def _scaled(weight: Weight, factor: float) -> Weight:
    if isinstance(weight, int | float):
        return factor * weight
    return [factor * number for number in weight]
