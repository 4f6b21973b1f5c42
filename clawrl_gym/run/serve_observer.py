"""The observer of a serving run: what the parts count becomes metrics.jsonl and the view.

It reads counters and changes nothing; a run without it would go on the same.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from clawrl_gym.core.metrics import RateWindow, judged_shares
from clawrl_gym.core.types import Turn, Verdict
from clawrl_gym.judge.queue import JudgeQueue
from clawrl_gym.rollout.live_collector import LiveCollector
from clawrl_gym.run.parts import RunParts
from clawrl_gym.trainers.batch_queue import ReadyGroups
from clawrl_gym.trainers.loop import Update
from clawrl_gym.ui.judging import reading_of
from clawrl_gym.ui.transcripts import Decoder
from clawrl_gym.ui.view import View

_GAUGE_EVERY_S = 0.5
_NAMES = {1: "positive", 0: "neutral", -1: "negative", None: "abstained"}


class ServeObserver:
    """Counts turns and verdicts, logs updates, refreshes the view."""

    def __init__(
        self,
        parts: RunParts,
        view: View,
        collector: LiveCollector,
        queue: JudgeQueue,
        ready: ReadyGroups,
        decoder: Decoder | None = None,
    ) -> None:
        """Without a decoder the view shows no words that were distilled."""
        self._parts = parts
        self._view = view
        self._collector = collector
        self._queue = queue
        self._ready = ready
        self._decoder = decoder
        self._counts: Counter[str] = Counter()
        self._asked_seen: Counter[str] = Counter()
        self._rewards: list[float] = []
        self._tokens = RateWindow()

    def turn(self, turn: Turn) -> None:
        """A turn was recorded."""
        self._counts[f"turns/{turn.kind}"] += 1
        self._tokens.add(len(turn.sampled_ids_T))
        self._view.turn(turn)

    def verdict(self, verdict: Verdict) -> None:
        """A turn was judged."""
        self._counts[f"verdicts/{_NAMES[verdict.value]}"] += 1
        self._counts["verdicts/hints"] += bool(verdict.hints)
        if verdict.reward is not None:
            self._rewards.append(verdict.reward)
        self._view.verdict(verdict)

    def update(self, update: Update) -> None:
        """An update serves."""
        values = {
            "policy/version": float(update.version),
            "swap/pause_s": update.swap_pause_s,
            "batch/samples": float(len(update.batch.samples)),
            "learner/step_s": update.stats.duration_s if update.stats else 0.0,
        }
        values |= update.stats.metrics if update.stats else {}
        values |= self._told() | self._judged()
        values |= {f"live/{name}": float(n) for name, n in self._collector.counters.items()}
        rewards, self._rewards = self._rewards, []
        if rewards:
            values["verdicts/mean"] = sum(rewards) / len(rewards)
        self._parts.metrics.log(update.version, values)
        self._view.step(update.version, values)
        if self._decoder is not None and update.stats is not None:
            reading = reading_of(update.version, update.stats.taught, self._decoder)
            if reading is not None:
                self._view.taught(reading)

    def _told(self) -> dict[str, float]:
        """Counts since the process began: turns, verdicts of every kind, how the judge was asked.

        What was stored counts as a verdict, feedback too; the rest only the judge itself knows.
        """
        asked = {
            f"verdicts/{name.replace(' ', '_')}": float(count)
            for name, count in self._queue.counters.items()
        }
        return asked | {name: float(count) for name, count in self._counts.items()}

    def _judged(self) -> dict[str, float]:
        """What the judge's own verdicts since the last update were like."""
        asked = Counter(self._queue.counters)
        new, self._asked_seen = asked - self._asked_seen, asked
        return judged_shares(new)

    async def run(self) -> None:
        """Refresh the view and note when tokens are sampled, until cancelled."""
        stats = self._parts.policy.gateway.stats
        last_s, sampled = time.time(), stats.tokens_sampled
        while True:
            await asyncio.sleep(_GAUGE_EVERY_S)
            self._view.update(self._gauges())
            now_s, tokens = time.time(), stats.tokens_sampled - sampled
            if tokens:
                self._parts.timeline.add("serve", "generate", last_s, now_s, tokens=tokens)
            last_s, sampled = now_s, sampled + tokens

    def _gauges(self) -> dict[str, float]:
        gateway = self._parts.policy.gateway
        return {
            **self._told(),
            "policy/version": float(gateway.version),
            "serve/inside": float(gateway.stats.inside),
            "serve/tokens_per_s": self._tokens.rate(),
            "sessions/open": float(gateway.sessions.open_count),
            "judge/waiting": float(self._queue.waiting),
            "ready/samples": float(self._ready.waiting_samples),
            "ready/flush_s": self._ready.flush_in_s,
        }
