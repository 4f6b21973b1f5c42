"""The observer: turns what the parts count into metrics.jsonl and the view.

It reads counters and changes nothing; a run without it would go on the same.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping

from clawrl_gym.core.metrics import Metrics, RateWindow, Timeline, judged_shares, mean_scores
from clawrl_gym.core.provenance import tree_memory_gb
from clawrl_gym.core.types import Episode
from clawrl_gym.gateway.server import Gateway
from clawrl_gym.rollout.collector import Collector
from clawrl_gym.rollout.evaluation import Evaluation
from clawrl_gym.rollout.pool import WorkerPool
from clawrl_gym.trainers.loop import Update
from clawrl_gym.ui.judging import reading_of
from clawrl_gym.ui.transcripts import Decoder
from clawrl_gym.ui.view import View

_GAUGE_EVERY_S = 0.5
_MEMORY_EVERY = 10
"""Updates between two measurements of memory: the kernel takes its time to add it up."""


class Observer:
    """Counts episodes, logs updates and evaluations, refreshes the view."""

    def __init__(
        self,
        total_steps: int,
        metrics: Metrics,
        timeline: Timeline,
        view: View,
        gateway: Gateway,
        pool: WorkerPool,
        collector: Collector,
        decoder: Decoder | None = None,
    ) -> None:
        """Without a decoder the view shows no words that were distilled."""
        self._total_steps = total_steps
        self._metrics = metrics
        self._timeline = timeline
        self._view = view
        self._gateway = gateway
        self._pool = pool
        self._collector = collector
        self._decoder = decoder
        self._started_s = time.monotonic()
        self._first_step_s: float | None = None
        self._steps_seen = 0
        self._episodes: list[Episode] = []
        self._errors: Counter[str] = Counter()
        self._tokens_rate = RateWindow()
        self._episode_rate = RateWindow()
        self._tokens_seen = 0
        self._counters_seen: Counter[str] = Counter()

    def episode(self, episode: Episode) -> None:
        """A training episode ended, or an attempt failed."""
        self._episode_rate.add(1)
        if episode.reward is None:
            self._errors[f"errors/{episode.stop_reason.value}"] += 1
            self._view.message(f"{episode.stop_reason.value}: {episode.error}")
        else:
            self._episodes.append(episode)

    def evaluation(self, step: int, result: Evaluation) -> None:
        """A held-out evaluation is done."""
        values = result.metrics() | {"policy/version": float(self._gateway.version)}
        self._metrics.log(step, values)
        self._view.step(step, values)
        if result.lost:
            self._view.message(f"{len(result.lost)} held-out tasks left out: {result.lost[0]}")

    async def update(self, update: Update) -> None:
        """An update serves: everything about it, and what was collected since the last."""
        now_s = time.monotonic()
        self._first_step_s = self._first_step_s or now_s
        self._steps_seen += 1
        values = {
            "policy/version": float(update.version),
            "swap/pause_s": update.swap_pause_s,
            "learner/waited_s": update.waited_s,
            "batch/samples": float(len(update.batch.samples)),
            "time/elapsed_s": now_s - self._started_s,
            "time/left_s": self._left_s(update.version, now_s),
        }
        values |= update.stats.metrics if update.stats else {}
        values |= self._collected() | self._since_last_update() | self._gauges()
        values |= {name: float(count) for name, count in self._errors.items()}
        if update.version % _MEMORY_EVERY == 1:
            values["memory/rss_gb"] = await asyncio.to_thread(tree_memory_gb)
        self._metrics.log(update.version, values)
        self._view.step(update.version, values)
        if self._decoder is not None and update.stats is not None:
            reading = reading_of(update.version, update.stats.taught, self._decoder)
            if reading is not None:
                self._view.taught(reading)

    async def run(self) -> None:
        """Refresh the view and note when tokens are sampled, until cancelled."""
        last_s, sampled = time.time(), self._gateway.stats.tokens_sampled
        while True:
            await asyncio.sleep(_GAUGE_EVERY_S)
            self._view.update(self._gauges())
            now_s, tokens = time.time(), self._gateway.stats.tokens_sampled - sampled
            if tokens:
                self._timeline.add("serve", "generate", last_s, now_s, tokens=tokens)
            last_s, sampled = now_s, sampled + tokens

    def _left_s(self, version: int, now_s: float) -> float:
        if self._first_step_s is None or self._steps_seen < 2:
            return float("nan")
        a_step_s = (now_s - self._first_step_s) / (self._steps_seen - 1)
        return a_step_s * (self._total_steps - version)

    def _collected(self) -> dict[str, float]:
        """Reward and success of the episodes since the last update, by family too."""
        episodes, self._episodes = self._episodes, []
        if not episodes:
            return {}
        values = {
            "train/reward": sum(e.reward or 0.0 for e in episodes) / len(episodes),
            "train/success": sum(e.success for e in episodes) / len(episodes),
            "train/turns": sum(e.turns for e in episodes) / len(episodes),
        }
        for family in sorted({e.family for e in episodes if e.family}):
            own = [e.success for e in episodes if e.family == family]
            values[f"train/success/{family}"] = sum(own) / len(own)
        return values | mean_scores([e.scores for e in episodes], "train")

    def _since_last_update(self) -> dict[str, float]:
        counters = Counter(self._collector.counters)
        new = counters - self._counters_seen
        self._counters_seen = counters
        values = {name: float(new[name]) for name in counters if name.startswith("groups/")}
        values |= {name: float(new[name]) for name in counters if name.startswith("merge/fork")}
        if counters["merge/turns"]:
            values["merge/share"] = counters["merge/merged"] / counters["merge/turns"]
        values["groups/dropped_stale"] = float(new["samples/dropped_stale"])
        return values | _judging(counters) | judged_shares(_verdicts(new))

    def _gauges(self) -> dict[str, float]:
        sampled = self._gateway.stats.tokens_sampled
        self._tokens_rate.add(sampled - self._tokens_seen)
        self._tokens_seen = sampled
        return {
            "rollout/tokens_per_s": self._tokens_rate.rate(),
            "rollout/episodes_per_s": self._episode_rate.rate(),
            "rollout/in_flight": float(self._pool.in_flight),
            "groups/ready": float(self._collector.ready_groups),
            "policy/version": float(self._gateway.version),
            "time/elapsed_s": time.monotonic() - self._started_s,
            **_judging(self._collector.counters),
        }


_VERDICTS = "verdicts/"
_HINTS = "hints/"


def _judging(counters: Mapping[str, int]) -> dict[str, float]:
    """Counts of the judge and of the prompts that a teacher reads, since the process began."""
    return {name: float(n) for name, n in counters.items() if name.startswith((_VERDICTS, _HINTS))}


def _verdicts(counters: Mapping[str, int]) -> dict[str, float]:
    """The judge's own counts by their own names."""
    named = _judging(counters).items()
    return {name.removeprefix(_VERDICTS): n for name, n in named if name.startswith(_VERDICTS)}
