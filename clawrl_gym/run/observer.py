"""The observer: turns what the parts count into metrics.jsonl and the view.

It reads counters and changes nothing; a run without it would be the same. What one kind of run
counts, and how, is its `Counts` (see `counts.py`).
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from clawrl_gym.core.metrics import (
    HELDOUT_LAST_VERSION,
    HELDOUT_SUCCESS,
    REFUSED,
    Metrics,
    Timeline,
)
from clawrl_gym.core.repeats import Repeats
from clawrl_gym.core.types import Episode, Turn, Verdict
from clawrl_gym.gateway.prometheus import LearningStats
from clawrl_gym.gateway.server import Gateway
from clawrl_gym.rollout.evaluation import Evaluation
from clawrl_gym.serving.untrainable_turns import UntrainableTurns
from clawrl_gym.trainers.loop import Update
from clawrl_gym.ui.judging import reading_of
from clawrl_gym.ui.transcripts import Decoder
from clawrl_gym.ui.view import RunView

_GAUGE_EVERY_S = 0.5


class ObservedPolicy(Protocol):
    """A policy behind its gateway, which is there once it listens."""

    @property
    def gateway(self) -> Gateway: ...


class Counts(Protocol):
    """Counts of one kind of run."""

    def count(self, event: Episode | Turn | Verdict) -> None:
        """An episode ended or failed, a turn was recorded, or it was judged."""
        ...

    def gauges(self) -> dict[str, float]:
        """Present gauges by metric name; not a number where there is nothing to measure."""
        ...

    async def of_update(self, update: Update) -> dict[str, float]:
        """Metrics of an update, by name; counts since the one before are reset."""
        ...


class Observer:
    """Logs updates and evaluations, refreshes the view."""

    def __init__(
        self,
        metrics: Metrics,
        timeline: Timeline,
        view: RunView,
        served: ObservedPolicy,
        counts: Counts,
        decoder: Decoder | None = None,
        untrainable_turns: UntrainableTurns | None = None,
    ) -> None:
        """Without a decoder the view shows no words that were distilled. `untrainable_turns`: of
        clients that choose their own sampling; None where nobody does, or nothing learns."""
        self._metrics = metrics
        self._timeline = timeline
        self._view = view
        self._served = served
        self._counts = counts
        self._decoder = decoder
        self._untrainable_turns = untrainable_turns
        self._errors = Repeats(view.message)

    @property
    def _learning(self) -> LearningStats:
        return self._served.gateway.stats.learning

    def episode(self, episode: Episode) -> None:
        """A training episode ended, or an attempt failed."""
        self._counts.count(episode)
        if episode.notice is not None:
            self._view.message(episode.notice)
        if episode.error is not None and not episode.is_reported:
            self._errors.add(f"{episode.stop_reason.value}: {episode.error}")

    def turn(self, turn: Turn) -> None:
        """A turn of a conversation was recorded."""
        self._counts.count(turn)
        self._view.turn(turn)
        if self._untrainable_turns is not None:
            self._untrainable_turns.add(turn)

    def verdict(self, verdict: Verdict) -> None:
        """A turn of a conversation was judged."""
        self._counts.count(verdict)
        self._view.verdict(verdict)
        self.judged(verdict)

    def judged(self, verdict: Verdict) -> None:
        """A turn was judged: for those who watch from outside."""
        self._learning.judged(verdict.kind, verdict.value)

    def evaluation(self, step: int, result: Evaluation, versions: range) -> None:
        """A held-out evaluation is done; the policy had these versions meanwhile."""
        values = result.metrics() | {
            "policy/version": float(versions[0]),
            HELDOUT_LAST_VERSION: float(versions[-1]),
        }
        self._learning.heldout_success = values.get(HELDOUT_SUCCESS)
        sampled = result.attempts.rewards if result.attempts else {}
        self._metrics.log_tasks(
            step,
            result.solved_by_task,
            {"reward": result.reward_by_task, "sampled_reward": sampled},
        )
        self._metrics.log(step, values)
        self._view.step(step, values)
        if result.warning is not None:
            self._view.message(f"held-out after {step} updates: {result.warning}")

    async def update(self, update: Update) -> None:
        """An update serves: everything about it, and what was counted since the last."""
        values = {
            "policy/version": float(update.version),
            "swap/pause_s": update.publish_pause_s,
            "batch/samples": float(len(update.batch.samples)),
        }
        values |= update.stats.metrics if update.stats else {}
        values |= update.events
        values |= await self._counts.of_update(update)
        self._learning.updates += 1
        self._learning.refused += REFUSED in update.events
        self._learning.samples += len(update.batch.samples)
        self._learning.loss = values.get("learner/loss")
        self._metrics.log(update.version, values)
        self._view.step(update.version, values)
        if self._decoder is not None and update.stats is not None:
            reading = reading_of(update.version, update.stats.distilled_turns, self._decoder)
            if reading is not None:
                self._view.distilled(reading)

    async def run(self) -> None:
        """Refresh the view and note when tokens are sampled, until cancelled."""
        stats = self._served.gateway.stats
        last_s, sampled = time.time(), stats.tokens_sampled
        while True:
            await asyncio.sleep(_GAUGE_EVERY_S)
            self._view.update(self._counts.gauges())
            self._errors.flush_if_due()
            now_s, tokens = time.time(), stats.tokens_sampled - sampled
            if tokens:
                self._timeline.add("serve", "generate", last_s, now_s, tokens=tokens)
            last_s, sampled = now_s, sampled + tokens
