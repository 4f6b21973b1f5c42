"""A training run's held-out evaluations: before the first update, in between, after the last.

Those in between run beside training and hold nothing up. The policy gets new weights meanwhile, so
such a result says which versions it was measured on; the first and the last are of one version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from clawrl_gym.cluster.environments import Environments
from clawrl_gym.cluster.others import OtherEnv, other_metrics
from clawrl_gym.config import RunConfig
from clawrl_gym.core.metrics import best_heldout
from clawrl_gym.rollout.evaluation import Evaluation
from clawrl_gym.rollout.floors import RewardFloors
from clawrl_gym.rollout.mixture import Mixture
from clawrl_gym.run.parts import RunParts
from clawrl_gym.ui.text import reward_words
from clawrl_gym.ui.view import RunView


class HeldOut:
    """Measures while others train."""

    def __init__(
        self,
        config: RunConfig,
        tasks: Mixture,
        other_envs: Sequence[OtherEnv],
        environments: Environments,
        parts: RunParts,
        view: RunView,
        on_evaluation: Callable[[int, Evaluation, range], None],
        floors: RewardFloors,
    ) -> None:
        """`on_evaluation` gets the updates before it, the result, and the versions measured.
        `floors`: of the run's rewards."""
        self._config = config
        self._tasks = tasks
        self._other_envs = other_envs
        self._environments = environments
        self._parts = parts
        self._view = view
        self._on_evaluation = on_evaluation
        self._floors = floors
        self._beside: asyncio.Task[None] | None = None
        self._measured_step: int | None = None
        """Step of the evaluation in between that is in progress."""
        self.evaluations: dict[int, Evaluation] = {}
        """Evaluations by the number of updates before each."""

    async def measure(self, step: int) -> None:
        """The first or the last: all tasks, samples of them, and other environments."""
        if self._beside is not None:
            await self._beside
        if not self._config.eval.ends:
            return
        await self._evaluate(step, self._config.eval.tasks, ks=self._config.eval.k)
        for other_env in self._other_envs if step in self.evaluations else ():
            await self._measure_elsewhere(step, other_env)

    def is_due(self, step: int) -> bool:
        """Whether one in between is due after so many updates."""
        every = self._config.eval.every
        return bool(every) and step % every == 0 and step < self._config.trainer.steps

    def begin_if_due(self, step: int, running: asyncio.TaskGroup) -> None:
        """Begin one in between, if one is due now; it continues in `running`."""
        if not self.is_due(step):
            return
        if self._measured_step is not None:
            self._view.message(
                f"no held-out evaluation after {step} updates: the one after "
                f"{self._measured_step} is still under way"
            )
            return
        self._measured_step = step
        self._beside = running.create_task(self._evaluate_beside(step))

    def kept(self, steps: Collection[int]) -> set[int]:
        """The `steps` whose weights did best, or may prove to."""
        best = best_heldout(self._parts.metrics.history, steps)
        return {step for step in (best, self._measured_step) if step is not None}

    async def _evaluate_beside(self, step: int) -> None:
        await self._evaluate(step, self._config.eval.between_tasks)
        self._measured_step = None

    async def _evaluate(self, step: int, count: int, ks: Sequence[int] = ()) -> None:
        tasks = self._tasks.heldout(count if self._config.eval.tasks else 0)
        if not tasks:
            return
        policy = self._parts.policy
        self._view.phase("held-out", f"{len(tasks)} tasks, after {step} updates")
        first_version = policy.version
        with self._parts.timeline.span("collect", "held-out", step=step):
            result = await self._environments.evaluate(
                tasks,
                temperature=self._config.eval.temperature,
                ks=ks,
                samples=self._config.eval.samples_with(ks),
                floors=self._floors,
            )
        self._view.phase("held-out", "ready")
        for task, reason in result.broken:
            self._tasks.leave_out(task, reason)
        self.evaluations[step] = result
        self._on_evaluation(step, result, range(first_version, policy.version + 1))

    async def _measure_elsewhere(self, step: int, other_env: OtherEnv) -> None:
        parts = self._parts
        self._view.phase("held-out", f"{len(other_env.tasks)} tasks of env={other_env.name}")
        with parts.timeline.span("collect", "held-out", step=step, env=other_env.name):
            result = await other_env.evaluate(self._config, parts.policy.address, parts.cluster)
        self._view.phase("held-out", "ready")
        parts.metrics.log(step, other_metrics(other_env.name, result))
        reward = reward_words(result.metrics())
        fields = [f"{result.success:.0%} of {result.n} solved", reward, result.warning]
        self._view.message(f"held-out of env={other_env.name}: {'; '.join(filter(None, fields))}")
