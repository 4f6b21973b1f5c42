"""Everything that is checked before a command starts anything.

A run begins with its preflight and `dry_run=true` ends after it, so both refuse the same. All that
is wrong is said at once. Nothing is left written or running, and neither torch nor an engine nor
Ray is imported, but torch for a loss of one's own, which is tried on made-up tokens; sandboxes and
browsers are proved by starting one, an address for checkpoints by writing there, images are only
looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from clawrl_gym.cluster.envs import check_agent, check_env, key_of, settle
from clawrl_gym.cluster.extra_evaluations import ExtraEvaluation, extra_evaluations
from clawrl_gym.cluster.joining import membership
from clawrl_gym.config import (
    AgentConfig,
    CommandConfig,
    EnvConfig,
    EvaluateConfig,
    RunConfig,
    SandboxConfig,
    ServeConfig,
)
from clawrl_gym.core import loggers
from clawrl_gym.core.broken_tasks import broken_line
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.metrics import ALSO_PREFIX, HELDOUT_N, METRICS_FILE, by_step
from clawrl_gym.core.plugins import LOSSES
from clawrl_gym.core.processes.controls import control_words
from clawrl_gym.core.reach import silence
from clawrl_gym.core.types import TaskRef
from clawrl_gym.evaluation.record import check_folder, check_free
from clawrl_gym.evaluation.settings import settings_of
from clawrl_gym.gateway.admission.admission import check_key
from clawrl_gym.inference.models.resolve import resolve_model
from clawrl_gym.preflight.compiling import with_compiling
from clawrl_gym.preflight.contradictions import contradictions, idle_control, missing_hints
from clawrl_gym.preflight.demands import unmet, unseen_tools
from clawrl_gym.preflight.endpoint import endpoint_look
from clawrl_gym.preflight.judge import judge_problems
from clawrl_gym.preflight.learner_demands import unmet_by_learner
from clawrl_gym.preflight.model_plan import (
    ModelPlan,
    check_teacher,
    look_at_model,
    notes_of,
)
from clawrl_gym.preflight.problems import Problems
from clawrl_gym.preflight.workload import measured_episodes
from clawrl_gym.rollout.collection.curriculum import curriculum_of
from clawrl_gym.rollout.collection.mixture import Mixture
from clawrl_gym.rollout.collection.task_sampler import TaskSampler
from clawrl_gym.run_folder.folder import RunFolder, evaluation_folder, folder_of, serving_folder
from clawrl_gym.run_folder.remote_checkpoints import check_place
from clawrl_gym.serving.supervisor import listen
from clawrl_gym.trainers.algorithms.algorithm import build_algorithm
from clawrl_gym.trainers.objectives import checked_objectives

C = TypeVar("C", RunConfig, ServeConfig, EvaluateConfig)
Say = Callable[[str], None]


def quiet(line: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Preflight(Generic[C]):
    """A command that may start: what was made and found out on the way."""

    config: C
    """The configuration, with this machine's choices filled in."""
    folder: RunFolder
    model: ModelPlan | None = None
    """The model; None: a server elsewhere is measured, or served."""
    tasks: Mixture | None = None
    """Tasks of a training run."""
    heldout: Sequence[TaskRef] = ()
    """Tasks that are measured."""
    extra_evaluations: Sequence[ExtraEvaluation] = ()
    unprepared: Sequence[EnvConfig] = ()
    """Environments whose images are still to be made."""
    notes: Sequence[str] = ()
    """Notes worth knowing, which are not errors."""
    is_complete: bool = False
    """True for a resumed training that has nothing left to do."""


def preflight_training(config: RunConfig, say: Say = quiet) -> Preflight[RunConfig]:
    """Check all. Raises ConfigErrors with all that would keep `train` from running."""
    problems = Problems()
    folder = RunFolder(Path(config.resume)) if config.resume else folder_of(config)
    with problems.noted():
        config = settle(config, say)
    is_settled = not problems.lines
    with problems.noted():
        folder.check_resumable() if config.resume else folder.check_new()
    model = _learning_problems(problems, config, folder, config.rollout.group_size)
    with problems.noted():
        if config.gateway.port:
            listen(config.gateway).close()
    with problems.noted():
        _check_cluster(config)
    others: list[ExtraEvaluation] = []
    with problems.noted():
        others = extra_evaluations(config, say)
    envs = {name: domain.env for name, domain in config.domains.items()}
    able = model.abilities if model else None
    for name, domain in config.domains.items():
        problems.lines += unmet(config.policy, domain.env, domain.agent, able, key_of(name))
    for other in others:
        problems.lines += unmet(config.policy, other.config, other.agent(config), able)
    tasks = _mixture(problems, config) if is_settled else None
    own = [*envs.values()] if is_settled else []
    unprepared: list[EnvConfig] = []
    if not config.ray.is_joined:  # else each node is asked, once it is known
        unprepared = _unprepared(problems, [*own, *(other.config for other in others)], say)
    if tasks is None or problems.lines:
        raise problems.error()
    heldout = tasks.heldout(config.eval.tasks)
    notes = list(filter(None, [control_words(config.control)]))
    notes += [line for env in envs.values() for line in env.left_out()]
    notes += notes_of(config, model)
    notes += [line for env in envs.values() for line in unseen_tools(env, able)]
    measured = {task.env for task in heldout}
    for name, env in envs.items():
        if config.eval.tasks and name not in measured:
            notes.append(f"env={name or env.type} has no held-out tasks: nothing is measured")
    measured_beside = sum(len(other.tasks) for other in others)
    config = _compiling(config, model, notes, len(heldout), measured_beside)
    plan = Preflight(config, folder, model, tasks, heldout, others, unprepared, notes)
    if config.resume and _is_complete(plan):
        steps = config.trainer.steps
        notes.append(
            f"{folder.path} is complete: {steps} of {steps} updates, and measured; nothing is "
            f"started. To continue, set how many updates in all: trainer.steps={2 * steps}"
        )
        return replace(plan, is_complete=True)
    return plan


