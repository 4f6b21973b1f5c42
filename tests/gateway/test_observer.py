"""What an update writes into metrics.jsonl and shows in the view."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.metrics import TIMELINE_FILE, Metrics, Timeline, judged_shares
from clawrl_gym.core.types import DistilledTurn, Episode, StepStats, StopReason, TaskRef, Verdict
from clawrl_gym.gateway.prometheus import GatewayStats
from clawrl_gym.gateway.sessions.machine_turns import MachineTurns
from clawrl_gym.run.counts import ServingCounts, TrainingCounts
from clawrl_gym.run.observer import Observer
from clawrl_gym.trainers.batch_queue import Batch
from clawrl_gym.trainers.loop import Update
from clawrl_gym.ui.report import request_facts
from clawrl_gym.ui.run_data import read_run
from tests.support.fake_run import make_run
from tests.ui.test_rule_hints import Words


class RecordingView:
    """Keeps the events of a view."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self.readings: list[Any] = []
        self.verdicts: list[Verdict] = []
        self.messages: list[str] = []
        self.gauges: list[Mapping[str, float]] = []

    def update(self, gauges: Mapping[str, float]) -> None:
        self.gauges.append(gauges)

    def message(self, text: str) -> None:
        self.messages.append(text)

    def step(self, step: int, values: dict[str, float]) -> None:
        self.steps.append(values)

    def distilled(self, reading: Any) -> None:
        self.readings.append(reading)

    def verdict(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)


def update(version: int, distilled_turns: list[DistilledTurn] | None = None) -> Update:
    stats = StepStats({"teacher/gap_mean": -0.5}, 10, 0.1, distilled_turns or [])
    return Update(version, Batch(0, 1, [], 0), stats, 0.0, 0.0, None)


GATEWAY = SimpleNamespace(
    stats=GatewayStats(), version=1,
    sessions=SimpleNamespace(open_count=2),
)  # fmt: skip
SERVED: Any = SimpleNamespace(gateway=GATEWAY)
FLOW: Any = SimpleNamespace(limit=64, shares=lambda: {"flow/queue": 1.0})
TIMELINE: Any = None


@pytest.fixture
def metrics(tmp_path: Path) -> Iterator[Metrics]:
    metrics = Metrics(tmp_path, "none", {})
    yield metrics
    metrics.close()


async def test_verdicts_are_counted_since_the_start_and_their_shares_since_the_last_update(
    metrics: Metrics,
) -> None:
    counters = Counter({"verdicts/positive": 3, "verdicts/negative": 1, "verdicts/hints": 1})
    counters["hints/prompts"] = 1
    collector: Any = SimpleNamespace(counters=counters, ready_groups=0)
    view: Any = RecordingView()
    pool: Any = SimpleNamespace(in_flight=0)
    counts = TrainingCounts(9, SERVED, pool, FLOW, collector)
    observer = Observer(metrics, TIMELINE, view, SERVED, counts, Words())
    await observer.update(update(1))
    counters["verdicts/abstained"] += 4
    await observer.update(update(2, [DistilledTurn(1, None, 0, [97], [0.5])]))
    await observer.update(update(3))
    first, second, third = view.steps
    assert first["verdicts/positive"] == second["verdicts/positive"] == 3
    assert third["hints/prompts"] == 1
    assert (first["judge/mean"], first["judge/hinted"]) == (0.5, 0.25)
    assert second["judge/abstained"] == 1.0
    assert "judge/mean" not in second
    assert not [name for name in third if name.startswith("judge/")]
    assert third["teacher/gap_mean"] == -0.5
    assert view.readings == [(2, [("a", 0.5)])]


