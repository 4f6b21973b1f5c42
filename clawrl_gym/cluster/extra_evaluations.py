"""Held-out tasks of other environments than the run's own: what it learned, or forgot, elsewhere.

Their workers live as long as one evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawrl_gym.config import AgentConfig, EnvConfig, RunConfig
from clawrl_gym.core.metrics import ALSO_PREFIX, HELDOUT_SUCCESS
from clawrl_gym.core.types import TaskRef
from clawrl_gym.recipe.reply_form import spoken_like
from clawrl_gym.rollout.collection.task_sampler import TaskSampler
from clawrl_gym.rollout.episodes.chat import PolicyAddress
from clawrl_gym.rollout.evaluation import Evaluation

if TYPE_CHECKING:
    from clawrl_gym.cluster.cluster import Cluster


@dataclass(frozen=True, slots=True)
class ExtraEvaluation:
    """An environment that is only measured."""

    name: str
    """The option of conf/env/."""
    config: EnvConfig
    tasks: list[TaskRef]

    def agent(self, run: RunConfig) -> AgentConfig:
        """The environment's own, which speaks to the policy as the run's does."""
        return spoken_like(AgentConfig(), run.agent)

    async def evaluate(
        self, run: RunConfig, policy: PolicyAddress, cluster: Cluster | None = None
    ) -> Evaluation:
        """Every task once, with workers of its own."""
        from clawrl_gym.cluster.environments import Environments

        environments = Environments(
            self.config,
            policy,
            self.agent(run),
            slots=run.rollout.measured_slots,
            workers=1,
            timeout_s=run.rollout.episode_timeout_s,
            max_retries=run.rollout.max_retries,
            request_timeout_s=run.policy.request_timeout_s,
            growth_mb=run.rollout.growth_mb,
            cluster=cluster,
        )
        async with environments:
            return await environments.evaluate(self.tasks, temperature=run.eval.temperature)


def _unheard(_: str) -> None:
    """Say nothing: everything about the run's own environment was said before."""


def extra_evaluations(
    config: RunConfig, say: Callable[[str], None] = _unheard
) -> list[ExtraEvaluation]:
    """Environments of `eval.also`, without the run's own. Raises ConfigError for failures."""
    from clawrl_gym.config.compose import compose

    own = [domain.env for domain in config.domains.values()]
    environments: dict[str, ExtraEvaluation] = {}
    for name in config.eval.also if config.eval.tasks else ():
        env = compose("train", [*_search_path(config), f"env={name}"], RunConfig).env
        if env in own or env.settled(_unheard) in own:
            continue
        env = env.settled(say)
        for line in env.left_out():
            say(f"env={name}: {line}")
        tasks = TaskSampler.of(env, config.seed).heldout(config.eval.tasks)
        env.check_sandbox()
        environments[name] = ExtraEvaluation(name, env, tasks)
    return list(environments.values())


def extra_metrics(name: str, result: Evaluation) -> dict[str, float]:
    """An evaluation's metrics by the environment's name; its families are left out."""
    return {
        f"{ALSO_PREFIX}{name}/{metric.removeprefix('heldout/')}": value
        for metric, value in result.metrics().items()
        if not metric.startswith(HELDOUT_SUCCESS + "/")
    }


def _search_path(config: RunConfig) -> list[str]:
    return [argument for place in config.searchpath for argument in ("--config-dir", place)]