def _is_complete(plan: Preflight[RunConfig]) -> bool:
    """All updates were made, and all that is measured at the end was measured after the last."""
    config = plan.config
    rows = by_step(read_json_lines(plan.folder.path / METRICS_FILE))
    end = [name for row in rows if row["step"] == config.trainer.steps for name in row]
    expected = ["batch/samples"]
    if config.eval.ends and plan.heldout:
        expected.append(HELDOUT_N)
        expected += (f"{ALSO_PREFIX}{other.name}/n" for other in plan.extra_evaluations)
    return all(name in end for name in expected)


def preflight_serving(config: ServeConfig) -> Preflight[ServeConfig]:
    """Check all. Raises ConfigErrors with all that would keep `serve` from running."""
    problems = Problems()
    folder = serving_folder(config)
    with problems.noted():
        if config.resume and not folder.exists:
            folder.read_config(ServeConfig)
        folder.check_usable()
        if folder.exists:
            _check_same_model(config, folder)
    with problems.noted():
        _check_cluster(config)
    model = _learning_problems(problems, config, folder, None)
    with problems.noted():
        listen(config.gateway).close()
    problems.raise_if_any()
    notes = list(notes_of(config, model))
    config = _compiling(config, model, notes, 0)
    return Preflight(config, folder, model, notes=notes)


def preflight_evaluation(config: EvaluateConfig, say: Say = quiet) -> Preflight[EvaluateConfig]:
    """Check all. Raises ConfigErrors with all that would keep `evaluate` from running."""
    problems = Problems()
    with problems.noted():
        config = settle(config, say)
    is_settled = not problems.lines
    problems.lines += contradictions(config)
    folder = evaluation_folder(config)
    model = None
    if config.endpoint.base_url is None:
        model = look_at_model(problems, config, folder)
    else:
        problems.lines += silence("endpoint.base_url", config.endpoint.base_url)
    able = model.abilities if model else None
    problems.lines += unmet(config.policy, config.env, config.agent, able)
    sampler = None
    tasks: list[TaskRef] = []
    if is_settled:
        sampler = _environment(problems, config.env, config.agent, config.seed)
    if sampler is not None:
        with problems.noted():
            tasks = measured_tasks(config, sampler)
            folder = _begun_or_new(config, len(tasks), model)
    with problems.noted():
        folder.check_usable()
        check_free(folder.path)
    unprepared = _unprepared(problems, [config.env] if is_settled else [], say)
    if sampler is None or problems.lines:
        raise problems.error()
    endpoint_notes = endpoint_look(problems, config.endpoint)
    problems.raise_if_any()
    notes = [*config.env.left_out(), *endpoint_notes, *notes_of(config, model)]
    notes += unseen_tools(config.env, able)
    config = _compiling(config, model, notes, len(tasks))
    return Preflight(config, folder, model, None, tasks, unprepared=unprepared, notes=notes)


def _begun_or_new(config: EvaluateConfig, tasks: int, model: ModelPlan | None) -> RunFolder:
    """The evaluation's folder. Raises ConfigError when it holds something else."""
    if model is not None and model.folder is None:  # known once it is downloaded
        return evaluation_folder(config)
    settings = settings_of(config, tasks, model.folder if model else None)
    folder = evaluation_folder(config, settings)
    check_folder(folder.path, settings)
    return folder


def preflight_of_run(look: Callable[[C], Preflight[C]], config: C) -> Preflight[C]:
    """A run's own preflight: a model that is only on the hub is downloaded and looked at, too."""
    plan = look(config)
    if plan.model is not None and plan.model.folder is None:
        resolve_model(config.policy.model)
        plan = look(config)
    return plan