async def test_serving_counts_feedback_as_a_verdict_and_only_the_judges_own_in_its_shares(
    metrics: Metrics,
) -> None:
    counters = Counter({"negative": 1, "votes": 3, "votes_invalid": 1, "not recorded": 1})
    queue: Any = SimpleNamespace(counters=counters, waiting=0)
    collector: Any = SimpleNamespace(counters=Counter())
    ready: Any = SimpleNamespace(waiting_samples=0, flush_in_s=0.0)
    view: Any = RecordingView()
    counts = ServingCounts(SERVED, collector, queue, ready, MachineTurns())
    observer = Observer(metrics, TIMELINE, view, SERVED, counts, Words())
    observer.verdict(Verdict(1, "model", -1, -1.0, {"hints": ["Look first."]}, 0.0))
    observer.verdict(Verdict(1, "feedback", 1, 1.0, {}, 0.0))
    await observer.update(update(1, [DistilledTurn(1, 1, 0, [97], [0.5])]))
    values = view.steps[0]
    assert (values["verdicts/positive"], values["verdicts/negative"]) == (1, 1)
    assert (values["verdicts/hints"], values["verdicts/votes"]) == (1, 3)
    assert values["verdicts/not_recorded"] == 1
    assert values["judge/mean"] == -1.0
    assert values["judge/votes_invalid"] == pytest.approx(1 / 3)
    assert view.readings == [(1, [("a", 0.5)])]
    assert metrics.latest["verdicts/hints"] == 1


async def test_what_is_judged_and_learned_is_counted_for_those_who_watch_from_outside(
    metrics: Metrics,
) -> None:
    queue: Any = SimpleNamespace(counters=Counter(), waiting=0)
    collector: Any = SimpleNamespace(counters=Counter())
    ready: Any = SimpleNamespace(waiting_samples=0, flush_in_s=0.0)
    stats = GatewayStats()
    served: Any = SimpleNamespace(gateway=SimpleNamespace(**vars(GATEWAY) | {"stats": stats}))
    view: Any = RecordingView()
    counts = ServingCounts(served, collector, queue, ready, MachineTurns())
    observer = Observer(metrics, TIMELINE, view, served, counts)
    observer.verdict(Verdict(1, "rule", -1, -1.0, {}, 0.0))
    observer.verdict(Verdict(2, "rule", None, None, {}, 0.0))
    await observer.update(update(1))
    assert stats.learning.verdicts == {("rule", "negative"): 1}
    assert stats.learning.abstentions == {"rule": 1}
    assert (stats.learning.updates, stats.learning.samples) == (1, 0)


async def test_replies_that_no_client_can_use_are_in_the_metrics_and_the_report(
    tmp_path: Path,
) -> None:
    make_run(tmp_path, steps=1, heldout=False, store=False)
    metrics = Metrics(tmp_path, "none", {})
    queue: Any = SimpleNamespace(counters=Counter(), waiting=0)
    collector: Any = SimpleNamespace(counters=Counter())
    stats = GatewayStats(failed_calls=3, noted_replies=2)
    served: Any = SimpleNamespace(gateway=SimpleNamespace(**vars(GATEWAY) | {"stats": stats}))
    view: Any = RecordingView()
    ready: Any = SimpleNamespace(waiting_samples=0, flush_in_s=0.0)
    counts = ServingCounts(served, collector, queue, ready, MachineTurns())
    observer = Observer(metrics, TIMELINE, view, served, counts)
    await observer.update(update(2))
    stats.failed_calls = 5
    await observer.update(update(3))
    metrics.close()
    steps = [(s["requests/failed_calls"], s["requests/noted_replies"]) for s in view.steps]
    assert steps == [(3, 2), (5, 2)]
    facts = dict(request_facts(read_run(tmp_path)))  # other tests here count replaced texts
    assert facts["turns with a tool call that no client can carry out"] == "5"
    assert facts["turns whose tool calls were read with a reservation"] == "2"


async def test_an_attempt_that_failed_is_an_error_and_a_message_and_no_reward(
    metrics: Metrics,
) -> None:
    collector: Any = SimpleNamespace(counters=Counter(), ready_groups=0)
    view: Any = RecordingView()
    pool: Any = SimpleNamespace(in_flight=3)
    counts = TrainingCounts(9, SERVED, pool, FLOW, collector)
    observer = Observer(metrics, TIMELINE, view, SERVED, counts)
    task = TaskRef("grep-1", 0, "train")
    observer.episode(Episode("a", 1, task, StopReason.TERMINATED, 1.0, 2, family="grep"))
    observer.episode(Episode("b", 1, task, StopReason.ENV_ERROR, None, 0, error="no sandbox"))
    await observer.update(update(1))
    await observer.update(update(2))
    first, second = view.steps
    assert view.messages == ["env_error: no sandbox"]
    assert (first["train/reward"], first["train/success/grep"], first["train/turns"]) == (1, 1, 2)
    assert first["errors/env_error"] == second["errors/env_error"] == 1
    assert "train/reward" not in second
    assert (first["rollout/in_flight_limit"], first["flow/queue"]) == (64, 1.0)
    assert (first["rollout/in_flight"], first["batch/samples"], first["policy/version"]) == (
        3,
        0,
        1,
    )
    assert math.isnan(first["time/left_s"])
    assert second["time/left_s"] >= 0
    assert "memory/rss_gb" in first
    assert "memory/rss_gb" not in second


