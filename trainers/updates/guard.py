"""Whether new weights are worse than those that serve: checked after an update, before they serve.

What is looked at are the update's own numbers (gradient, distance between engine and learner,
length of the replies that it learned from) and a replay: turns of earlier batches, whose advantages
say which replies were good, read by the weights before and after. No reply is made for it, so that
nobody waits; what only sampling would show is left to held-out evaluations.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from clawrl_gym.config import GuardsConfig, LearnerConfig
from clawrl_gym.core.types import Sample, StepStats
from clawrl_gym.trainers.capabilities import capabilities_of
from clawrl_gym.trainers.models.packing import trainable
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.updates.canaries import Canaries

_REMEMBERED = 16
"""Served updates whose medians the next one is compared with."""
_FEWEST = 4
"""Served updates needed before anything is compared."""
_FROM_EACH = 8
"""Samples of a batch that are replayed later."""
_MOST_CHANGE = 1.0
"""Largest change of a token's log-prob that counts, in nats: no token outweighs all others."""


@dataclass(frozen=True, slots=True)
class Review:
    """Figures of the learner's current weights on some samples."""

    entropy: float
    """Mean over sampled tokens, in nats."""
    logprobs: Sequence[Sequence[float]]
    """Log-probs of each sample's tokens that are learned from."""


class Reviewer(Protocol):
    """The learner."""

    async def review(self, batch: SampleBatch) -> Review: ...


@dataclass(slots=True)
class Decision:
    """Decision of the guards on an update."""

    metrics: dict[str, float] = field(default_factory=dict)
    """Figures that they looked at, as `guard/NAME`."""
    refusals: list[str] = field(default_factory=list)
    """Reasons why it must not serve; empty: it may."""
    guards: list[str] = field(default_factory=list)
    """The guards that refused it, by their keys."""

    def check(self, name: str, value: float, threshold: float | None, words: str) -> None:
        """`words` states what was got; NaN passes."""
        if math.isnan(value):
            return
        self.metrics[f"guard/{name}"] = value
        if threshold is not None and value > threshold:
            self.guards.append(name)
            self.refusals.append(f"{words}, expected at most {threshold:g} (learner.guards.{name})")


class Guard:
    """Remembers what served, and compares updates with it."""

    _canaries: Canaries | None = None

    def __init__(
        self, config: GuardsConfig, learner: Reviewer, canaries: Canaries | None = None
    ) -> None:
        self._config = config
        self._learner = learner
        self._canaries = canaries
        self._replay: deque[Sample] = deque(maxlen=config.replay_samples)
        self._norms: deque[float] = deque(maxlen=_REMEMBERED)
        self._lengths: deque[float] = deque(maxlen=_REMEMBERED)
        self._before: Review | None = None
        self._replayed: list[Sample] = []

    def forget(self, is_gone: Callable[[Sample], bool]) -> None:
        """Deleted samples are not read again."""
        kept = [sample for sample in self._replay if not is_gone(sample)]
        self._replay = deque(kept, maxlen=self._config.replay_samples)
        if self._canaries is not None:
            self._canaries.forget(is_gone)

    def restore(self, praised: Sequence[Sample]) -> None:
        """Take in turns that people praised before an earlier process ended."""
        if self._canaries is not None:
            self._canaries.praise(praised)

    async def serving(self, version: int) -> None:
        """Measure the canaries before an update of the weights that serve as `version`."""
        if self._canaries is not None:
            await self._canaries.before(version)

    async def serves(self, version: int, samples: Sequence[Sample]) -> None:
        """The weights last decided on serve as `version`, having learned from `samples`."""
        if self._canaries is not None:
            await self._canaries.serve(version, samples)

    async def before(self, samples: Sequence[Sample]) -> None:
        """Record the log-probs before an update of `samples`; some of them are read where there is
        nothing earlier."""
        self._replayed = list(self._replay) or _spread(_valued(samples), _FROM_EACH)
        self._before = await self._review() if self._replayed else None

    async def decide(self, samples: Sequence[Sample], stats: StepStats) -> Decision:
        """Decide on the update that the learner has just made of `samples`."""
        config, decision = self._config, Decision()
        norm = stats.metrics.get("learner/grad_norm", math.nan)
        norm /= stats.metrics.get("learner/strength", 1.0)
        length = statistics.fmean(map(_sampled, samples))
        grown = _share(norm, self._norms)
        decision.check(
            "grad_norm", grown, config.grad_norm, f"the gradient is {grown:.3g} times as large"
        )
        apart = _apart(length, self._lengths)
        decision.check(
            "reply_length", apart, config.reply_length,
            f"replies are {apart:.3g} times as long or short",
        )  # fmt: skip
        gap = stats.metrics.get("logprob_gap/mean", math.nan)
        decision.check(
            "logprob_gap", gap, config.logprob_gap, f"engine and learner are {gap:.3g} nats apart"
        )
        if self._before is not None:
            self._compare(self._before, await self._review(), decision)
        if self._canaries is not None:
            await self._look_at_canaries(self._canaries, decision)
        if not decision.refusals:
            self._norms.extend([norm] if math.isfinite(norm) else [])
            self._lengths.append(length)
            self._replay.extend(_spread(_valued(samples), _FROM_EACH))
        return decision

    async def _review(self) -> Review:
        """Review of the replay under the current weights."""
        return await self._learner.review(SampleBatch.of(self._replayed))

    async def _look_at_canaries(self, canaries: Canaries, decision: Decision) -> None:
        config = self._config
        since_before, since_anchor = await canaries.compare()
        worst, drift = since_before.worst, since_anchor.worst
        decision.check("canary", worst, config.canary, f"canaries lost {worst:.3g} nats a token")
        # One alone may change everything
        bound = config.drift if canaries.are_shared else None
        decision.check(
            "drift", drift, bound,
            f"canaries are {drift:.3g} nats a token below the anchor (pin a good version to "
            "move it)",
        )  # fmt: skip

    def _compare(self, before: Review, after: Review, decision: Decision) -> None:
        config = self._config
        ratio = _ratio(after.entropy, before.entropy)
        decision.check("entropy", ratio, config.entropy, f"entropy changed {ratio:.3g} times")
        drop = -_gain(self._replayed, before, after)
        decision.check(
            "replay", drop, config.replay, f"replies that were good lost {drop:.3g} nats a token"
        )


