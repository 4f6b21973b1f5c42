"""Held-out evaluation: the same workers, gateway and rollout loop, greedy, one episode a task."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from uuid import uuid4

from clawrl_gym.core.errors import EnvError
from clawrl_gym.core.metrics import heldout_values, mean_scores
from clawrl_gym.core.types import Episode, TaskRef
from clawrl_gym.rollout.episode import EpisodeSpec
from clawrl_gym.rollout.pool import WorkerPool


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Success on held-out tasks."""

    episodes: list[Episode]
    lost: tuple[str, ...] = ()
    """What became of tasks that infrastructure never let end: measured by nobody, so left out."""

    @property
    def n(self) -> int:
        return len(self.episodes)

    @property
    def success(self) -> float:
        """Share of tasks solved."""
        return sum(episode.success for episode in self.episodes) / max(1, self.n)

    def metrics(self) -> dict[str, float]:
        """heldout/* as in metrics.jsonl, by family too; with what the environment scored."""
        values = heldout_values(sum(episode.success for episode in self.episodes), self.n)
        for family in sorted({episode.family or "task" for episode in self.episodes}):
            own = [e.success for e in self.episodes if (e.family or "task") == family]
            values[f"heldout/success/{family}"] = sum(own) / len(own)
        if self.lost:
            values["heldout/lost"] = float(len(self.lost))
        return values | mean_scores([episode.scores for episode in self.episodes], "heldout")


async def evaluate(
    tasks: list[TaskRef],
    pool: WorkerPool,
    max_turns: int,
    timeout_s: float,
    max_retries: int,
    temperature: float = 0.0,
) -> Evaluation:
    """Run each task once; one that cannot be run in `max_retries` more attempts is lost.

    Raises EnvError when most are lost: then it is no measure of the policy.
    """

    async def one(task: TaskRef) -> Episode | str:
        for _ in range(max_retries + 1):
            spec = EpisodeSpec(
                session_id=f"heldout-{uuid4().hex[:12]}",
                group_id=None,
                task=task,
                max_turns=max_turns,
                timeout_s=timeout_s,
                temperature=temperature,
            )
            episode = await pool.run(spec)
            if not episode.stop_reason.is_infrastructure:
                return episode
        return (
            f"held-out task {task.id or task.seed!r} could not be run in "
            f"{max_retries + 1} attempts: {episode.error}"
        )

    async with asyncio.TaskGroup() as running:
        started = [running.create_task(one(task)) for task in tasks]
    ended = [task.result() for task in started]
    lost = tuple(one for one in ended if isinstance(one, str))
    if len(lost) > len(tasks) / 2:
        raise EnvError(
            f"{len(lost)} of {len(tasks)} held-out tasks were lost; the first: {lost[0]}"
        )
    return Evaluation([one for one in ended if isinstance(one, Episode)], lost)
