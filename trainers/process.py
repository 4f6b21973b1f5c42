"""What verdicts on single turns add to the outcome of their episode.

    process_weight * (v - mean) / std      over the verdicts on the n-th turns of the group

The standardisation is the outcome's, so both are on one scale and a turn is compared with its
fellows at the same step. A verdict without fellows is compared with the running mean of all
verdicts; an abstention adds nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clawrl_gym.trainers.advantage import RunningBaseline, group_advantages
from clawrl_gym.trainers.base import Verdicts

if TYPE_CHECKING:
    from clawrl_gym.dialogue.merging import Segment

_SOURCE = "process"
Added = dict[int, float]
"""What is added to the advantage of an episode's turns, by `Turn.index`."""


class ProcessTerms:
    """Compares verdicts within groups."""

    def __init__(self, weight: float, normalize_std: bool, baseline_decay: float) -> None:
        self._weight = weight
        self._normalize_std = normalize_std
        self._baseline = RunningBaseline(baseline_decay)

    def of(self, segments_G: list[list[Segment]], verdicts_G: Sequence[Verdicts]) -> list[Added]:
        """The terms of each episode of a group; a step is a place among an episode's main turns."""
        terms_G: list[Added] = [{} for _ in segments_G]
        if not self._weight:
            return terms_G
        steps: dict[int, list[tuple[Added, int, float]]] = defaultdict(list)
        for terms, segments, verdicts in zip(terms_G, segments_G, verdicts_G, strict=True):
            turns = sorted(turn for segment in segments for turn in segment.turn_indices)
            for step, turn in enumerate(turns):
                verdict = verdicts.get(turn)
                if verdict is not None and verdict.reward is not None:
                    steps[step].append((terms, turn, verdict.reward))
        for _, fellows in sorted(steps.items()):
            compared = self._compare([value for _, _, value in fellows])
            for (terms, turn, _), term in zip(fellows, compared, strict=True):
                terms[turn] = self._weight * term
        return terms_G

    def _compare(self, values: list[float]) -> list[float]:
        if len(values) > 1:
            compared = group_advantages(values, self._normalize_std)
        else:
            compared = [values[0] - self._baseline.of(_SOURCE)]
        for value in values:
            self._baseline.add(_SOURCE, value)
        return compared
