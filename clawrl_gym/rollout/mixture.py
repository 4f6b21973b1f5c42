"""Which environment a group is of, and which of its tasks: the tasks of a whole run.

Group number n is of the environment that is farthest behind its weight, so any run of groups holds
them in the proportion of their weights, to within one group. It is a function of n alone; which
task it is, is the environment's sampler's to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from clawrl_gym.core.types import TaskRef
from clawrl_gym.rollout.task_sampler import TaskSampler


class Mixture:
    """The samplers of a run's environments, by name; one alone is a mixture of one."""

    def __init__(
        self, samplers: Mapping[str, TaskSampler], weights: Mapping[str, float] | None = None
    ) -> None:
        weights = weights or dict.fromkeys(samplers, 1.0)
        total = sum(weights.values())
        self._samplers = samplers
        self._shares = {name: weights[name] / total for name in samplers}
        self._drawn = dict.fromkeys(samplers, 0)
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
        return replace(self._samplers[env].train(number), env=env)

    def heldout(self, count: int) -> list[TaskRef]:
        """The first `count` held-out tasks of each environment."""
        return [
            replace(task, env=env)
            for env, sampler in self._samplers.items()
            for task in sampler.heldout(count)
        ]
