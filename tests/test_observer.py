"""What an update writes into metrics.jsonl and tells the view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clawrl_gym.core.metrics import Metrics, judged_shares
from clawrl_gym.core.types import Sample, StepStats, Taught, Verdict
from clawrl_gym.run.observer import Observer
from clawrl_gym.run.serve_observer import ServeObserver
from clawrl_gym.trainers.loop import Update
from tests.test_rule_hints import Words


@dataclass
class Batch:
    number: int = 0
    groups: int = 1
    samples: list[Sample] = field(default_factory=list)


class SeenView:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self.readings: list[Any] = []
        self.verdicts: list[Verdict] = []

    def step(self, step: int, values: dict[str, float]) -> None:
        self.steps.append(values)

    def taught(self, reading: Any) -> None:
        self.readings.append(reading)

    def verdict(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)


def update(version: int, taught: list[Taught] | None = None) -> Update:
    stats = StepStats({"teacher/gap_mean": -0.5}, 10, 0.1, taught or [])
    return Update(version, Batch(), stats, 0.0, 0.0, None)


GATEWAY = SimpleNamespace(stats=SimpleNamespace(tokens_sampled=0, inside=0), version=1)


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
    view: Any = SeenView()
    parts: list[Any] = [GATEWAY, SimpleNamespace(in_flight=0), None]
    gateway, pool, timeline = parts
    observer = Observer(9, metrics, timeline, view, gateway, pool, collector, Words())
    await observer.update(update(1))
    counters["verdicts/abstained"] += 4
    await observer.update(update(2, [Taught(1, None, 0, [97], [0.5])]))
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


def test_serving_counts_feedback_as_a_verdict_and_only_the_judges_own_in_its_shares(
    metrics: Metrics,
) -> None:
    asked = Counter({"negative": 1, "votes": 3, "votes_invalid": 1, "not recorded": 1})
    queue: Any = SimpleNamespace(counters=asked, waiting=0)
    engine: Any = SimpleNamespace(metrics=metrics, gateway=GATEWAY)
    collector: Any = SimpleNamespace(counters=Counter())
    ready: Any = SimpleNamespace(waiting_samples=0, flush_in_s=0.0)
    view: Any = SeenView()
    observer = ServeObserver(engine, view, collector, queue, ready, Words())
    observer.verdict(Verdict(1, "model", -1, -1.0, {"hints": ["Look first."]}, 0.0))
    observer.verdict(Verdict(1, "feedback", 1, 1.0, {}, 0.0))
    observer.update(update(1, [Taught(1, 1, 0, [97], [0.5])]))
    values = view.steps[0]
    assert (values["verdicts/positive"], values["verdicts/negative"]) == (1, 1)
    assert (values["verdicts/hints"], values["verdicts/votes"]) == (1, 3)
    assert values["verdicts/not_recorded"] == 1
    assert values["judge/mean"] == -1.0
    assert values["judge/votes_invalid"] == pytest.approx(1 / 3)
    assert view.readings == [(1, [("a", 0.5)])]
    assert metrics.latest["verdicts/hints"] == 1


def test_a_share_of_nothing_is_left_out() -> None:
    assert judged_shares({}) == {}
    assert judged_shares({"neutral": 2, "votes": 0}) == {
        "judge/abstained": 0.0, "judge/hinted": 0.0, "judge/mean": 0.0,
    }  # fmt: skip
    assert judged_shares({"agree": 3, "disagree": 1})["judge/agreement"] == 0.75
