"""GRPO: an episode's advantage is its reward compared with the other episodes of its group.

Every sampled token of an episode carries the episode's advantage. Episodes without a reward
(infrastructure failures) take no part; a group whose rewards are all equal gives no samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawrl_gym.trainers.advantage import group_advantages, is_constant
from clawrl_gym.trainers.base import Algorithm, make_sample
from clawrl_gym.types import Group, Sample

if TYPE_CHECKING:
    from clawrl_gym.rollout.merge import Segment


class Grpo(Algorithm):
    """Group-relative policy optimization.

    `counts`: `used` groups, `zero_variance` groups (all rewards equal), `too_small` groups (fewer
    than two rewarded episodes), `empty_segments` (no token with a known log-prob).
    """

    def __init__(self, normalize_std: bool = True) -> None:
        super().__init__()
        self.normalize_std = normalize_std

    def stamp(self, group: Group, segments_G: list[list[Segment]]) -> list[Sample]:
        """Samples of the rewarded episodes, or none when their rewards are all equal."""
        rewarded = [
            (episode, episode.reward, segments)
            for episode, segments in zip(group.episodes_G, segments_G, strict=True)
            if episode.reward is not None
        ]
        rewards_G = [reward for _, reward, _ in rewarded]
        if len(rewards_G) < 2:
            self.counts["too_small"] += 1
            return []
        if is_constant(rewards_G):
            self.counts["zero_variance"] += 1
            return []
        self.counts["used"] += 1
        samples = []
        advantages_G = group_advantages(rewards_G, self.normalize_std)
        for (episode, _, segments), advantage in zip(rewarded, advantages_G, strict=True):
            for segment in segments:
                if any(segment.mask_T):
                    samples.append(make_sample(group, episode, segment, advantage))
                else:
                    self.counts["empty_segments"] += 1
        return samples
