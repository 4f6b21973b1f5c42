"""What every algorithm shares: it stamps per-token streams on the segments of a group.

An algorithm sees rewards, verdicts and segments and returns samples; it knows no model and no
environment, and the learner knows no algorithm.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from clawrl_gym.types import Episode, Group, Sample, Verdict

if TYPE_CHECKING:
    from clawrl_gym.rollout.merge import Segment

Verdicts = Mapping[int, Verdict]
"""Verdicts on the turns of one episode, by `Turn.index`."""


class Algorithm(ABC):
    """Base of all algorithms."""

    counts: Counter[str]
    """What happened to groups so far, by name: `used`, and why the others were left out."""

    def __init__(self) -> None:
        self.counts = Counter()

    @abstractmethod
    def stamp(
        self,
        group: Group,
        segments_G: list[list[Segment]],
        verdicts_G: Sequence[Verdicts] | None = None,
    ) -> list[Sample]:
        """Samples of a whole group; segments and verdicts belong to `group.episodes_G`, in order.

        A group that teaches nothing gives an empty list and is counted.
        """

    def replay(self, rewards: Iterable[tuple[str, float]]) -> None:  # noqa: B027 (most need none)
        """Know the rewards of an earlier process again: source and reward, in their order."""


def make_sample(
    group: Group, episode: Episode, segment: Segment, advantages: Mapping[int, float]
) -> Sample:
    """A sample whose sampled tokens carry the advantage of their turn (by `Turn.index`)."""
    by_turn = {**advantages, -1: 0.0}
    return Sample(
        session_id=episode.session_id,
        group_id=group.id,
        ids_T=segment.ids_T,
        mask_T=segment.mask_T,
        logprobs_T=segment.logprobs_T,
        versions_T=segment.versions_T,
        advantages_T=list(map(by_turn.__getitem__, segment.turns_T)),
        reward=0.0 if episode.reward is None else episode.reward,
    )
