"""What every algorithm shares: it stamps per-token streams on the segments of a group.

An algorithm sees rewards and segments and returns samples; it knows no model and no environment,
and the learner knows no algorithm.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING

from clawrl_gym.types import Episode, Group, Sample

if TYPE_CHECKING:
    from clawrl_gym.rollout.merge import Segment


class Algorithm(ABC):
    """Base of all algorithms."""

    counts: Counter[str]
    """What happened to groups so far, by name: `used`, and why the others were left out."""

    def __init__(self) -> None:
        self.counts = Counter()

    @abstractmethod
    def stamp(self, group: Group, segments_G: list[list[Segment]]) -> list[Sample]:
        """Samples of a whole group; `segments_G` belongs to `group.episodes_G`, in order.

        A group that teaches nothing gives an empty list and is counted.
        """


def make_sample(group: Group, episode: Episode, segment: Segment, advantage: float) -> Sample:
    """A sample whose sampled tokens all carry the same advantage."""
    return Sample(
        session_id=episode.session_id,
        group_id=group.id,
        ids_T=segment.ids_T,
        mask_T=segment.mask_T,
        logprobs_T=segment.logprobs_T,
        versions_T=segment.versions_T,
        advantages_T=[advantage if sampled else 0.0 for sampled in segment.mask_T],
        reward=0.0 if episode.reward is None else episode.reward,
    )
