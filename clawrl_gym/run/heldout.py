"""A training run's held-out evaluations: before the first update, in between, after the last.

Those in between run beside training and hold nothing up. The policy gets new weights meanwhile, so
such a result says which versions it was measured on; the first and the last are of one version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from clawrl_gym.cluster.environments import Environments
from clawrl_gym.cluster.extra_evaluations import ExtraEvaluation, extra_metrics
from clawrl_gym.config import RunConfig
from clawrl_gym.core.metrics import best_heldout
from clawrl_gym.rollout.collection.mixture import Mixture
from clawrl_gym.rollout.episodes.floors import RewardFloors
from clawrl_gym.rollout.evaluation import Evaluation
from clawrl_gym.run.services import RunServices
from clawrl_gym.ui.text import reward_words
from clawrl_gym.ui.view import RunView


class HeldOut:
    """Measures while others train."""

    def __init__(
        self,
        config: RunConfig,
        tasks: Mixture,
        extra_evaluations: Sequence[ExtraEvaluation],
        environments: Environments,
        services: RunServices,
        view: RunView,
        on_evaluation: Callable[[int, Evaluation, range], None],
        floors: RewardFloors,
    ) -> None:
        """`on_evaluation` gets the updates before it, the result, and the versions measured.
        `floors`: of the run's rewards."""
        self._config = config
        self._tasks = tasks
        self._extra_evaluations = extra_evaluations
        self._environments = environments
        self._services = services
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
        for extra in self._extra_evaluations if step in self.evaluations else ():
            await self._measure_elsewhere(step, extra)

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
        best = best_heldout(self._services.metrics.history, steps)
        return {step for step in (best, self._measured_step) if step is not None}

    async def _evaluate_beside(self, step: int) -> None:
        await self._evaluate(step, self._config.eval.between_tasks)
        self._measured_step = None

    async def _evaluate(self, step: int, count: int, ks: Sequence[int] = ()) -> None:
        tasks = self._tasks.heldout(count if self._config.eval.tasks else 0)
        if not tasks:
            return
        policy = self._services.policy
        self._view.phase("held-out", f"{len(tasks)} tasks, after {step} updates")
        first_version = policy.version
        with self._services.timeline.span("collect", "held-out", step=step):
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

    async def _measure_elsewhere(self, step: int, extra: ExtraEvaluation) -> None:
        services = self._services
        self._view.phase("held-out", f"{len(extra.tasks)} tasks of env={extra.name}")
        with services.timeline.span("collect", "held-out", step=step, env=extra.name):
            result = await extra.evaluate(self._config, services.policy.address, services.cluster)
        self._view.phase("held-out", "ready")
        services.metrics.log(step, extra_metrics(extra.name, result))
        reward = reward_words(result.metrics())
        fields = [f"{result.success:.0%} of {result.n} solved", reward, result.warning]
        self._view.message(f"held-out of env={extra.name}: {'; '.join(filter(None, fields))}")