async def test_the_view_is_refreshed_and_sampling_is_a_span_of_the_timeline(
    metrics: Metrics, tmp_path: Path
) -> None:
    stats = SimpleNamespace(tokens_sampled=5, inside=1)
    served: Any = SimpleNamespace(gateway=SimpleNamespace(stats=stats, version=1))
    collector: Any = SimpleNamespace(counters=Counter(), ready_groups=0)
    pool: Any = SimpleNamespace(in_flight=3)
    view: Any = RecordingView()
    timeline = Timeline(tmp_path)
    counts = TrainingCounts(9, served, pool, FLOW, collector)
    running = asyncio.create_task(Observer(metrics, timeline, view, served, counts).run())
    await asyncio.sleep(0)
    stats.tokens_sampled = 12
    while not view.gauges:  # noqa: ASYNC110 - half a second
        await asyncio.sleep(0.05)
    running.cancel()
    timeline.close()
    assert view.gauges[0]["rollout/in_flight"] == 3
    spans = read_json_lines(tmp_path / TIMELINE_FILE)
    assert [(span["loop"], span["name"], span["tokens"]) for span in spans] == [
        ("serve", "generate", 7)
    ]


def test_the_gauges_of_serving_say_when_the_next_batch_is_due() -> None:
    queue: Any = SimpleNamespace(counters=Counter(votes=3), waiting=4)
    ready: Any = SimpleNamespace(waiting_samples=5, flush_in_s=math.nan)
    collector: Any = SimpleNamespace(counters=Counter())
    gauges = ServingCounts(SERVED, collector, queue, ready, MachineTurns()).gauges()
    assert math.isnan(gauges.pop("ready/flush_s"))
    assert gauges == {
        "verdicts/votes": 3, "policy/version": 1, "serve/inside": 0, "serve/tokens_per_s": 0,
        "sessions/open": 2, "turns/machine_like": 0, "judge/waiting": 4, "ready/samples": 5,
    }  # fmt: skip


def test_a_share_of_nothing_is_left_out() -> None:
    assert judged_shares({}) == {}
    assert judged_shares({"neutral": 2, "votes": 0}) == {
        "judge/abstained": 0.0, "judge/hinted": 0.0, "judge/mean": 0.0,
    }  # fmt: skip
    assert judged_shares({"agree": 3, "disagree": 1})["judge/agreement"] == 0.75


async def test_rates_and_time_left_are_right_for_updates_slower_than_any_window() -> None:
    """An update a minute, whose tokens come in its first ten seconds, while the learner waits."""
    clock = [1000.0]
    stats = GatewayStats()
    served: Any = SimpleNamespace(gateway=SimpleNamespace(**vars(GATEWAY) | {"stats": stats}))
    collector: Any = SimpleNamespace(counters=Counter(), ready_groups=0)
    pool: Any = SimpleNamespace(in_flight=0)
    counts = TrainingCounts(6, served, pool, FLOW, collector, now=lambda: clock[0])
    clock[0] += 40.0  # vLLM starts
    counts.gauges()
    rows = []
    for version in range(1, 5):
        for second in range(120):
            clock[0] += 0.5
            stats.tokens_sampled += 300 if second < 20 else 0
            if second % 10 == 0:
                task = TaskRef("t", 0, "train")
                counts.count(Episode("e", 1, task, StopReason.TERMINATED, 1.0, 2))
            counts.gauges()
        rows.append(await counts.of_update(update(version)))
        during = counts.gauges()
        assert during["rollout/tokens_per_s"] == pytest.approx(100.0, rel=0.02)
    assert [row["rollout/tokens_per_s"] for row in rows] == pytest.approx([100.0] * 4, rel=0.02)
    assert [row["rollout/episodes_per_s"] for row in rows] == pytest.approx([0.2] * 4, rel=0.02)
    assert [row["time/left_s"] for row in rows] == pytest.approx([300.0, 240.0, 180.0, 120.0])
