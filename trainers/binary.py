"""Groups of one: a turn's verdict compared with what the same source says on average.

    A = r - b,   b the running mean of the source's rewards, within +-0.95, as it was before r

and never nearer to 0 than 0.05 with the sign of r: without a baseline, a user who is mostly content
would only reinforce what the policy does already; with one, the first complaint after much praise
weighs almost 2, and a clear verdict always moves the weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from clawrl_gym.trainers.advantage import MAX_BASELINE, RunningBaseline
from clawrl_gym.trainers.base import Algorithm, Verdicts, make_sample
from clawrl_gym.types import Group, Sample

if TYPE_CHECKING:
    from clawrl_gym.rollout.merge import Segment

LEAST = 1 - MAX_BASELINE
"""Size of the smallest advantage."""


class Binary(Algorithm):
    """Each turn by its own verdict, whatever the episode's reward.

    `counts`: `used` groups, `neutral` groups (no reward other than 0), `empty_segments` (no token
    with a known log-prob).
    """

    def __init__(self, baseline_decay: float = 0.95) -> None:
        super().__init__()
        self._baseline = RunningBaseline(baseline_decay)

    def stamp(
        self,
        group: Group,
        segments_G: list[list[Segment]],
        verdicts_G: Sequence[Verdicts] | None = None,
    ) -> list[Sample]:
        """A sample of each segment with a clear verdict."""
        samples = []
        given_G = verdicts_G or [{}] * len(segments_G)
        for episode, segments, verdicts in zip(group.episodes_G, segments_G, given_G, strict=True):
            for segment in segments:
                rewards = _rewards(segment, verdicts)
                if not any(segment.mask_T):
                    self.counts["empty_segments"] += 1
                elif rewards:
                    advantages = dict.fromkeys(segment.turn_indices, 0.0)
                    for turn, (source, reward) in rewards.items():
                        advantages[turn] = self._advantage(source, reward)
                    samples.append(make_sample(group, episode, segment, advantages))
        self.counts["used" if samples else "neutral"] += 1
        return samples

    def replay(self, rewards: Iterable[tuple[str, float]]) -> None:
        for source, reward in rewards:
            self._baseline.add(source, reward)

    def _advantage(self, source: str, reward: float) -> float:
        advantage = reward - self._baseline.of(source)
        self._baseline.add(source, reward)
        return advantage if abs(advantage) >= LEAST else math.copysign(LEAST, reward)


def _rewards(segment: Segment, verdicts: Verdicts) -> dict[int, tuple[str, float]]:
    """Source and reward of each turn that has a clear verdict."""
    rewards: dict[int, tuple[str, float]] = {}
    for turn in segment.turn_indices:
        verdict = verdicts.get(turn)
        if verdict is not None and verdict.reward:
            rewards[turn] = (verdict.kind, verdict.reward)
    return rewards
