"""Counts of training and serving, under the names of metrics.jsonl: a `Counts` each."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from clawrl_gym.core.metrics import (
    ELAPSED_S,
    ERRORS_PREFIX,
    FAILURES_PREFIX,
    FAMILY_PREFIX,
    LEFT_S,
    REPLY_TOKENS,
    REQUESTS_PREFIX,
    STEP_S,
    RateWindow,
    in_env,
    judged_shares,
    mean_scores,
)
from clawrl_gym.core.provenance import tree_memory_gb
from clawrl_gym.core.text import replacements
from clawrl_gym.core.types import Episode, Turn, Verdict
from clawrl_gym.gateway.prometheus import GatewayStats
from clawrl_gym.gateway.sessions.machine_turns import MachineTurns
from clawrl_gym.judge.queue import JudgeQueue
from clawrl_gym.rollout.collection.collector import UNTRAINABLE, Collector
from clawrl_gym.rollout.collection.flow import Flow
from clawrl_gym.rollout.collection.live_collector import LiveCollector
from clawrl_gym.rollout.collection.pool import WorkerPool
from clawrl_gym.rollout.episodes.floors import RewardFloors
from clawrl_gym.run.observer import ObservedPolicy
from clawrl_gym.trainers.loop import Update
from clawrl_gym.trainers.updates.references import reply_tokens
from clawrl_gym.trainers.user_queues import UserQueues

_MEMORY_EVERY = 10
"""Updates between two measurements of memory: the kernel takes its time to add it up."""
_VERDICTS = "verdicts/"
_HINTS = "hints/"
_COMPARISONS = "comparisons/"
_VALUE_NAMES = {1: "positive", 0: "neutral", -1: "negative", None: "abstained"}


class TrainingCounts:
    """Episodes, groups and tokens of a training run."""

    def __init__(
        self,
        total_steps: int,
        served: ObservedPolicy,
        pool: WorkerPool,
        flow: Flow,
        collector: Collector,
        of_tasks: Callable[[], Mapping[str, float]] = dict,
        floors: RewardFloors | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`of_tasks`: what there is to know of how tasks are drawn. `floors`: of the run's
        rewards. `now`: the clock, in seconds."""
        self._now = now
        self._floors = floors or RewardFloors()
        self._of_tasks = of_tasks
        self._total_steps = total_steps
        self._served = served
        self._pool = pool
        self._flow = flow
        self._collector = collector
        self._started_s = now()
        self._marks_s: list[float] = []
        """Times at which training began, counting gauges, and updates came; the newest two."""
        self._first_update_s = math.nan
        self._updates = 0
        self._episodes: list[Episode] = []
        """Episodes with a reward, since the last update."""
        self._errors: Counter[str] = Counter()
        self._replaced = 0
        """Characters of environments' texts that were no valid Unicode."""
        self._token_rate = RateWindow()
        self._episode_rate = RateWindow()
        self._counted_tokens = 0
        self._last_counters: Counter[str] = Counter()
        """The collector's, at the last update."""

    def count(self, event: Episode | Turn | Verdict) -> None:
        """Episodes are counted here, turns and verdicts by the collector."""
        if not isinstance(event, Episode):
            return
        self._episode_rate.add(1, self._now())
        if event.error is not None:
            prefix = FAILURES_PREFIX if event.stop_reason.is_failure else ERRORS_PREFIX
            self._errors[f"{prefix}{event.stop_reason.value}"] += 1
        self._replaced += event.replaced
        if event.reward is not None:
            self._episodes.append(event)

    def gauges(self) -> dict[str, float]:
        """Rates are over the newest update and what came since, at least."""
        return self._gauges(self._marks_s[0] if self._marks_s else None)

    def _gauges(self, since_s: float | None) -> dict[str, float]:
        gateway, now_s = self._served.gateway, self._now()
        self._marks_s = self._marks_s or [now_s]
        self._token_rate.add(gateway.stats.tokens_sampled - self._counted_tokens, now_s)
        self._counted_tokens = gateway.stats.tokens_sampled
        return {
            "rollout/tokens_per_s": self._token_rate.rate(now_s, since_s),
            "rollout/episodes_per_s": self._episode_rate.rate(now_s, since_s),
            "rollout/in_flight": float(self._pool.in_flight),
            "rollout/in_flight_limit": float(self._flow.limit),
            "groups/ready": float(self._collector.ready_groups),
            "policy/version": float(gateway.version),
            ELAPSED_S: now_s - self._started_s,
            **_judging(self._collector.counters),
        }

    async def of_update(self, update: Update) -> dict[str, float]:
        """Rates are over this update, from the one before."""
        now_s = self._now()
        began_s = self._marks_s[-1] if self._marks_s else math.nan
        gauges = self._gauges(self._marks_s[-1] if self._marks_s else None)
        self._updates += 1
        self._first_update_s = now_s if self._updates == 1 else self._first_update_s
        self._marks_s = [self._marks_s[-1], now_s]
        values = {
            "learner/waited_s": update.waited_s,
            **_of_batch(update),
            LEFT_S: self._left_s(update.version, began_s, now_s),
            **self._of_episodes(),
            **self._since_last_update(),
            **self._flow.shares(),
            **self._of_tasks(),
            **gauges,
            ELAPSED_S: now_s - self._started_s,
            **{name: float(count) for name, count in self._errors.items()},
            **_of_requests(self._served.gateway.stats, self._replaced),
        }
        if update.version % _MEMORY_EVERY == 1:
            values["memory/rss_gb"] = await asyncio.to_thread(tree_memory_gb)
        return values

    def _left_s(self, version: int, began_s: float, now_s: float) -> float:
        """Seconds left, by the mean update; the first one, which nothing was collected for before,
        is counted only as long as there is no other."""
        if self._updates > 1:
            update_s = (now_s - self._first_update_s) / (self._updates - 1)
        else:
            update_s = now_s - began_s
        return update_s * (self._total_steps - version)

    def _of_episodes(self) -> dict[str, float]:
        """Reward and success of the episodes since the last update; by family and environment."""
        episodes, self._episodes = self._floors.settled(self._episodes), []
        if not episodes:
            return {}
        values = _means(episodes) | self._floors.metrics()
        for family in sorted({e.kind for e in episodes if e.kind}):
            successes = [e.success for e in episodes if e.kind == family]
            values[FAMILY_PREFIX + family] = sum(successes) / len(successes)
        for env in sorted({e.task.env for e in episodes if e.task.env}):
            own = [e for e in episodes if e.task.env == env]
            values |= in_env(env, {"train/episodes": float(len(own)), **_means(own)})
        return values | mean_scores([e.scores for e in episodes], "train")

    def _since_last_update(self) -> dict[str, float]:
        counters = Counter(self._collector.counters)
        new = counters - self._last_counters
        self._last_counters = counters
        values = {name: float(new[name]) for name in counters if name.startswith("groups/")}
        values |= {name: float(new[name]) for name in counters if name.startswith("merge/fork")}
        if counters["merge/turns"]:
            values["merge/share"] = counters["merge/merged"] / counters["merge/turns"]
        for name in ("groups/dropped_stale", "samples/dropped_stale"):
            values[name] = float(new[name])
        if counters[UNTRAINABLE]:
            values[f"{REQUESTS_PREFIX}untrainable"] = float(counters[UNTRAINABLE])
        return values | _judging(counters) | judged_shares(_judge_counts(new))