def guard_of(
    config: LearnerConfig, learner: Reviewer, canaries: Canaries | None = None
) -> Guard | None:
    """The guard; None where every update serves, or the learner only rehearses."""
    if config.publish != "if_not_worse" or not capabilities_of(config).review:
        return None
    return Guard(config.guards, learner, canaries)


def _gain(samples: Sequence[Sample], before: Review, after: Review) -> float:
    """How far the weights moved towards good replies, in nats a token of full advantage."""
    gain = weight = 0.0
    for sample, old, new in zip(samples, before.logprobs, after.logprobs, strict=True):
        for advantage, was, now in zip(_advantages(sample), old, new, strict=True):
            gain += advantage * min(max(now - was, -_MOST_CHANGE), _MOST_CHANGE)
            weight += abs(advantage)
    return gain / weight if weight else math.nan


def _advantages(sample: Sample) -> Iterator[float]:
    """Advantages of the tokens that are learned from."""
    for advantage, is_learned in zip(sample.advantages_T, trainable(sample), strict=True):
        if is_learned:
            yield advantage


def _sampled(sample: Sample) -> int:
    return sum(sample.mask_T)


def _share(value: float, earlier: Sequence[float]) -> float:
    """Ratio of a value to the median of earlier ones; NaN while these are too few."""
    if len(earlier) < _FEWEST or not (median := statistics.median(earlier)):
        return math.nan
    return math.inf if math.isnan(value) else value / median


def _apart(value: float, earlier: Sequence[float]) -> float:
    """Factor by which a value differs from the median of earlier ones, at least 1."""
    share = _share(value, earlier)
    return share if math.isnan(share) or share >= 1 else math.inf if not share else 1 / share


def _ratio(new: float, old: float) -> float:
    """Factor by which two values differ; differences below a hundredth of a nat count as none."""
    new, old = new + 0.01, old + 0.01
    return math.inf if math.isnan(new) else max(new / old, old / new)


def _valued(samples: Sequence[Sample]) -> list[Sample]:
    """Samples that were good or bad."""
    return [sample for sample in samples if any(sample.advantages_T)]


def _spread(samples: Sequence[Sample], count: int) -> list[Sample]:
    """At most this many of them, evenly spread."""
    step = max(1, math.ceil(len(samples) / count))
    return list(samples[::step])
