"""The gateway's counters, and the same as Prometheus text.

Counting is adding to plain numbers; names and text are made when somebody asks. Labels come from
fixed sets, so a client cannot make new series.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from clawrl_gym.core.errors import PolicyError
from clawrl_gym.core.text import replacements

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_POLICY_TIMEOUT_S = 2.0
_FIRST_TOKEN_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
_HOLD_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
_VALUES = {1: "positive", 0: "neutral", -1: "negative"}
_POLICY_GAUGES = {
    "running": ("clawrl_policy_running", "requests that the engine decodes"),
    "waiting": ("clawrl_policy_waiting", "requests that wait in the engine"),
    "kv_usage": ("clawrl_policy_kv_usage", "share of the key-value cache in use"),
}


@dataclass(slots=True)
class LearningStats:
    """Judging and learning of the run that the gateway belongs to, since the start."""

    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Verdicts by judge (rule, model, feedback) and value in words."""
    abstentions: Counter[str] = field(default_factory=Counter)
    """Abstentions by judge."""
    samples: int = 0
    """Samples in updates."""
    updates: int = 0
    refused: int = 0
    """Updates that the guards undid."""
    rollbacks: int = 0
    """Times that complaints brought an earlier version back."""
    loss: float | None = None
    """Loss of the last update."""
    heldout_success: float | None = None
    """Success of the last evaluation."""
    machine_like_turns: int | None = None
    """Main turns that look machine-made; None where nobody looks."""
    held_samples: int = 0
    """Samples that wait until those of others make room for them."""

    def judged(self, kind: str, value: Literal[-1, 0, 1] | None) -> None:
        """Count a verdict."""
        if value is None:
            self.abstentions[kind] += 1
        else:
            self.verdicts[kind, _VALUES[value]] += 1


@dataclass(slots=True)
class GatewayStats:
    """Plain counters since the start, for the view and for metrics."""

    inside: int = 0
    """Requests under way."""
    requests: int = 0
    turns: int = 0
    tokens_prompt: int = 0
    tokens_sampled: int = 0
    replayed: int = 0
    """Retries that got the stored reply."""
    interrupted: int = 0
    """Turns whose client left, or whose policy failed, after their first token."""
    failed_calls: int = 0
    """Turns with a tool call that no client can carry out."""
    noted_replies: int = 0
    """Turns whose tool calls were read in spite of an error, or by one of two parsers only."""
    waited: int = 0
    """Attempts that found the policy down and were made again."""
    refused: int = 0
    """Answers 4xx and 503."""
    failed: int = 0
    """Answers 500, 502 and 504."""
    fits: Counter[str] = field(default_factory=Counter)
    """Counts of how prompts joined the turn before them: see `splice.Fit`."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Turns by kind."""
    untrainable: Counter[str] = field(default_factory=Counter)
    """Live main turns that no learner can use, by the setting of their sampling."""
    unread: int = 0
    """Fields and parts of requests that had no effect and are in no list."""
    asking: int = 0
    """Requests under way that are more than a look."""
    last_asked_s: float = field(default_factory=time.monotonic)
    """Time at which the last of them ended, by the monotonic clock; at first the start."""

    def quiet_for_s(self, now_s: float) -> float:
        """Seconds since the last request; 0 while one is in progress."""
        return 0.0 if self.asking else now_s - self.last_asked_s

    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Answers by route and status; 499 for clients that left."""
    learning: LearningStats = field(default_factory=LearningStats)
    limited: Counter[str] = field(default_factory=Counter)
    """Answers 429 by the user's limit that was reached, see `Allowances`."""


class GatewayMetrics:
    """The gateway's counters, two histograms and the policy's own gauges."""

    def __init__(
        self,
        stats: GatewayStats,
        sessions_open: Callable[[], int],
        version: Callable[[], int],
        policy: Callable[[], Awaitable[dict[str, float]]],
    ) -> None:
        self._policy = policy
        self._registry = CollectorRegistry(auto_describe=False)
        self._counts = _Counts(stats, sessions_open, version)
        self._registry.register(self._counts)
        self.first_token_s = Histogram(
            "clawrl_first_token_seconds",
            "from a streamed request's arrival to its first piece",
            buckets=_FIRST_TOKEN_BUCKETS_S,
            registry=self._registry,
        )
        self.hold_s = Histogram(
            "clawrl_swap_hold_seconds",
            "how long new requests waited for a weight swap",
            buckets=_HOLD_BUCKETS_S,
            registry=self._registry,
        )

    async def text(self) -> bytes:
        """All of them; the policy's are left out while it does not answer."""
        try:
            async with asyncio.timeout(_POLICY_TIMEOUT_S):
                self._counts.policy = await self._policy()
        except (PolicyError, TimeoutError):
            self._counts.policy = {}
        return generate_latest(self._registry)