class ServingCounts:
    """Turns, verdicts and the judge's queue of a serving run."""

    def __init__(
        self,
        served: ObservedPolicy,
        collector: LiveCollector,
        queue: JudgeQueue,
        ready: UserQueues,
        machine_turns: MachineTurns,
    ) -> None:
        self._served = served
        self._collector = collector
        self._queue = queue
        self._ready = ready
        self._machine_turns = machine_turns
        self._counters: Counter[str] = Counter()
        self._last_judge_counters: Counter[str] = Counter()
        """The queue's, at the last update."""
        self._rewards: list[float] = []
        """Rewards of the verdicts since the last update."""
        self._token_rate = RateWindow()

    def count(self, event: Episode | Turn | Verdict) -> None:
        """A serving run has no episodes of its own."""
        if isinstance(event, Turn):
            self._counters[f"turns/{event.kind}"] += 1
            self._machine_turns.add(event)
            self._token_rate.add(len(event.sampled_ids_T))
        elif isinstance(event, Verdict):
            self._counters[f"{_VERDICTS}{_VALUE_NAMES[event.value]}"] += 1
            self._counters[f"{_VERDICTS}hints"] += bool(event.hints)
            if event.reward is not None:
                self._rewards.append(event.reward)

    def gauges(self) -> dict[str, float]:
        gateway = self._served.gateway
        gateway.stats.learning.machine_like_turns = self._machine_turns.turns
        gateway.stats.learning.held_samples = self._collector.counters["samples/held"]
        return {
            **self._since_start(),
            "policy/version": float(gateway.version),
            "serve/inside": float(gateway.stats.inside),
            "serve/tokens_per_s": self._token_rate.rate(),
            "sessions/open": float(gateway.sessions.open_count),
            "turns/machine_like": float(self._machine_turns.turns),
            "judge/waiting": float(self._queue.waiting),
            "ready/samples": float(self._ready.waiting_samples),
            "ready/flush_s": self._ready.flush_in_s,
        }

    async def of_update(self, update: Update) -> dict[str, float]:
        values = {
            STEP_S: update.stats.duration_s if update.stats else 0.0,
            **self._since_start(),
            **self._judged_since_last_update(),
            "turns/machine_like": float(self._machine_turns.turns),
            **{f"live/{name}": float(n) for name, n in self._collector.counters.items()},
            **_of_requests(self._served.gateway.stats),
        }
        rewards, self._rewards = self._rewards, []
        if rewards:
            values["verdicts/mean"] = sum(rewards) / len(rewards)
        return values

    def _since_start(self) -> dict[str, float]:
        """Counts since the process began: turns, verdicts of every kind, the judge's votes.

        What was stored counts as a verdict, feedback too; the rest only the judge itself knows.
        """
        counts = {
            f"{_VERDICTS}{name.replace(' ', '_')}": float(count)
            for name, count in self._queue.counters.items()
        }
        return counts | {name: float(count) for name, count in self._counters.items()}

    def _judged_since_last_update(self) -> dict[str, float]:
        """Shares of the judge's own verdicts."""
        counters = Counter(self._queue.counters)
        new, self._last_judge_counters = counters - self._last_judge_counters, counters
        return judged_shares(new)


