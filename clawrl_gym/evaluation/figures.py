"""Results of an evaluation: shares with intervals, cost, and every task's own result.

Success is of greedy episodes, one a task, with Wilson's interval; pass@k is the mean over tasks of
the unbiased estimate from each task's samples, resampled over tasks. Tasks and samples that
infrastructure lost are in no share and stand beside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from clawrl_gym.config.part import leaf
from clawrl_gym.core.intervals import Estimate, mean_of, reward_of, share_of
from clawrl_gym.core.metrics import (
    HELDOUT_HIGH,
    HELDOUT_LOW,
    RewardKind,
    heldout_values,
    pass_at_k,
)
from clawrl_gym.core.types import Episode, TaskRef
from clawrl_gym.evaluation.record import Attempt, Key, each_attempt, key_of
from clawrl_gym.evaluation.settings import EVALUATION_FILE, Settings, read_settings
from clawrl_gym.rollout.episodes.floors import RewardFloors

_KEPT_SAMPLES = 4
"""Samples of a task, solved and failed ones each, whose transcripts are shown."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of attempts, including those that were lost."""

    attempts: int = 0
    answers: int = 0
    uncounted: int = 0
    """Answers whose tokens the server does not say; they are in no sum."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    """Sum over all attempts in seconds; many run at a time."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.attempts + other.attempts,
            self.answers + other.answers,
            self.uncounted + other.uncounted,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.seconds + other.seconds,
        )


def cost_of(attempt: Attempt) -> Cost:
    episode = attempt.episode
    answers = episode.transcript.answers if episode.transcript else []
    return Cost(
        1,
        len(answers),
        sum(answer.prompt_tokens is None for answer in answers),
        sum(answer.prompt_tokens or 0 for answer in answers),
        sum(answer.completion_tokens or 0 for answer in answers),
        episode.duration_s,
    )


