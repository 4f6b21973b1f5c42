"""Groups of one: a turn's verdict compared with the average of the same source.

    A = w (r - b),   b the running mean of the source's rewards, within +-0.95, as it was before r

and r - b never nearer to 0 than 0.05 with the sign of r: without a baseline, a user who is mostly
content would only reinforce what the policy does already; with one, the first complaint after much
praise weighs almost 2, and a clear verdict always moves the weights. w is the verdict's weight, by
which it enters the mean, too.

An episode of which nobody judged a turn brings its outcome to all of them, compared with the
running mean of outcomes, which has no bounds: an outcome of 0 is a failure, not a neutral verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from clawrl_gym.config import TrainerConfig
from clawrl_gym.core.types import Compared, Group, Verdict
from clawrl_gym.trainers.algorithms.advantage import MAX_BASELINE, RunningBaseline, source_in
from clawrl_gym.trainers.algorithms.algorithm import (
    Algorithm,
    Prompts,
    TurnWeights,
    Verdicts,
    WeightsByTurn,
)

if TYPE_CHECKING:
    from clawrl_gym.dialogue.merging import Segment

LEAST = 1 - MAX_BASELINE
"""Size of the smallest advantage of a clear verdict."""
OUTCOME = "outcome"
"""The source of an episode's own reward."""


class Binary(Algorithm):
    """Each turn by its own verdict, whatever the episode's reward.

    `counts`: `used` groups, `neutral` groups (no reward other than 0), `empty_segments` (no token
    with a known log-prob).
    """

    compares_episodes = False

    def __init__(self, baseline_decay: float = 0.95) -> None:
        super().__init__()
        self._baseline = RunningBaseline(baseline_decay)

    @classmethod
    def from_config(cls, config: TrainerConfig, group_size: int | None) -> Algorithm:
        return cls(config.baseline_decay)

    def weights(
        self,
        group: Group,
        segments_G: list[list[Segment]],
        verdicts_G: Sequence[Verdicts],
        prompts_G: Sequence[Prompts],
    ) -> list[WeightsByTurn]:
        weights_G: list[WeightsByTurn] = []
        for episode, segments, verdicts in zip(
            group.episodes_G, segments_G, verdicts_G, strict=True
        ):
            turns = [
                turn for segment in segments if any(segment.mask_T) for turn in segment.turn_indices
            ]
            if verdicts or episode.reward is None:
                weights_G.append(self._judged(turns, verdicts, group.task.env))
            else:
                weights_G.append(self._by_outcome(turns, episode.reward, group.task.env))
        self.counts["used" if any(weights_G) else "neutral"] += 1
        return weights_G

    def compared(self) -> list[Compared]:
        return self._baseline.take_news()

    def replay(self, rewards: Iterable[Compared]) -> None:
        self._baseline.replay(rewards)

    def _judged(self, turns: list[int], verdicts: Verdicts, env: str) -> WeightsByTurn:
        weights: WeightsByTurn = {}
        for turn in turns:
            verdict = verdicts.get(turn)
            if verdict is not None and verdict.reward:
                advantage = self._advantage(verdict, verdict.reward, env)
                weights[turn] = TurnWeights(advantage, strength=verdict.weight)
        return weights

    def _advantage(self, verdict: Verdict, reward: float, env: str) -> float:
        source = source_in(env, verdict.kind)
        advantage = reward - self._baseline.of(source)
        self._baseline.add(source, reward, verdict.weight)
        if abs(advantage) < LEAST or reward < 0 < advantage:  # a mild complaint is no praise
            advantage = math.copysign(LEAST, reward)
        return verdict.weight * advantage

    def _by_outcome(self, turns: list[int], outcome: float, env: str) -> WeightsByTurn:
        if not turns:
            return {}
        source = source_in(env, OUTCOME)
        advantage = outcome - self._baseline.mean(source)
        self._baseline.add(source, outcome)
        return dict.fromkeys(turns, TurnWeights(advantage)) if advantage else {}
