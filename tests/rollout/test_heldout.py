"""Held-out evaluations of a run: which ones hold training up, and what each says of itself."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from clawrl_gym.config import RunConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.types import Episode, StopReason, TaskRef
from clawrl_gym.rollout.collection.mixture import Mixture
from clawrl_gym.rollout.collection.task_sampler import TaskSampler
from clawrl_gym.rollout.episodes.floors import RewardFloors
from clawrl_gym.rollout.evaluation import Evaluation
from clawrl_gym.run.heldout import HeldOut


class Environments:
    """Evaluations that end when they may."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.requests: list[dict[str, Any]] = []

    async def evaluate(self, tasks: list[TaskRef], **options: Any) -> Evaluation:
        self.requests.append({"tasks": len(tasks), **options})
        await self.may_end.wait()
        solved = [Episode("s", None, task, StopReason.TERMINATED, 1.0, 1) for task in tasks]
        return Evaluation(solved)


class Timeline:
    def __init__(self) -> None:
        self.spans: list[tuple[object, ...]] = []

    @contextmanager
    def span(self, *names: str, **details: object) -> Iterator[None]:
        yield
        self.spans.append((*names, details))


class View:
    def __init__(self) -> None:
        self.messages: list[str] = []
        self.phases: list[tuple[str, str]] = []

    def phase(self, name: str, detail: str) -> None:
        self.phases.append((name, detail))

    def message(self, text: str) -> None:
        self.messages.append(text)


class Elsewhere:
    """Another environment, where of four tasks one is solved and one is lost."""

    name = "moon"
    tasks = tuple(TaskRef(f"m{n}", n, "heldout") for n in range(4))

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    async def evaluate(self, *arguments: object) -> Evaluation:
        self.asked.append(arguments)
        rewards = (1.0, 0.0, 0.0)
        ended = [
            Episode("s", None, task, StopReason.TERMINATED, reward, 1)
            for task, reward in zip(self.tasks, rewards, strict=False)
        ]
        return Evaluation(ended, ("m3: no room",))


class Logged(list[tuple[int, dict[str, float]]]):
    """What is logged as metrics."""

    def log(self, step: int, values: dict[str, float]) -> None:
        self.append((step, values))


class Bench:
    """A run's held-out evaluations, and what is around them."""

    def __init__(self, *overrides: str, elsewhere: Sequence[Any] = ()) -> None:
        config = compose("train", ["eval.every=2", *overrides], RunConfig)
        ids = [f"h{n}" for n in range(200)]
        self.environments, self.view = Environments(), View()
        self.policy = SimpleNamespace(version=0, address="the policy's")
        self.timeline, self.logged = Timeline(), Logged()
        self.rows: list[dict[str, float]] = []
        self.reported: list[tuple[int, range]] = []
        services: Any = SimpleNamespace(
            policy=self.policy,
            timeline=self.timeline,
            metrics=SimpleNamespace(history=self.rows, log=self.logged.log),
            cluster="the cluster",
        )
        self.config = config
        environments: Any = self.environments
        view: Any = self.view
        self.heldout = HeldOut(
            config,
            Mixture({"": TaskSampler({"train": ["t"], "heldout": ids}, 0)}),
            elsewhere,
            environments,
            services,
            view,
            self._report,
            RewardFloors(),
        )

    def _report(self, step: int, result: Evaluation, versions: range) -> None:
        self.reported.append((step, versions))
        self.rows.append({"step": step, "heldout/success": result.success})


async def test_one_in_between_goes_on_while_updates_come_and_says_which_versions_it_met() -> None:
    bench = Bench()
    async with asyncio.TaskGroup() as running:
        for step in range(1, 6):
            bench.policy.version = step
            bench.heldout.begin_if_due(step, running)
            await asyncio.sleep(0)
        assert bench.reported == []
        assert bench.heldout.kept([1, 2, 3]) == {2}  # its weights may prove the best
        bench.environments.may_end.set()
    assert bench.reported == [(2, range(2, 6))]
    assert bench.view.messages == [
        "no held-out evaluation after 4 updates: the one after 2 is still under way"
    ]
    assert bench.environments.requests[0]["tasks"] == 60
    assert bench.heldout.kept([1, 2, 3]) == {2}
    assert list(bench.heldout.evaluations) == [2]


async def test_the_last_waits_for_the_one_in_between_and_is_of_one_version() -> None:
    bench = Bench("eval.k=[1,4]", "trainer.steps=3")
    async with asyncio.TaskGroup() as running:
        bench.policy.version = 2
        bench.heldout.begin_if_due(2, running)
        await asyncio.sleep(0)
        bench.policy.version = 3
        bench.heldout.begin_if_due(3, running)
        last = running.create_task(bench.heldout.measure(3))
        await asyncio.sleep(0)
        assert len(bench.environments.requests) == 1
        bench.environments.may_end.set()
        await last
    assert bench.reported == [(2, range(2, 4)), (3, range(3, 4))]
    between, whole = bench.environments.requests
    assert (between["tasks"], between["ks"], between["samples"]) == (60, (), 0)
    assert (whole["tasks"], whole["ks"], whole["samples"]) == (180, (1, 4), 4)


@pytest.mark.parametrize("overrides", [["eval.every=0"], ["eval.tasks=0"]])
async def test_none_is_made_where_none_is_wanted(overrides: list[str]) -> None:
    bench = Bench(*overrides)
    bench.environments.may_end.set()
    async with asyncio.TaskGroup() as running:
        bench.heldout.begin_if_due(2, running)
    assert bench.reported == []


async def test_without_its_ends_only_evaluations_in_between_are_made() -> None:
    bench = Bench("eval.ends=false")
    bench.environments.may_end.set()
    await bench.heldout.measure(0)
    async with asyncio.TaskGroup() as running:
        bench.heldout.begin_if_due(2, running)
    await bench.heldout.measure(20)
    assert [step for step, _ in bench.reported] == [2]


async def test_other_environments_are_measured_after_the_runs_own_and_told_by_name() -> None:
    elsewhere = Elsewhere()
    bench = Bench("eval.tasks=5", elsewhere=[elsewhere])
    bench.environments.may_end.set()
    await bench.heldout.measure(0)
    async with asyncio.TaskGroup() as running:
        bench.heldout.begin_if_due(2, running)
    assert elsewhere.asked == [(bench.config, "the policy's", "the cluster")], "not in between"
    ((step, values),) = bench.logged
    assert step == 0
    assert values["also/moon/success"] == pytest.approx(1 / 3)
    assert values["also/moon/n"] == 3
    (line,) = bench.view.messages
    assert line.startswith(
        "held-out of env=moon: 33% of 3 solved; reward 0.333 (0 to 1); WARNING: 1 of 4"
    )
    assert bench.view.phases == [
        ("held-out", "5 tasks, after 0 updates"), ("held-out", "ready"),
        ("held-out", "4 tasks of env=moon"), ("held-out", "ready"),
        ("held-out", "60 tasks, after 2 updates"), ("held-out", "ready"),
    ]  # fmt: skip
    assert bench.timeline.spans == [
        ("collect", "held-out", {"step": 0}), ("collect", "held-out", {"step": 0, "env": "moon"}),
        ("collect", "held-out", {"step": 2}),
    ]  # fmt: skip


async def test_nothing_is_measured_elsewhere_where_nothing_is_measured_here() -> None:
    elsewhere = Elsewhere()
    for override in ("eval.tasks=0", "eval.ends=false"):
        await Bench(override, elsewhere=[elsewhere]).heldout.measure(0)
    assert elsewhere.asked == []