@dataclass(slots=True)
class TaskResult:
    """One task: its greedy episode, its samples, and what they cost."""

    task: TaskRef
    greedy: Attempt | None = None
    samples: dict[int, Episode] = field(default_factory=dict)
    """The graded ones, without what was said."""
    shown: list[Attempt] = field(default_factory=list)
    """Some of the samples, with their transcripts."""
    lost: int = 0
    """Attempts that infrastructure ended."""
    why_lost: str | None = None
    """The last of these."""
    cost: Cost = Cost()
    versions: set[int] = field(default_factory=set)
    """Weight versions that answered, where the server says."""

    @property
    def key(self) -> Key:
        return key_of(self.task, None)

    @property
    def name(self) -> str:
        return self.task.id or f"seed {self.task.seed}"

    @property
    def family(self) -> str:
        known = [self.greedy, *self.shown]
        return next((one.episode.family for one in known if one and one.episode.family), "task")

    @property
    def solved(self) -> bool:
        """Whether the greedy episode solved it."""
        return self.greedy is not None and self.greedy.episode.success

    @property
    def solved_samples(self) -> int:
        return sum(episode.success for episode in self.samples.values())

    @property
    def graded(self) -> list[Episode]:
        """All episodes that count."""
        return [*([self.greedy.episode] if self.greedy else []), *self.samples.values()]

    def rewards(self, kind: RewardKind, floors: RewardFloors) -> list[float] | None:
        """Rewards of its episodes of a kind; None where they are not known."""
        greedy = [self.greedy.episode] if self.greedy else []
        settled = floors.settled(greedy if kind == "reward" else list(self.samples.values()))
        return (
            None if any(one.unplayed for one in settled) else [one.reward or 0.0 for one in settled]
        )

    def pass_at(self, k: int) -> float | None:
        """pass@k; None where fewer than k samples are left."""
        n = len(self.samples)
        return pass_at_k(n, self.solved_samples, k) if n >= k else None

    def add(self, attempt: Attempt) -> None:
        """Add an attempt; the later of two graded ones of the same sample counts."""
        self.cost += cost_of(attempt)
        answers = attempt.episode.transcript.answers if attempt.episode.transcript else []
        self.versions |= {answer.version for answer in answers if answer.version is not None}
        if not attempt.is_graded:
            self.lost += 1
            self.why_lost = attempt.episode.error or attempt.episode.stop_reason.value
        elif attempt.sample is None:
            self.greedy = attempt
        else:
            solved = attempt.episode.success
            self.samples[attempt.sample] = replace(attempt.episode, transcript=None)
            if sum(one.episode.success == solved for one in self.shown) < _KEPT_SAMPLES:
                self.shown.append(attempt)


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """An evaluation's folder, read."""

    folder: Path
    settings: Settings
    tasks: tuple[TaskResult, ...]
    """The tasks that were tried, by name."""
    is_complete: bool

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def env(self) -> str:
        return str(leaf(self.settings.config, "env.type"))

    @property
    def policy(self) -> str:
        """Name of the measured policy, for people."""
        config = self.settings.config
        url = leaf(config, "endpoint.base_url")
        if url is None:
            return str(leaf(config, "policy.model"))
        return f"{leaf(config, 'endpoint.model')} at {url}"

    @property
    def measured(self) -> list[TaskResult]:
        """Tasks with a greedy episode."""
        return [task for task in self.tasks if task.greedy is not None]

    @property
    def lost(self) -> list[TaskResult]:
        """Tasks whose greedy episode was tried and never ended."""
        return [task for task in self.tasks if task.greedy is None and task.lost]

    @property
    def waiting(self) -> int:
        """Episodes that were not tried yet, or lost."""
        graded = sum((task.greedy is not None) + len(task.samples) for task in self.tasks)
        return max(0, self.settings.episodes - graded)

    @property
    def cost(self) -> Cost:
        return sum((task.cost for task in self.tasks), Cost())

    @property
    def versions(self) -> list[int]:
        """Weight versions that answered; none where the server does not say."""
        return sorted(set().union(*(task.versions for task in self.tasks)))

    @property
    def versions_in_words(self) -> str:
        """Empty where the server does not say."""
        versions = self.versions
        if not versions:
            return ""
        if len(versions) == 1:
            return f"version {versions[0]} answered"
        return (
            f"{len(versions)} versions answered, {versions[0]} to {versions[-1]}: the policy "
            "learned while it was measured"
        )

    @property
    def samples(self) -> int:
        """Samples that each task was to have."""
        return self.settings.samples

    @property
    def success(self) -> Estimate:
        """Success, with lost tasks in its interval, from all failed to all solved."""
        return success_of(self.measured, len(self.lost))

    @property
    def ks(self) -> list[int]:
        """For which pass@k is shown: those of `eval.k`, and powers of two up to all samples."""
        wanted = leaf(self.settings.config, "eval.k")
        named = {int(k) for k in wanted} if isinstance(wanted, list) else set()
        powers = {1 << n for n in range(self.samples.bit_length())}
        return sorted(k for k in named | powers if k <= self.samples)

    def passes(self) -> dict[int, Estimate]:
        """pass@k by k."""
        return {k: estimate for k in self.ks if (estimate := pass_of(self.tasks, k)).n}

    def rewards(
        self, kind: RewardKind = "reward", floors: RewardFloors | None = None
    ) -> dict[Key, float]:
        """Mean reward of each task that has episodes of a kind; empty where it is not known.

        `floors`: of the evaluations that it is compared with, too.
        """
        floors = floors or floors_of([self])
        rewards = {task.key: task.rewards(kind, floors) for task in self.tasks}
        if any(own is None for own in rewards.values()):
            return {}
        return {key: sum(own) / len(own) for key, own in rewards.items() if own}

    @property
    def reward_is_success(self) -> bool:
        """Greedy episodes earned 1 where they solved their task, and 0 elsewhere."""
        greedy = [task.greedy.episode for task in self.measured if task.greedy]
        return all(one.reward == one.success for one in greedy)

    @property
    def reward(self) -> Estimate:
        """Mean reward of greedy episodes."""
        return reward_of(list(self.rewards().values()))

    @property
    def sampled_success(self) -> Estimate:
        """Share of samples that solved their task, the mean over tasks."""
        return mean_of(
            [task.solved_samples / len(task.samples) for task in self.tasks if task.samples]
        )

    @property
    def sampled_reward(self) -> Estimate:
        """Mean reward of samples, as the mean over tasks."""
        return reward_of(list(self.rewards("sampled_reward").values()))

    def families(self) -> dict[str, list[TaskResult]]:
        """The measured tasks by family."""
        names = sorted({task.family for task in self.measured})
        return {name: [task for task in self.measured if task.family == name] for name in names}

    def scores(self) -> dict[str, Estimate]:
        """Other scores of the environment, over the greedy episodes that have them."""
        own = [task.greedy.episode.scores for task in self.measured if task.greedy]
        names = sorted({name for one in own for name in one})
        return {name: mean_of([one[name] for one in own if name in one]) for name in names}


