"""Choice of each group's environment and task: the tasks of a whole run.

Group number n is of the environment that is farthest behind its weight, so any run of groups holds
them in the proportion of their weights, to within one group. It is a function of n alone; which
task it is, its sampler says, or its curriculum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from clawrl_gym.core.broken_tasks import broken_line
from clawrl_gym.core.metrics import in_env
from clawrl_gym.core.types import TaskRef
from clawrl_gym.rollout.collection.curriculum import Curriculum, TaskOutcome, drawn_again
from clawrl_gym.rollout.collection.task_sampler import TaskSampler


class Mixture:
    """The samplers of a run's environments, by name; one alone is a mixture of one."""

    def __init__(
        self,
        samplers: Mapping[str, TaskSampler],
        weights: Mapping[str, float] | None = None,
        curricula: Mapping[str, Curriculum] | None = None,
    ) -> None:
        """`curricula`: of those whose tasks are not drawn equally often."""
        weights = weights or dict.fromkeys(samplers, 1.0)
        total = sum(weights.values())
        self._samplers = samplers
        self._shares = {name: weights[name] / total for name in samplers}
        self._drawn = dict.fromkeys(samplers, 0)
        self._curricula = curricula or {}
        self._begun: dict[int, str] = {}
        """Groups that were drawn and not accepted when an earlier process ended."""
        self._left_out: dict[str, str] = {}
        self._order: list[str] = []
        """The environment of each number so far."""

    def env_of(self, number: int) -> str:
        """The name of the environment that this group is of."""
        while len(self._order) <= number:
            due = len(self._order) + 1
            name = max(self._shares, key=lambda name: due * self._shares[name] - self._drawn[name])
            self._drawn[name] += 1
            self._order.append(name)
        return self._order[number]

    def train(self, number: int) -> TaskRef:
        """Training task `number` of this run."""
        env = self.env_of(number)
        sampler, curriculum = self._samplers[env], self._curricula.get(env)
        if curriculum is None:
            task = sampler.train(number)
        elif number in self._begun:
            task = drawn_again(number, self._begun[number], sampler)
        else:
            task = curriculum.choose(number, sampler)
        return replace(task, env=env)

    def saw(self, outcome: TaskOutcome) -> None:
        """A group was accepted, in this order."""
        curriculum = self._curricula.get(self.env_of(outcome.number))
        if curriculum is not None:
            curriculum.saw(outcome)

    def leave_out(self, task: TaskRef, reason: str) -> None:
        """Its verifier gives no verdict: it is not drawn again, and people are told."""
        sampler = self._samplers[task.env]
        if task.id is not None and task.id not in sampler.broken:
            sampler.leave_out(task.id, reason)
            self._left_out[task.id] = reason

    def restore(self, outcomes: Iterable[TaskOutcome], begun: Mapping[int, str]) -> None:
        """Know what an earlier process saw, and which groups it had begun."""
        for outcome in outcomes:
            self.saw(outcome)
        self._begun = dict(begun)

    def metrics(self) -> dict[str, float]:
        """`curriculum/*`, of each environment of a mixture for itself."""
        values: dict[str, float] = {}
        for env, curriculum in self._curricula.items():
            values |= in_env(env, curriculum.metrics()) if env else curriculum.metrics()
        return values

    @property
    def warnings(self) -> list[str]:
        """Warnings of the curricula, and tasks that are left out since the start."""
        told = {env: curriculum.warning for env, curriculum in self._curricula.items()}
        lines = [f"env={env}: {line}" if env else line for env, line in told.items() if line]
        return lines + [broken_line({name: why}) for name, why in self._left_out.items()]

    def heldout(self, count: int) -> list[TaskRef]:
        """The first `count` held-out tasks of each environment."""
        return [
            replace(task, env=env)
            for env, sampler in self._samplers.items()
            for task in sampler.heldout(count)
        ]