def _of_requests(stats: GatewayStats, of_environments: int = 0) -> dict[str, float]:
    """Counts since the process began of requests that were not served quite as they were made;
    zeros are left out."""
    replaced = replacements.counts()
    replaced["environment"] += of_environments
    counts = {f"{REQUESTS_PREFIX}replaced/{sender}": n for sender, n in replaced.items()}
    counts |= {f"{REQUESTS_PREFIX}untrainable/{name}": n for name, n in stats.untrainable.items()}
    for name in ("unread", "failed_calls", "noted_replies"):
        counts[f"{REQUESTS_PREFIX}{name}"] = getattr(stats, name)
    return {name: float(count) for name, count in counts.items() if count}


def _of_batch(update: Update) -> dict[str, float]:
    """Duration of a batch's step, and length of its replies; nothing for a batch without signal."""
    if update.stats is None:
        return {}
    tokens = reply_tokens(update.batch.samples)
    values = {STEP_S: update.stats.duration_s}
    return values if tokens is None else values | {REPLY_TOKENS: tokens}


def _means(episodes: Sequence[Episode]) -> dict[str, float]:
    return {
        "train/reward": sum(e.reward or 0.0 for e in episodes) / len(episodes),
        "train/success": sum(e.success for e in episodes) / len(episodes),
        "train/turns": sum(e.turns for e in episodes) / len(episodes),
    }


def _judging(counters: Mapping[str, int]) -> dict[str, float]:
    """Counts of the judge, of the prompts that a teacher reads and of compared groups, since the
    process began."""
    prefixes = (_VERDICTS, _HINTS, _COMPARISONS)
    return {name: float(n) for name, n in counters.items() if name.startswith(prefixes)}


def _judge_counts(counters: Mapping[str, int]) -> dict[str, float]:
    """The judge's own counts by their own names."""
    return {
        name.removeprefix(_VERDICTS): float(n)
        for name, n in counters.items()
        if name.startswith(_VERDICTS)
    }
