"""Advantages as plain arithmetic on rewards: within a group, or against a running baseline.

No tensors, no samples: the algorithms spread the numbers over tokens. What verdicts on single turns
add to the outcome of their episode:

    process_weight * w (v - mean) / std    over the verdicts on the n-th turns of the group

The standardisation is the outcome's, so both are on one scale and a turn is compared with its
fellows at the same step. A verdict without fellows is compared with the running mean of all
verdicts; an abstention adds nothing. w is a verdict's weight, the strength of its evidence: means
and deviations are weighted by it, so that the terms of a step still sum to zero.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawrl_gym.core.types import Compared, Verdict
from clawrl_gym.trainers.algorithms.algorithm import Verdicts

if TYPE_CHECKING:
    from clawrl_gym.dialogue.merging import Segment

EPSILON = 1e-6
"""Added to a group's standard deviation."""
SAME = 1e-8
"""Rewards of a group that differ by no more than this count as equal."""


def is_constant(rewards_G: Sequence[float]) -> bool:
    """True when the rewards do not tell the episodes apart, so that nothing can be learned."""
    return not rewards_G or max(rewards_G) - min(rewards_G) <= SAME


def group_advantages(
    rewards_G: Sequence[float],
    normalize_std: bool,
    leave_one_out: bool = False,
    weights_G: Sequence[float] | None = None,
) -> list[float]:
    """A_i = r_i - mean(r), divided by (std(r) + 1e-6) when `normalize_std` (GRPO; else Dr. GRPO).

    std is the unbiased one (divisor G - 1). With `leave_one_out` the mean is that of the others,
    which is n / (n - 1) times as far away (RLOO, without std). A constant group, of one episode
    too, gets zeros. With weights, mean and std are the weighted ones (divisor W - sum(w^2) / W with
    W = sum(w)) and A_i is w_i times as large.
    """
    if not all(math.isfinite(reward) for reward in rewards_G):
        raise ValueError(f"got rewards {list(rewards_G)!r}, expected finite numbers")
    if is_constant(rewards_G):
        return [0.0] * len(rewards_G)
    w_G = weights_G or [1.0] * len(rewards_G)
    total = math.fsum(w_G)
    mean = math.fsum(w * r for w, r in zip(w_G, rewards_G, strict=True)) / total
    centred_G = [reward - mean for reward in rewards_G]
    squares = math.fsum(w * c * c for w, c in zip(w_G, centred_G, strict=True))
    divisor = total - math.fsum(w * w for w in w_G) / total
    std = math.sqrt(squares / divisor) if divisor > 0 else 0.0  # a weight may vanish beside another
    scales_G = [total / (total - w) if leave_one_out else 1.0 for w in w_G]
    if normalize_std:
        scales_G = [scale / (std + EPSILON) for scale in scales_G]
    return [w * scale * c for w, scale, c in zip(w_G, scales_G, centred_G, strict=True)]


MAX_BASELINE = 0.95
"""A baseline is never farther from 0, so that a verdict of +1 or -1 always has an advantage."""


class RunningBaseline:
    """Expected reward of a turn that has no group, by source: b <- b + (1 - d) w (r - b).

    b_0 = 0; w is the strength of the evidence, so that weak rewards hardly move it. A judge and a
    person who presses thumbs have baselines of their own: one is mostly content, the other mostly
    speaks up to complain.
    """

    def __init__(self, decay: float) -> None:
        self._decay = decay
        self._means: dict[str, float] = {}
        self._news: list[Compared] = []

    def mean(self, source: str) -> float:
        """The running mean of a source as it is now."""
        return self._means.get(source, 0.0)

    def of(self, source: str) -> float:
        """The value that a verdict is compared with: the mean, within bounds."""
        return min(max(self.mean(source), -MAX_BASELINE), MAX_BASELINE)

    def add(self, source: str, reward: float, weight: float = 1.0) -> None:
        """Record a reward that has been compared already."""
        self._take_in(Compared(source, reward, weight))
        self._news.append(Compared(source, reward, weight))

    def replay(self, rewards: Iterable[Compared]) -> None:
        """Take in rewards that an earlier process compared, in their order."""
        for reward in rewards:
            self._take_in(Compared(*reward))

    def take_news(self) -> list[Compared]:
        """Rewards added since the last call."""
        news, self._news = self._news, []
        return news

    def _take_in(self, new: Compared) -> None:
        old = self._decay + (1 - self._decay) * (1 - new.weight)
        rate = (1 - self._decay) * new.weight
        self._means[new.source] = old * self.mean(new.source) + rate * new.reward


_SOURCE = "process"


def source_in(env: str, source: str) -> str:
    """Name of a source of rewards among the baselines. Each environment of a mixture has its own,
    so that a reward is never compared with what is usual in another environment."""
    return f"{env}/{source}" if env else source


@dataclass(frozen=True, slots=True)
class ProcessTerm:
    """Contribution of a verdict to the advantage of its turn."""

    advantage: float
    strength: float


ProcessOfTurns = dict[int, ProcessTerm]
"""Process terms of one episode, by `Turn.index`."""


class ProcessTerms:
    """Compares verdicts within groups."""

    def __init__(self, weight: float, normalize_std: bool, baseline_decay: float) -> None:
        self._weight = weight
        self._normalize_std = normalize_std
        self.baseline = RunningBaseline(baseline_decay)

    def of(
        self, segments_G: list[list[Segment]], verdicts_G: Sequence[Verdicts], env: str = ""
    ) -> list[ProcessOfTurns]:
        """The terms of each episode of a group of an environment; a step is a place among an
        episode's main turns."""
        terms_G: list[ProcessOfTurns] = [{} for _ in segments_G]
        if not self._weight:
            return terms_G
        steps: dict[int, list[tuple[ProcessOfTurns, int, Verdict]]] = defaultdict(list)
        for terms, segments, verdicts in zip(terms_G, segments_G, verdicts_G, strict=True):
            turns = sorted(turn for segment in segments for turn in segment.turn_indices)
            for step, turn in enumerate(turns):
                verdict = verdicts.get(turn)
                if verdict is not None and verdict.reward is not None:
                    steps[step].append((terms, turn, verdict))
        source = source_in(env, _SOURCE)
        for _, fellows in sorted(steps.items()):
            compared = self._compare([verdict for _, _, verdict in fellows], source)
            for (terms, turn, verdict), advantage in zip(fellows, compared, strict=True):
                terms[turn] = ProcessTerm(self._weight * advantage, verdict.weight)
        return terms_G

    def _compare(self, verdicts: list[Verdict], source: str) -> list[float]:
        values = [verdict.reward or 0.0 for verdict in verdicts]
        weights = [verdict.weight for verdict in verdicts]
        if len(values) > 1:
            compared = group_advantages(values, self._normalize_std, weights_G=weights)
        else:
            above = values[0] - self.baseline.of(source)
            if values[0] <= 0 < above:  # better than usual, and yet nothing that was praised
                above = 0.0
            compared = [weights[0] * above]
        for value, weight in zip(values, weights, strict=True):
            self.baseline.add(source, value, weight)
        return compared