class _Counts(Collector):
    """Reads the plain counters when it is asked."""

    def __init__(
        self, stats: GatewayStats, sessions_open: Callable[[], int], version: Callable[[], int]
    ) -> None:
        self._stats = stats
        self._sessions_open = sessions_open
        self._version = version
        self.policy: dict[str, float] = {}

    def collect(self) -> Iterator[Metric]:
        stats = self._stats
        answers = CounterMetricFamily(
            "clawrl_requests", "answers by route and status", labels=("route", "status")
        )
        for (route, status), count in stats.answers.items():
            answers.add_metric((route, str(status)), count)
        yield answers
        turns = CounterMetricFamily("clawrl_turns", "recorded turns", labels=("kind",))
        for kind, count in stats.kinds.items():
            turns.add_metric((kind,), count)
        yield turns
        limited = CounterMetricFamily(
            "clawrl_limited", "answers 429 by the user's limit", labels=("limit",)
        )
        for limit, count in stats.limited.items():
            limited.add_metric((limit,), count)
        yield limited
        tokens = CounterMetricFamily("clawrl_tokens", "tokens of turns", labels=("direction",))
        tokens.add_metric(("prompt",), stats.tokens_prompt)
        tokens.add_metric(("sampled",), stats.tokens_sampled)
        yield tokens
        yield CounterMetricFamily(
            "clawrl_replayed", "retries answered from the store", value=stats.replayed
        )
        yield CounterMetricFamily(
            "clawrl_interrupted", "turns that ended before their reply did", value=stats.interrupted
        )
        yield CounterMetricFamily(
            "clawrl_failed_calls",
            "turns with a tool call that no client can carry out",
            value=stats.failed_calls,
        )
        yield CounterMetricFamily(
            "clawrl_noted_replies",
            "turns whose tool calls two parsers read in different ways, or in spite of an error",
            value=stats.noted_replies,
        )
        yield CounterMetricFamily(
            "clawrl_waited", "attempts that found the policy down", value=stats.waited
        )
        yield from _of_requests(stats)
        yield from self._gauges()
        yield from _of_learning(stats.learning)

    def _gauges(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "clawrl_requests_inside", "requests under way", value=self._stats.inside
        )
        yield GaugeMetricFamily(
            "clawrl_sessions_open", "sessions that have not ended", value=self._sessions_open()
        )
        yield GaugeMetricFamily(
            "clawrl_weight_version", "the weight version that serves", value=self._version()
        )
        for key, (name, help_) in _POLICY_GAUGES.items():
            if key in self.policy:
                yield GaugeMetricFamily(name, help_, value=self.policy[key])


def _of_requests(stats: GatewayStats) -> Iterator[Metric]:
    """Counters of requests that were not served quite as they were made."""
    untrainable = CounterMetricFamily(
        "clawrl_untrainable_turns",
        "live main turns that are not trained on, by the setting they were sampled with",
        labels=("setting",),
    )
    for setting, count in stats.untrainable.items():
        untrainable.add_metric((setting,), count)
    yield untrainable
    yield CounterMetricFamily(
        "clawrl_unread", "fields and parts of requests that had no effect", value=stats.unread
    )
    replaced = CounterMetricFamily(
        "clawrl_replaced_characters",
        "characters of texts from outside that were no valid Unicode, by sender",
        labels=("sender",),
    )
    for sender, count in replacements.counts().items():
        replaced.add_metric((sender,), count)
    yield replaced


def _of_learning(learning: LearningStats) -> Iterator[Metric]:
    verdicts = CounterMetricFamily(
        "clawrl_verdicts", "verdicts on turns, by who judged and value", labels=("kind", "value")
    )
    for (kind, value), count in learning.verdicts.items():
        verdicts.add_metric((kind, value), count)
    yield verdicts
    abstentions = CounterMetricFamily(
        "clawrl_abstentions", "turns that a judge gave no verdict on", labels=("kind",)
    )
    for kind, count in learning.abstentions.items():
        abstentions.add_metric((kind,), count)
    yield abstentions
    yield CounterMetricFamily(
        "clawrl_samples", "samples that updates were made of", value=learning.samples
    )
    yield CounterMetricFamily("clawrl_updates", "updates that serve", value=learning.updates)
    yield CounterMetricFamily(
        "clawrl_updates_refused", "updates that the guards undid", value=learning.refused
    )
    yield CounterMetricFamily(
        "clawrl_rollbacks", "times that complaints brought a version back", value=learning.rollbacks
    )
    yield GaugeMetricFamily(
        "clawrl_samples_held",
        "samples that wait because of their user's share of an update",
        value=learning.held_samples,
    )
    if learning.machine_like_turns is not None:
        yield GaugeMetricFamily(
            "clawrl_turns_machine_like",
            "main turns that look as if a program had written them",
            value=learning.machine_like_turns,
        )
    if learning.loss is not None:
        yield GaugeMetricFamily("clawrl_loss", "loss of the last update", value=learning.loss)
    if learning.heldout_success is not None:
        yield GaugeMetricFamily(
            "clawrl_heldout_success",
            "share of held-out tasks solved in the last evaluation",
            value=learning.heldout_success,
        )
