"""Time saved by collecting and learning at once instead of in turns.

    python bench/async_vs_sync.py simulated   # engine and learner steps of equal length
    python bench/async_vs_sync.py real        # the tiny policy; both share this machine's cores
    python bench/async_vs_sync.py lag         # how old samples are, by rollout.max_staleness

Prints the wall time of the same number of updates in both modes and their ratio. `simulated` (as on
two devices) runs the real dispatcher, collector, store and training loop; only the engine and the
learner sleep. `lag` does so with engines that are slower, as fast, and faster than the learner.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from clawrl_gym.config import LearnerConfig, RolloutConfig, TrainerConfig
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.metrics import Timeline
from clawrl_gym.core.types import Episode, Group, Message, StepStats, StopReason, Turn
from clawrl_gym.rollout.collection.collector import Collector
from clawrl_gym.rollout.collection.dispatcher import Dispatcher
from clawrl_gym.rollout.collection.mixture import Mixture
from clawrl_gym.rollout.collection.pool import EpisodeRunner, WorkerPool
from clawrl_gym.rollout.collection.task_sampler import TaskSampler
from clawrl_gym.rollout.episodes.episode import EpisodeLimits, EpisodeSpec
from clawrl_gym.store import SessionRow, Store
from clawrl_gym.trainers.algorithms.grpo import Grpo
from clawrl_gym.trainers.loop import Publication, TrainLoop, Update
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.simulated import SimulatedLearner
from clawrl_gym.trainers.versions.kept_versions import KeptVersions


class SimulatedEngine(EpisodeRunner):
    """Episodes that last `episode_s`, each with one recorded turn and a random reward."""

    def __init__(self, store: Store, episode_s: float) -> None:
        self._store = store
        self._episode_s = episode_s
        self._random = random.Random(0)
        self.version = 0

    async def run(self, spec: EpisodeSpec) -> Episode:
        await asyncio.sleep(self._episode_s)
        now_s = time.time()
        session = SessionRow(
            spec.session_id, spec.task.id, spec.group_id, "train", "rollout", now_s
        )
        await self._store.add_session(session)
        request, reply = Message(role="user", content="x"), Message(role="assistant", content="y")
        turn = Turn(
            spec.session_id, 0, "main", [1, 2, 3], [4, 5], [-0.5, -0.5], [self.version] * 2,
            "stop", [request], reply, now_s,
        )  # fmt: skip
        await self._store.add_turn(turn)
        reward = float(self._random.random() < 0.5)
        return Episode(spec.session_id, spec.group_id, spec.task, StopReason.TERMINATED, reward, 1)


class ThreadLearner:
    """The simulated learner on a thread of its own, as its process would be."""

    def __init__(self, learner: SimulatedLearner) -> None:
        self._learner = learner

    async def step(self, batch: SampleBatch, version: int) -> StepStats:
        return await asyncio.to_thread(self._learner.step, batch.samples(), version)

    async def save_checkpoint(self, folder: str) -> None:
        await asyncio.to_thread(self._learner.save_checkpoint, folder)

    async def load_checkpoint(self, folder: str) -> None:
        await asyncio.to_thread(self._learner.load_checkpoint, folder)

    async def reset(self) -> None:
        """Nobody goes back here."""

    async def restart(self, checkpoint: str | None) -> None:
        """A thread of this process does not die alone."""


@dataclass(frozen=True, slots=True)
class Took:
    """A simulated run."""

    wall_s: float
    lag: float
    """Updates that its samples were old when they were learned from; mean of the last half."""


async def simulated(
    mode: str, updates: int, step_s: float, folder: Path, episode_s: float, max_staleness: int = 2
) -> Took:
    """A run of `updates` updates with everything real but the engine and the learner."""
    rollout = RolloutConfig(mode=mode, groups=8, group_size=8, max_staleness=max_staleness)
    lags: list[float] = []
    trainer = TrainerConfig(steps=updates)
    learner = LearnerConfig(backend="simulated", simulated_step_s=step_s)
    store = Store.open(folder)
    engine = SimulatedEngine(store, episode_s)
    collector: Collector

    async def on_group(group: Group, started_s: float) -> None:
        await collector.add(group)

    tasks = Mixture({"": TaskSampler({"train": ["t"], "heldout": []}, seed=0)})
    limits = {"": EpisodeLimits(1, rollout.episode_timeout_s)}
    pool = WorkerPool([engine], rollout.groups * rollout.group_size)
    dispatcher = Dispatcher(rollout, limits, tasks, pool, on_group, lambda episode: None)
    collector = Collector(rollout, store, Grpo(), dispatcher.release)

    async def publish(version: int) -> Publication:
        engine.version = dispatcher.version = version
        return Publication()

    async def on_update(update: Update) -> None:
        ages = [update.version - 1 - one.oldest_version for one in update.batch.samples]
        lags.append(sum(ages) / len(ages))
        dispatcher.release(update.batch.groups)
        learned_s = update.stats.duration_s if update.stats else 0.0
        dispatcher.pace(collector.ready_groups, update.waited_s, learned_s)

    handle = ThreadLearner(SimulatedLearner(trainer, learner, "", 0, "cpu"))
    timeline = Timeline(folder)
    loop = TrainLoop(
        learner, handle, collector.batch, publish, on_update,
        KeptVersions(learner, folder / "checkpoints"), timeline,
    )  # fmt: skip
    numbers: Iterator[int] = count()
    collecting = asyncio.create_task(dispatcher.run(numbers))
    started_s = time.perf_counter()
    await loop.run(0, updates)
    wall_s = time.perf_counter() - started_s
    collecting.cancel()
    await asyncio.gather(collecting, return_exceptions=True)
    await store.close()
    timeline.close()
    late = lags[len(lags) // 2 :]
    return Took(wall_s, sum(late) / len(late))


def print_lags(updates: int, step_s: float) -> None:
    """A Markdown table over bounds and speeds of the engine."""
    print("| a batch takes the engine, of a step | max_staleness | wall time | lag, mean |")
    print("|---|---|---|---|")
    for episode_s in (step_s / 2, step_s, 2 * step_s):
        for bound in (0, 1, 2):
            with tempfile.TemporaryDirectory() as name:
                run = simulated("async", updates, step_s, Path(name), episode_s, bound)
                took = asyncio.run(run)
            share = f"{episode_s / step_s:g}"
            print(f"| {share} | {bound} | {took.wall_s:.1f} s | {took.lag:.2f} |", flush=True)


def real(mode: str, updates: int, folder: Path) -> float:
    """Seconds from the first update to the last of a run with the tiny policy."""
    subprocess.run(
        [
            sys.executable, "-m", "clawrl_gym.train", f"run.dir={folder}", f"rollout={mode}",
            f"trainer.steps={updates}", "eval.tasks=0", "ui=line",
        ],
        check=True,
    )  # fmt: skip
    rows: list[dict[str, Any]] = read_json_lines(folder / "metrics.jsonl")
    times_s: list[float] = [row["time_s"] for row in rows if "learner/loss" in row]
    return times_s[-1] - times_s[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["simulated", "real", "lag"])
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--step-s", type=float, default=1.0)
    arguments = parser.parse_args()
    if arguments.kind == "lag":
        print_lags(arguments.updates, arguments.step_s)
        return
    wall_s: dict[str, float] = {}
    for mode in ("sync", "async"):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if arguments.kind == "simulated":
                step_s = arguments.step_s
                run = simulated(mode, arguments.updates, step_s, folder, step_s)
                wall_s[mode] = asyncio.run(run).wall_s
            else:
                wall_s[mode] = real(mode, arguments.updates, folder / "run")
        print(f"{mode:>5}: {wall_s[mode]:.1f} s for {arguments.updates} updates")
    print(f"ratio async/sync: {wall_s['async'] / wall_s['sync']:.2f}")


if __name__ == "__main__":
    main()
