"""`evaluate`: a policy, ours or any server of the OpenAI API, measured on tasks."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from clawrl_gym.config import EvaluateConfig
from clawrl_gym.core.files import private_files
from clawrl_gym.core.metrics import HELDOUT_HIGH, HELDOUT_LOW, HELDOUT_SUCCESS, heldout_values
from clawrl_gym.rollout.chat import PolicyAddress
from clawrl_gym.rollout.evaluation import Attempts, Evaluation
from clawrl_gym.run.environments import Environments
from clawrl_gym.run.envs import check_env
from clawrl_gym.run.policy import OnPhase, ServedPolicy, quiet
from clawrl_gym.run.preflight import Preflight, preflight_evaluation, preflight_of_run
from clawrl_gym.ui.text import pass_rates

EVALUATION_FILE = "evaluation.json"


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """An evaluation and where it was written."""

    evaluation: Evaluation
    folder: Path

    @property
    def success(self) -> float:
        """Share of the measured tasks that were solved."""
        return self.evaluation.success

    def summary(self) -> str:
        """The figures in a few lines, with 95 % intervals (Wilson)."""
        families = Counter(episode.family or "task" for episode in self.evaluation.episodes)
        solved = Counter(
            episode.family or "task" for episode in self.evaluation.episodes if episode.success
        )
        lines = [_share(name, solved[name], families[name]) for name in sorted(families)]
        evaluation = self.evaluation
        total = _share("all", sum(solved.values()), evaluation.n, len(evaluation.lost))
        lost = [f"  {reason}" for reason in evaluation.lost[:3]]
        warning = [evaluation.warning] if evaluation.warning else []
        attempts = evaluation.attempts
        passes = [_passes(attempts)] if attempts else []
        where = f"every episode: {self.folder / EVALUATION_FILE}"
        many = lines if len(lines) > 1 else []
        return "\n".join([*many, total, *passes, *warning, *lost, where])


async def evaluate_policy(config: EvaluateConfig, *, on_phase: OnPhase = quiet) -> EvaluationRun:
    """Measure as configured and write evaluation.json; starts vLLM unless an endpoint is given.

    Raises ConfigError for what cannot be measured, EnvError when most tasks were lost.
    """
    plan = await prepare_evaluation(config, on_phase)
    with private_files():
        return await evaluate_prepared(plan, on_phase)


async def prepare_evaluation(
    config: EvaluateConfig, on_phase: OnPhase = quiet
) -> Preflight[EvaluateConfig]:
    """Look whether it can be measured, and make what its environment needs. Raises ConfigError."""
    on_phase("environments", "preparing")
    say = partial(on_phase, "environments")
    look = partial(preflight_evaluation, say=say)
    plan = await asyncio.to_thread(preflight_of_run, look, config)
    for env in plan.unprepared:
        await asyncio.to_thread(check_env, env, say)
    for note in plan.notes:
        say(note)
    return plan


async def evaluate_prepared(
    plan: Preflight[EvaluateConfig],
    on_phase: OnPhase = quiet,
    served: PolicyAddress | None = None,
) -> EvaluationRun:
    """Measure, of a policy that is served already if `served` says where."""
    config, folder, tasks = plan.config, plan.folder, plan.heldout
    folder.path.mkdir(parents=True, exist_ok=True)
    rollout = config.rollout
    async with AsyncExitStack() as stack:
        address = served or _endpoint(config)
        if address is None:
            policy = ServedPolicy(config, folder.path, on_phase=on_phase)
            address = (await stack.enter_async_context(policy)).address
        environments = Environments(
            config.env,
            address,
            config.agent,
            slots=rollout.measured_slots,
            timeout_s=rollout.episode_timeout_s,
            max_retries=rollout.max_retries,
            request_timeout_s=config.policy.request_timeout_s,
            growth_mb=config.rollout.growth_mb,
        )
        await stack.enter_async_context(environments)
        on_phase("evaluation", f"{len(tasks)} tasks of the split {config.split}")
        evaluation = await environments.evaluate(
            tasks,
            temperature=config.eval.temperature,
            ks=config.eval.k,
            samples=config.eval.samples_per_task,
        )
    _write(folder.path / EVALUATION_FILE, config, evaluation, plan.notes)
    return EvaluationRun(evaluation, folder.path)


def _share(name: str, solved: int, n: int, lost: int = 0) -> str:
    values = heldout_values(solved, n, lost)
    interval = f"{values[HELDOUT_LOW]:.0%} to {values[HELDOUT_HIGH]:.0%}"
    beside = f", {lost} lost" if lost else ""
    return f"{name:<24} {values[HELDOUT_SUCCESS]:5.0%}  ({interval}, n = {n}{beside})"


def _passes(attempts: Attempts) -> str:
    of = f"{attempts.samples} samples of each of {len(attempts.solved)} tasks"
    return f"{pass_rates(attempts.metrics())}  ({of}, at the policy's own temperature)"


def _endpoint(config: EvaluateConfig) -> PolicyAddress | None:
    endpoint = config.endpoint
    if endpoint.base_url is None:
        return None
    return PolicyAddress(
        endpoint.base_url,
        endpoint.key,
        endpoint.model,
        is_gateway=False,
        max_tokens=endpoint.max_tokens,
        patience_s=endpoint.patience_s,
    )


def _write(
    path: Path, config: EvaluateConfig, evaluation: Evaluation, notes: Sequence[str]
) -> None:
    report = {
        "env": config.env.type,
        "split": config.split,
        "policy": config.endpoint.base_url or config.policy.model,
        "temperature": config.eval.temperature,
        "metrics": evaluation.metrics(),
        "lost": list(evaluation.lost),
        "notes": list(notes),
        "episodes": [asdict(episode) for episode in evaluation.episodes],
    }
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