def floors_of(results: Sequence[EvaluationResult]) -> RewardFloors:
    """Reward floors from all episodes of evaluations of one environment."""
    floors = RewardFloors()
    floors.settled([one for result in results for task in result.tasks for one in task.graded])
    return floors


def success_of(tasks: Sequence[TaskResult], lost: int = 0) -> Estimate:
    """Success of tasks with a greedy episode."""
    estimate = share_of([task.solved for task in tasks])
    if not lost:
        return estimate
    values = heldout_values(sum(task.solved for task in tasks), len(tasks), lost)
    return Estimate(estimate.value, values[HELDOUT_LOW], values[HELDOUT_HIGH], len(tasks))


def pass_of(tasks: Iterable[TaskResult], k: int) -> Estimate:
    """pass@k over the tasks that have k samples."""
    return mean_of([rate for task in tasks if (rate := task.pass_at(k)) is not None])


def read_result(folder: Path) -> EvaluationResult:
    """Read an evaluation. Raises ConfigError where there is none, or it cannot be read."""
    settings = read_settings(folder)
    return EvaluationResult(
        folder, settings, tasks_of(each_attempt(folder)), (folder / EVALUATION_FILE).exists()
    )


def tasks_of(attempts: Iterable[Attempt]) -> tuple[TaskResult, ...]:
    """Every task that was tried, by name."""
    tasks: dict[Key, TaskResult] = {}
    for attempt in attempts:
        task = attempt.episode.task
        tasks.setdefault(key_of(task, None), TaskResult(task)).add(attempt)
    return tuple(sorted(tasks.values(), key=lambda result: (result.name, result.task.seed)))


def data_of(result: EvaluationResult) -> Mapping[str, object]:
    """The figures for programs."""
    cost, config = result.cost, result.settings.config
    return {
        "env": result.env,
        "split": leaf(config, "split"),
        "policy": leaf(config, "endpoint.base_url") or leaf(config, "policy.model"),
        "temperature": leaf(config, "eval.temperature"),
        "regraded_from": result.settings.regraded_from,
        "success": _estimate(result.success),
        "reward": _known(result.reward),
        "sampled_success": _known(result.sampled_success),
        "sampled_reward": _known(result.sampled_reward),
        "lost_tasks": len(result.lost),
        "versions": result.versions,
        "pass": {str(k): _estimate(estimate) for k, estimate in result.passes().items()},
        "families": {
            name: _estimate(success_of(tasks)) for name, tasks in result.families().items()
        },
        "cost": {
            "attempts": cost.attempts, "answers": cost.answers, "uncounted": cost.uncounted,
            "prompt_tokens": cost.prompt_tokens, "completion_tokens": cost.completion_tokens,
            "episode_seconds": round(cost.seconds, 1),
        },
    }  # fmt: skip


def _known(estimate: Estimate) -> dict[str, float | int | None] | None:
    """An estimate that there may be none of, or one without an interval."""
    if not estimate.n:
        return None
    names = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    values = {k: round(value, 6) if math.isfinite(value) else None for k, value in names.items()}
    return {**values, "n": estimate.n}


def _estimate(estimate: Estimate) -> dict[str, float | int]:
    names = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    return {**{name: round(value, 6) for name, value in names.items()}, "n": estimate.n}
