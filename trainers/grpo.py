"""GRPO: an episode's advantage is its reward compared with the other episodes of its group.

Every sampled token of an episode carries the episode's advantage, and its turn's process term
(`process.py`) where single turns were judged. Episodes without a reward (infrastructure failures)
take no part, whatever was said of their turns; a group without any difference gives no samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clawrl_gym.trainers.advantage import group_advantages, is_constant
from clawrl_gym.trainers.base import Algorithm, Verdicts, make_sample
from clawrl_gym.trainers.process import ProcessTerms, Terms
from clawrl_gym.types import Episode, Group, Sample

if TYPE_CHECKING:
    from clawrl_gym.rollout.merge import Segment


class Grpo(Algorithm):
    """Group-relative policy optimization.

    `counts`: `used` groups, of them `process_only` (equal rewards, different verdicts);
    `zero_variance` groups (nothing differs), `too_small` groups (fewer than two rewarded
    episodes), `empty_segments` (no token with a known log-prob).
    """

    def __init__(
        self,
        normalize_std: bool = True,
        process_weight: float = 1.0,
        baseline_decay: float = 0.95,
    ) -> None:
        super().__init__()
        self.normalize_std = normalize_std
        self._process = ProcessTerms(process_weight, normalize_std, baseline_decay)

    def stamp(
        self,
        group: Group,
        segments_G: list[list[Segment]],
        verdicts_G: Sequence[Verdicts] | None = None,
    ) -> list[Sample]:
        """Samples of the rewarded episodes, or none when nothing tells them apart."""
        given_G = verdicts_G or [{}] * len(segments_G)
        rewarded = [
            (episode, segments, verdicts)
            for episode, segments, verdicts in zip(
                group.episodes_G, segments_G, given_G, strict=True
            )
            if episode.reward is not None
        ]
        rewards_G = [episode.reward or 0.0 for episode, _, _ in rewarded]
        if len(rewards_G) < 2:
            self.counts["too_small"] += 1
            return []
        terms_G = self._process.of(
            [segments for _, segments, _ in rewarded], [verdicts for _, _, verdicts in rewarded]
        )
        if is_constant(rewards_G):
            if not any(term for terms in terms_G for term in terms.values()):
                self.counts["zero_variance"] += 1
                return []
            self.counts["process_only"] += 1
        self.counts["used"] += 1
        samples = []
        advantages_G = group_advantages(rewards_G, self.normalize_std)
        for (episode, segments, _), advantage, terms in zip(
            rewarded, advantages_G, terms_G, strict=True
        ):
            samples += self._samples(group, episode, segments, advantage, terms)
        return samples

    def _samples(
        self,
        group: Group,
        episode: Episode,
        segments: list[Segment],
        advantage: float,
        terms: Terms,
    ) -> list[Sample]:
        samples = []
        for segment in segments:
            if any(segment.mask_T):
                advantages = dict.fromkeys(segment.turn_indices, advantage)
                for turn in terms.keys() & advantages.keys():
                    advantages[turn] += terms[turn]
                samples.append(make_sample(group, episode, segment, advantages))
            else:
                self.counts["empty_segments"] += 1
        return samples