def measured_tasks(config: EvaluateConfig, sampler: TaskSampler) -> list[TaskRef]:
    """The tasks to measure. Raises ConfigError when there is none."""
    count = config.eval.tasks
    if config.split == "heldout":
        tasks = sampler.heldout(count)
    else:
        tasks = [sampler.train(number) for number in range(count if sampler.can_train else 0)]
    if not tasks:
        raise ConfigError(
            f"got no {config.split} task to measure, expected eval.tasks of at least 1 and an "
            "environment that has such tasks"
        )
    return tasks


def _learning_problems(
    problems: Problems, config: CommandConfig, folder: RunFolder, group_size: int | None
) -> ModelPlan | None:
    """Checks that training and serving share: model, judge, algorithm, loss, ports, logger."""
    problems.lines += contradictions(config)
    with problems.noted():
        problems.lines += unmet_by_learner(config)
    problems.lines += judge_problems(config.judges)
    with problems.noted():
        checked_objectives(config.trainer, config.learner)
        algorithm = build_algorithm(config.trainer, group_size)
        problems.lines += missing_hints(config, algorithm)
        problems.lines += idle_control(config, algorithm)
    with problems.noted():
        _check_loss(config)
    with problems.noted():
        check_key(config.gateway)
    with problems.noted():
        loggers.check_logger(config.logger)
    with problems.noted():
        check_place(config, folder)
    model = look_at_model(problems, config, folder)
    with problems.noted():
        check_teacher(config, model)
    return model


def _check_loss(config: CommandConfig) -> None:
    """Raise ConfigError where a loss of somebody's own does not work; ours do."""
    if config.trainer.loss.type not in LOSSES.builtin:
        from clawrl_gym.trainers.losses.loss_function import build_loss
        from clawrl_gym.trainers.losses.loss_trial import try_loss

        try_loss(build_loss(config.trainer.loss))


def _environment(
    problems: Problems, env: EnvConfig, agent: AgentConfig, seed: int, key: str = ""
) -> TaskSampler | None:
    """Check an environment: its tasks, its agent, and the servers that it asks; None when it has no
    tasks.

    `key`: what stands before its keys on the command line.
    """
    sampler: TaskSampler | None = None
    with problems.noted():
        sampler = TaskSampler.of(env, seed)
        env.check_sandbox()
    with problems.noted():
        check_agent(agent, env)
    sandbox = getattr(env, "sandbox", None)
    rootfs = sandbox.rootfs if isinstance(sandbox, SandboxConfig) else None
    if rootfs is not None and not Path(rootfs).is_dir():
        problems.lines.append(
            f"got {key}env.sandbox.rootfs={rootfs!r}, expected the folder of a root file system "
            "(there is no such folder)"
        )
    for name in ("user_base_url", "gateway_url"):
        address = getattr(env, name, None)
        if isinstance(address, str):
            problems.lines += silence(f"{key}env.{name}", address)
    return sampler


def _mixture(problems: Problems, config: RunConfig) -> Mixture | None:
    """The tasks of all environments; None when one has none."""
    samplers = {}
    for name, domain in config.domains.items():
        sampler = _environment(problems, domain.env, domain.agent, config.seed, key_of(name))
        if sampler is None:
            return None
        if not sampler.can_train:
            problems.lines.append(
                f"env={name or domain.env.type} holds no training task with these options: all are "
                "held out; expected others to train on (python -m clawrl_gym.evaluate measures "
                "these)"
                if not sampler.broken
                else f"env={name or domain.env.type} has no training task left: "
                f"{broken_line(sampler.broken)}"
            )
            return None
        samplers[name] = sampler
    weights = {name: domain.weight for name, domain in config.domains.items()}
    curricula = {}
    for name, sampler in samplers.items():
        domain, group_size = config.domains[name], config.rollout.group_size
        with problems.noted():
            curriculum = curriculum_of(
                domain.curriculum, domain.env, sampler, group_size, key_of(name)
            )
            if curriculum is not None:
                curricula[name] = curriculum
    return Mixture(samplers, weights, curricula)


def _unprepared(problems: Problems, envs: Iterable[EnvConfig], say: Say) -> list[EnvConfig]:
    """Start one episode of each, but where something has to be made first that takes long."""
    unprepared = []
    for env in envs:
        with problems.noted():
            if not check_env(env, say, patient=False):
                unprepared.append(env)
    return unprepared


def _compiling(
    config: C, model: ModelPlan | None, notes: list[str], heldout: int, others: int = 0
) -> C:
    """Decide `policy.enforce_eager`; the reason is added to the notes."""
    if model is None:
        return config
    measured = measured_episodes(config, heldout, others)
    config, why = with_compiling(config, model.device, measured)
    notes += [] if why is None else [why]
    return config


def _check_cluster(config: CommandConfig) -> None:
    if config.ray.is_joined:
        membership(config.ray)


def _check_same_model(config: ServeConfig, folder: RunFolder) -> None:
    stored = folder.read_config(ServeConfig)
    if stored.policy.model != config.policy.model:
        raise ConfigError(
            f"{folder.path} holds weights of {stored.policy.model!r}, got "
            f"policy.model={config.policy.model!r}: choose another folder (run.dir=PATH)"
        )
