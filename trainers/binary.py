"""Groups of one: a turn's verdict compared with what the same source says on average.

    A = r - b,   b the running mean of the source's rewards, within +-0.95, as it was before r

and never nearer to 0 than 0.05 with the sign of r: without a baseline, a user who is mostly content
would only reinforce what the policy does already; with one, the first complaint after much praise
weighs almost 2, and a clear verdict always moves the weights.

An episode of which nobody judged a turn brings its outcome to all of them, compared with the
running mean of outcomes, which has no bounds: an outcome of 0 is a failure, not a neutral verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from clawrl_gym.config import TrainerConfig
from clawrl_gym.core.types import Group
from clawrl_gym.trainers.advantage import MAX_BASELINE, RunningBaseline
from clawrl_gym.trainers.algorithm import Algorithm, Prompts, Term, Terms, Verdicts

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

    def __init__(self, baseline_decay: float = 0.95) -> None:
        super().__init__()
        self._decay = baseline_decay
        self._baseline = RunningBaseline(baseline_decay)
        self._outcome = 0.0

    @classmethod
    def from_config(cls, config: TrainerConfig, group_size: int | None) -> Algorithm:
        return cls(config.baseline_decay)

    def terms(
        self,
        group: Group,
        segments_G: list[list[Segment]],
        verdicts_G: Sequence[Verdicts],
        prompts_G: Sequence[Prompts],
    ) -> list[Terms]:
        terms_G: list[Terms] = []
        for episode, segments, verdicts in zip(
            group.episodes_G, segments_G, verdicts_G, strict=True
        ):
            turns = [
                turn for segment in segments if any(segment.mask_T) for turn in segment.turn_indices
            ]
            if verdicts or episode.reward is None:
                terms_G.append(self._judged(turns, verdicts))
            else:
                terms_G.append(self._by_outcome(turns, episode.reward))
        self.counts["used" if any(terms_G) else "neutral"] += 1
        return terms_G

    def replay(self, rewards: Iterable[tuple[str, float]]) -> None:
        for source, reward in rewards:
            if source == OUTCOME:
                self._add_outcome(reward)
            else:
                self._baseline.add(source, reward)

    def _judged(self, turns: list[int], verdicts: Verdicts) -> Terms:
        terms: Terms = {}
        for turn in turns:
            verdict = verdicts.get(turn)
            if verdict is not None and verdict.reward:
                terms[turn] = Term(self._advantage(verdict.kind, verdict.reward))
        return terms

    def _advantage(self, source: str, reward: float) -> float:
        advantage = reward - self._baseline.of(source)
        self._baseline.add(source, reward)
        return advantage if abs(advantage) >= LEAST else math.copysign(LEAST, reward)

    def _by_outcome(self, turns: list[int], outcome: float) -> Terms:
        if not turns:
            return {}
        advantage = outcome - self._outcome
        self._add_outcome(outcome)
        return dict.fromkeys(turns, Term(advantage)) if advantage else {}

    def _add_outcome(self, outcome: float) -> None:
        self._outcome = self._decay * self._outcome + (1 - self._decay) * outcome
