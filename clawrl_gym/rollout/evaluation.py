"""Held-out evaluation: the same workers, gateway and rollout loop, greedy, one episode a task.

Beside it pass@k, and success and reward of episodes at the policy's own temperature.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol
from uuid import uuid4

from clawrl_gym.core.errors import EnvError
from clawrl_gym.core.intervals import Estimate, interval_values, mean_of, reward_of
from clawrl_gym.core.metrics import (
    HELDOUT_DEADLINES,
    HELDOUT_REWARD,
    HELDOUT_SAMPLES,
    HELDOUT_SAMPLES_LOST,
    HELDOUT_SUCCESS,
    PASS_PREFIX,
    SAMPLED_REWARD,
    SAMPLED_SUCCESS,
    heldout_values,
    in_env,
    mean_scores,
    pass_at_k,
)
from clawrl_gym.core.types import Episode, StopReason, TaskRef
from clawrl_gym.rollout.collection.pool import WorkerPool
from clawrl_gym.rollout.episodes.episode import EpisodeSpec, Limits
from clawrl_gym.rollout.episodes.floors import RewardFloors

_MANY = 0.05
"""Share of lost tasks that is a warning."""


class Ledger(Protocol):
    """Knows what was graded before, and hears of every end at once."""

    def graded(self, task: TaskRef, sample: int | None) -> Episode | None:
        """The episode of a task that needs not be run again; `sample` is None of the greedy one."""
        ...

    def ended(self, sample: int | None, episode: Episode) -> None:
        """An attempt, its transcript with it; what it raises ends the evaluation."""
        ...


@dataclass(frozen=True, slots=True)
class Attempts:
    """Several episodes of each task at the policy's own temperature."""

    solved: tuple[tuple[int, int], ...]
    """Number of graded and of solved episodes of each task."""
    samples: int
    """Episodes that each task was to have."""
    ks: tuple[int, ...]
    rewards: Mapping[str, float] = field(default_factory=dict)
    """Mean reward of each task, by its name; empty where it is not known."""

    @property
    def lost(self) -> int:
        """Episodes that infrastructure never let end."""
        return self.samples * len(self.solved) - sum(n for n, _ in self.solved)

    def rates(self, k: int) -> list[float]:
        """pass@k of each task; one that has fewer than k episodes left is not in it."""
        return [pass_at_k(n, solved, k) for n, solved in self.solved if n >= k]

    @property
    def success(self) -> Estimate:
        """Share of episodes that solved their task, the mean over tasks."""
        return mean_of([solved / n for n, solved in self.solved if n])

    @property
    def reward(self) -> Estimate:
        """Mean over tasks."""
        return reward_of(list(self.rewards.values()))

    def metrics(self) -> dict[str, float]:
        """pass@k, success and reward, each the mean over tasks."""
        values = {HELDOUT_SAMPLES: float(self.samples), HELDOUT_SAMPLES_LOST: float(self.lost)}
        for k in self.ks:
            if rates := self.rates(k):
                values[f"{PASS_PREFIX}{k}"] = sum(rates) / len(rates)
        values |= interval_values(SAMPLED_SUCCESS, self.success)
        return values | interval_values(SAMPLED_REWARD, self.reward)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Success on held-out tasks."""

    episodes: list[Episode]
    lost: tuple[str, ...] = ()
    """Reasons of tasks that infrastructure never let end: they are not measured."""
    attempts: Attempts | None = None
    """For pass@k, where that was wanted."""
    broken: tuple[tuple[TaskRef, str], ...] = ()
    """Lost tasks whose verifiers give no verdict at all, each with the reason."""

    @property
    def n(self) -> int:
        """Tasks that were measured; those that are lost stand beside."""
        return len(self.episodes)

    @property
    def success(self) -> float:
        """Share of the measured tasks that were solved."""
        return self._solved / max(1, self.n)

    @property
    def solved_by_task(self) -> dict[str, bool]:
        """Whether each measured task was solved, by a name that is the same in each evaluation."""
        return {name_of_task(e.task): e.success for e in self.episodes}

    @property
    def reward_by_task(self) -> dict[str, float]:
        """Reward of each measured task, by the same names; empty where it is not known."""
        if any(episode.unplayed for episode in self.episodes):
            return {}
        return {name_of_task(e.task): e.reward or 0.0 for e in self.episodes}

    @property
    def reward(self) -> Estimate:
        """Mean reward of the measured tasks; of none where it is not known: an episode left steps
        unplayed before any showed what an episode may cost."""
        return reward_of(list(self.reward_by_task.values()))

    @property
    def deadlines(self) -> int:
        """Tasks that the agent had not ended in time: failures."""
        return sum(episode.stop_reason is StopReason.DEADLINE for episode in self.episodes)

    @property
    def warning(self) -> str | None:
        """A warning that the figures are doubtful; None without one."""
        lost, deadlines = len(self.lost), self.deadlines
        tasks = self.n + lost
        if lost > _MANY * tasks:
            return (
                f"WARNING: {lost} of {tasks} tasks were lost to infrastructure, so success lies "
                f"between {self._solved / tasks:.0%} and {(self._solved + lost) / tasks:.0%}; the "
                f"first: {self.lost[0]}"
            )
        if deadlines > _MANY * self.n:
            return (
                f"WARNING: {deadlines} of {self.n} tasks ran into the deadline and count as "
                "failed; if it is this machine that is slow, raise rollout.episode_timeout_s"
            )
        return f"{lost} of {tasks} tasks lost: {self.lost[0]}" if lost else None

    def metrics(self) -> dict[str, float]:
        """heldout/* as in metrics.jsonl, by family too; with what the environment scored. Of a
        mixture also env/NAME/heldout/*, of the tasks that were measured."""
        values = self._of_all()
        for family in sorted({episode.kind or "task" for episode in self.episodes}):
            own = [e.success for e in self.episodes if (e.kind or "task") == family]
            values[f"{HELDOUT_SUCCESS}/{family}"] = sum(own) / len(own)
        values |= self.attempts.metrics() if self.attempts else {}
        for env, alone in self.by_env().items():
            values |= in_env(env, alone._of_all())
        return values

    def by_env(self) -> dict[str, Evaluation]:
        """Results of each environment of a mixture, by name; empty without one."""
        envs = dict.fromkeys(episode.task.env for episode in self.episodes)
        return {
            env: Evaluation([episode for episode in self.episodes if episode.task.env == env])
            for env in envs
            if env
        }

    def _of_all(self) -> dict[str, float]:
        values = heldout_values(self._solved, self.n, len(self.lost))
        if self.deadlines:
            values[HELDOUT_DEADLINES] = float(self.deadlines)
        values |= interval_values(HELDOUT_REWARD, self.reward)
        return values | mean_scores([episode.scores for episode in self.episodes], "heldout")

    @property
    def _solved(self) -> int:
        return sum(episode.success for episode in self.episodes)


async def evaluate(
    tasks: list[TaskRef],
    pool: WorkerPool,
    limits: Limits,
    max_retries: int,
    temperature: float | None = 0.0,
    ks: Sequence[int] = (),
    samples: int = 0,
    ledger: Ledger | None = None,
    floors: RewardFloors | None = None,
) -> Evaluation:
    """Run each task once; one that cannot be run in `max_retries` more attempts is lost.

    It is run `samples` times more at the policy's own temperature, for pass@k with each of `ks`.
    What the ledger has is not run again. `floors`: what rewards the run has seen before; None:
    none. Raises EnvError when most are lost: then it measures nothing.
    """

    broken: dict[TaskRef, str] = {}

    async def one(task: TaskRef, sample: int | None) -> Episode | str:
        known = None if ledger is None else ledger.graded(task, sample)
        if known is not None:
            return known
        for _ in range(max_retries + 1):
            spec = EpisodeSpec(
                session_id=f"{'heldout' if sample is None else 'sampled'}-{uuid4().hex[:12]}",
                group_id=None,
                task=task,
                max_turns=limits[task.env].max_turns,
                timeout_s=limits[task.env].timeout_s,
                temperature=temperature if sample is None else None,
                keeps_transcript=ledger is not None,
            )
            episode = await pool.run(spec)
            if ledger is not None:
                ledger.ended(sample, episode)
                episode = replace(episode, transcript=None)  # the ledger has it
            if not episode.stop_reason.is_infrastructure:
                return episode
            if not episode.may_be_run_again:
                broken[task] = str(episode.error)
                return str(episode.error)
        return (
            f"held-out task {task.id or task.seed!r} could not be run in "
            f"{max_retries + 1} attempts: {episode.error}"
        )

    async with asyncio.TaskGroup() as running:
        started = [running.create_task(one(task, None)) for task in tasks]
        sampled_G = [
            [running.create_task(one(task, number)) for number in range(samples)] for task in tasks
        ]
    ended = [task.result() for task in started]
    lost = tuple(one for one in ended if isinstance(one, str))
    if len(lost) > len(tasks) / 2:
        raise EnvError(
            f"{len(lost)} of {len(tasks)} held-out tasks were lost; the first: {lost[0]}"
        )
    greedy = [one for one in ended if isinstance(one, Episode)]
    played = [attempt.result() for own in sampled_G for attempt in own]
    sampled = [episode for episode in played if isinstance(episode, Episode)]
    settled = (floors or RewardFloors()).settled([*greedy, *sampled])
    attempts = _attempts(tasks, settled[len(greedy) :], samples, ks) if samples else None
    return Evaluation(settled[: len(greedy)], lost, attempts, tuple(broken.items()))


def name_of_task(task: TaskRef) -> str:
    """A task's name in every evaluation of a run, and of other runs of the same tasks."""
    return f"{task.env}:{task.id or ''}#{task.seed}"


def _attempts(
    tasks: Sequence[TaskRef], episodes: Sequence[Episode], samples: int, ks: Sequence[int]
) -> Attempts:
    """The graded episodes of each task."""
    own: dict[TaskRef, list[Episode]] = {task: [] for task in tasks}
    for episode in episodes:
        own[episode.task].append(episode)
    solved = tuple((len(each), sum(e.success for e in each)) for each in own.values())
    is_known = not any(episode.unplayed for episode in episodes)
    rewards = {
        name_of_task(task): sum(e.reward or 0.0 for e in each) / len(each)
        for task, each in own.items()
        if each and is_known
    }
    return Attempts(solved, samples, tuple(ks), rewards)
