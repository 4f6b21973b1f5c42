"""`evaluate`: a policy, ours or any server of the OpenAI API, measured on tasks."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from clawrl_gym.cluster.environments import Environments
from clawrl_gym.cluster.envs import check_env
from clawrl_gym.config import EvaluateConfig
from clawrl_gym.core.errors import ClawError, StoreError, first_of
from clawrl_gym.core.files.files import private_files, replace_text
from clawrl_gym.core.intervals import mean_of
from clawrl_gym.core.metrics import HELDOUT_HIGH, HELDOUT_LOW, HELDOUT_SUCCESS, heldout_values
from clawrl_gym.core.types import Episode
from clawrl_gym.evaluation.figures import EvaluationResult, data_of, read_result
from clawrl_gym.evaluation.page import PAGE_FILE, cost_words, rewards_of, write_evaluation_page
from clawrl_gym.evaluation.record import EPISODES_FILE, EvaluationRecord
from clawrl_gym.evaluation.settings import EVALUATION_FILE, settings_of
from clawrl_gym.preflight.preflight import Preflight, preflight_evaluation, preflight_of_run
from clawrl_gym.rollout.collection.pool import WorkerPool
from clawrl_gym.rollout.episodes.chat import PolicyAddress
from clawrl_gym.rollout.evaluation import Attempts, Evaluation, evaluate
from clawrl_gym.run.policy import OnPhase, ServedPolicy, quiet
from clawrl_gym.ui.text import estimate_words, in_words


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """An evaluation and where it was written."""

    evaluation: Evaluation
    folder: Path
    result: EvaluationResult
    """All that the folder holds, of earlier starts too."""

    @property
    def success(self) -> float:
        """Share of the measured tasks that were solved."""
        return self.evaluation.success

    def summary(self) -> str:
        """The figures in a few lines, with 95 % intervals: Wilson's, and over tasks of pass@k."""
        families = Counter(episode.family or "task" for episode in self.evaluation.episodes)
        solved = Counter(
            episode.family or "task" for episode in self.evaluation.episodes if episode.success
        )
        lines = [_share(name, solved[name], families[name]) for name in sorted(families)]
        evaluation = self.evaluation
        total = _share("all", sum(solved.values()), evaluation.n, len(evaluation.lost))
        lost = [f"  {reason}" for reason in evaluation.lost[:3]]
        if lost:
            lost.append(f"  the same command with run.dir={self.folder} runs the lost ones again")
        warning = [evaluation.warning] if evaluation.warning else []
        passes = list(_passes(evaluation.attempts)) if evaluation.attempts else []
        result = self.result
        rewards = [f"{name:<24} {estimate_words(own)}" for name, own in rewards_of(result)]
        if result.sampled_success.n:
            rewards.append(f"{'sampled success':<24} {in_words(result.sampled_success)}")
        answered = result.versions_in_words
        where = [
            *([answered] if answered else []),
            f"cost: {cost_words(result.cost)}",
            f"every episode: {self.folder / EVALUATION_FILE}",
            f"page: {self.folder / PAGE_FILE}",
        ]
        many = lines if len(lines) > 1 else []
        return "\n".join([*many, total, *rewards, *passes, *warning, *lost, *where])


async def evaluate_policy(config: EvaluateConfig, *, on_phase: OnPhase = quiet) -> EvaluationRun:
    """Measure as configured and write evaluation.json; serves `policy` unless an endpoint is given.

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
    """Measure, of a policy that is served already if `served` says where.

    What an earlier start graded in the same folder is kept. Raises PolicyError when the policy does
    not answer any more.
    """
    config, folder, tasks = plan.config, plan.folder, plan.heldout
    model = plan.model.folder if plan.model else None
    settings = settings_of(config, len(tasks), model)
    say = partial(on_phase, "evaluation")
    record = await asyncio.to_thread(EvaluationRecord.open, folder.path, settings, say)
    try:
        evaluation = await _measure(plan, record, on_phase, served)
    except ExceptionGroup as failures:
        first = first_of(failures)
        if isinstance(first, ClawError):
            raise first from None
        raise
    finally:
        record.close()
    result = replace(await asyncio.to_thread(read_result, folder.path), is_complete=True)
    await asyncio.to_thread(_write, result, evaluation, plan.notes)
    return EvaluationRun(evaluation, folder.path, result)


async def _measure(
    plan: Preflight[EvaluateConfig],
    record: EvaluationRecord,
    on_phase: OnPhase,
    served: PolicyAddress | None,
) -> Evaluation:
    """Measure the missing episodes; without any, no policy is started."""
    config, tasks, rollout = plan.config, plan.heldout, plan.config.rollout
    samples = config.eval.samples_per_task
    on_phase("evaluation", f"{len(tasks)} tasks of the split {config.split}")
    if record.has_all(tasks, samples):
        return await evaluate(
            list(tasks), WorkerPool(), {}, 0, ks=config.eval.k, samples=samples, ledger=record
        )
    async with AsyncExitStack() as stack:
        address = served or _endpoint(config)
        if address is None:
            policy = ServedPolicy(config, plan.folder.path, on_phase=on_phase)
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
        return await environments.evaluate(
            tasks,
            temperature=config.eval.temperature,
            ks=config.eval.k,
            samples=samples,
            ledger=record,
        )


def _share(name: str, solved: int, n: int, lost: int = 0) -> str:
    values = heldout_values(solved, n, lost)
    interval = f"{values[HELDOUT_LOW]:.0%} to {values[HELDOUT_HIGH]:.0%}"
    beside = f", {lost} lost" if lost else ""
    return f"{name:<24} {values[HELDOUT_SUCCESS]:5.0%}  ({interval}, n = {n}{beside})"


def _passes(attempts: Attempts) -> Iterator[str]:
    of = f"{attempts.samples} samples of each of {len(attempts.solved)} tasks"
    if attempts.lost:
        of += f", {attempts.lost} lost"
    for k in attempts.ks:
        estimate = mean_of(attempts.rates(k))
        if estimate.n:
            interval = f"{estimate.low:.0%} to {estimate.high:.0%}, {of}"
            yield f"{f'pass@{k}':<24} {estimate.value:5.0%}  ({interval})"


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


def _write(result: EvaluationResult, evaluation: Evaluation, notes: Sequence[str]) -> None:
    """evaluation.json, the page and its transcripts. Raises StoreError."""
    report = {
        **data_of(result),
        "metrics": evaluation.metrics(),
        "lost": list(evaluation.lost),
        "notes": list(notes),
        "episodes": [_plain(episode) for episode in evaluation.episodes],
    }
    try:
        write_evaluation_page(result)
        replace_text(result.folder / EVALUATION_FILE, json.dumps(report, indent=1) + "\n")
    except OSError as error:
        raise StoreError(
            f"cannot write to {result.folder}: {error}; every episode is in {EPISODES_FILE}: make "
            "room, and the same command writes the rest"
        ) from error


def _plain(episode: Episode) -> dict[str, object]:
    values = asdict(episode)
    del values["transcript"]
    return values
