"""Everything that is checked before a command starts anything.

A run begins with its preflight and `dry_run=true` ends after it, so both refuse the same. All that
is wrong is said at once. Nothing is written or left running, and neither torch nor vLLM nor Ray is
imported; sandboxes and browsers are proved by starting one, images are only looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from clawrl_gym.config import CommandConfig, EvaluateConfig, RunConfig, ServeConfig
from clawrl_gym.core import loggers, provenance
from clawrl_gym.core.errors import ClawError, ConfigError, ConfigErrors
from clawrl_gym.core.reach import why_unreachable
from clawrl_gym.core.types import TaskRef
from clawrl_gym.gateway.admission import check_key
from clawrl_gym.policy.launch import reserve_port
from clawrl_gym.policy.models import Device, find_model, resolve_device, sees
from clawrl_gym.policy.servable import ModelSize, model_problems, model_size, setting_problems
from clawrl_gym.rollout.task_sampler import TaskSampler
from clawrl_gym.run.contradictions import contradictions, missing_hints
from clawrl_gym.run.envs import check_agent, check_env
from clawrl_gym.run.folder import RunFolder, folder_of
from clawrl_gym.run.judge import check_judge
from clawrl_gym.run.needs import Needs, disk_problems, gpu_memory_gib, memory_problems, needs_of
from clawrl_gym.run.others import OtherEnv, other_envs
from clawrl_gym.run.supervisor import listen
from clawrl_gym.trainers.algorithm import build_algorithm
from clawrl_gym.trainers.objectives import check_objectives

C = TypeVar("C", RunConfig, ServeConfig, EvaluateConfig)
Say = Callable[[str], None]


def quiet(line: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """The model that a run would load, and what it takes of this machine."""

    device: Device
    folder: Path | None
    """None: it is to be downloaded, and nothing more is known of it."""
    size: ModelSize | None = None
    needs: Needs | None = None


@dataclass(frozen=True, slots=True)
class Preflight(Generic[C]):
    """A command that may start: what was made and found out on the way."""

    config: C
    folder: RunFolder
    model: ModelPlan | None = None
    """None: a server elsewhere is measured."""
    sampler: TaskSampler | None = None
    heldout: Sequence[TaskRef] = ()
    """Tasks that are measured."""
    other_envs: Sequence[OtherEnv] = ()
    notes: Sequence[str] = ()
    """What is no mistake and worth knowing."""


def preflight_training(config: RunConfig, say: Say = quiet) -> Preflight[RunConfig]:
    """Raises ConfigErrors with all that would keep `train` from running."""
    problems = Problems()
    folder = RunFolder(Path(config.resume)) if config.resume else folder_of(config)
    with problems.noted():
        folder.check_resumable() if config.resume else folder.check_new()
    model = _learning_problems(problems, config, folder, config.rollout.group_size)
    with problems.noted():
        if config.gateway.port:
            listen(config.gateway).close()
    sampler = _environment(problems, config, say)
    others: list[OtherEnv] = []
    with problems.noted():
        others = other_envs(config)
        for other in others:
            check_env(other.config, say, patient=False)
    if sampler is None or problems.lines:
        raise problems.error()
    heldout = sampler.heldout(config.eval.tasks)
    notes = _notes_of(model)
    if config.eval.tasks and not heldout:
        notes.append(f"env={config.env.type} holds no task back: nothing is measured")
    return Preflight(config, folder, model, sampler, heldout, others, notes)


def preflight_serving(config: ServeConfig, *, port: bool = True) -> Preflight[ServeConfig]:
    """Raises ConfigErrors with all that would keep `serve` from running.

    `port`: whether the gateway's port has to be free; not where the caller listens on it already.
    """
    problems = Problems()
    folder = serving_folder(config)
    with problems.noted():
        folder.check_usable()
        if folder.exists:
            _check_same_model(config, folder)
    model = _learning_problems(problems, config, folder, None)
    with problems.noted():
        if port:
            listen(config.gateway).close()
    problems.raise_if_any()
    return Preflight(config, folder, model, notes=_notes_of(model))


def preflight_evaluation(config: EvaluateConfig, say: Say = quiet) -> Preflight[EvaluateConfig]:
    """Raises ConfigErrors with all that would keep `evaluate` from running."""
    problems = Problems()
    problems.lines += contradictions(config)
    folder = _evaluation_folder(config)
    with problems.noted():
        folder.check_usable()
    model = None
    if config.endpoint.base_url is None:
        model = _model_problems(problems, config, folder)
    else:
        problems.lines += _reach("endpoint.base_url", config.endpoint.base_url)
    sampler = _environment(problems, config, say)
    if sampler is None or problems.lines:
        raise problems.error()
    tasks = measured_tasks(config, sampler)
    return Preflight(config, folder, model, sampler, tasks, notes=_notes_of(model))


def measured_tasks(config: EvaluateConfig, sampler: TaskSampler) -> list[TaskRef]:
    """Raises ConfigError when there is none."""
    count = config.eval.tasks
    if config.split == "heldout":
        tasks = sampler.heldout(count)
    else:
        tasks = [sampler.train(number) for number in range(count)]
    if not tasks:
        raise ConfigError(
            f"got no {config.split} task to measure, expected eval.tasks of at least 1 and an "
            "environment that has such tasks"
        )
    return tasks


def serving_folder(config: ServeConfig) -> RunFolder:
    """Where serving goes on. Raises ConfigError when nothing says."""
    if config.run.dir is None:
        raise ConfigError("got no run.dir, expected the folder that serving goes on in")
    return RunFolder(Path(config.run.dir))


@dataclass(slots=True)
class Problems:
    """All that is wrong, in the order in which it was found."""

    lines: list[str] = field(default_factory=list)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """An error of the block is one more problem, and what comes after the block is looked at."""
        try:
            yield
        except ConfigErrors as errors:
            self.lines += errors.lines
        except ClawError as error:
            self.lines.append(str(error))

    def error(self) -> ConfigErrors:
        return ConfigErrors(dict.fromkeys(self.lines))

    def raise_if_any(self) -> None:
        if self.lines:
            raise self.error()


def _learning_problems(
    problems: Problems, config: CommandConfig, folder: RunFolder, group_size: int | None
) -> ModelPlan | None:
    """What training and serving have in common: model, judge, algorithm, loss, ports, logger."""
    problems.lines += contradictions(config)
    with problems.noted():
        check_judge(config.judge)
    if config.judge.base_url is not None and config.judge.judges:
        problems.lines += _reach("judge.base_url", config.judge.base_url)
    with problems.noted():
        check_objectives(config.trainer, config.learner)
        algorithm = build_algorithm(config.trainer, group_size)
        problems.lines += missing_hints(config, algorithm)
    for check in (
        lambda: check_key(config.gateway),
        lambda: loggers.check_logger(config.logger),
        lambda: _check_teacher(config),
    ):
        with problems.noted():
            check()
    return _model_problems(problems, config, folder)


def _model_problems(
    problems: Problems, config: CommandConfig | EvaluateConfig, folder: RunFolder
) -> ModelPlan | None:
    """Whether the model is whole and fits this machine; None when that cannot be said."""
    policy = config.policy
    device: Device | None = None
    with problems.noted():
        device = resolve_device(policy.device)
    if policy.port:
        with problems.noted():
            for number in range(policy.servers):
                reserve_port(policy.port + number).close()
    model: Path | None = None
    before = len(problems.lines)
    with problems.noted():
        model = find_model(policy.model)
    if device is None or len(problems.lines) > before:
        return None
    if model is None:
        problems.lines += setting_problems(policy)
        return ModelPlan(device, None)
    problems.lines += model_problems(model, policy)
    size = model_size(model)
    needs = needs_of(config, model, size, device)
    gpu_gib = gpu_memory_gib() if device == "cuda" else None
    available_gib = provenance.memory_available_gb()
    problems.lines += memory_problems(needs, policy, available_gib, gpu_gib)
    problems.lines += disk_problems(needs, folder.path)
    return ModelPlan(device, model, size, needs)


def _environment(
    problems: Problems, config: RunConfig | EvaluateConfig, say: Say
) -> TaskSampler | None:
    """Its tasks, its agent, and what it needs of this machine; None when it has no tasks."""
    sampler: TaskSampler | None = None
    before = len(problems.lines)
    with problems.noted():
        sampler = TaskSampler.of(config.env, config.seed)
    with problems.noted():
        check_agent(config.agent, config.env)
    for key in ("user_base_url", "gateway_url"):
        address = getattr(config.env, key, None)
        if isinstance(address, str):
            problems.lines += _reach(f"env.{key}", address)
    if len(problems.lines) == before:
        with problems.noted():
            check_env(config.env, say, patient=False)
    if config.env.shows_pictures and not isinstance(config, EvaluateConfig):
        problems.lines += _blindness(config)
    return sampler


def _blindness(config: RunConfig) -> Iterator[str]:
    try:
        model = find_model(config.policy.model)
    except ClawError:  # said by who looks at the model
        return
    if model is not None and not sees(model):
        yield (
            f"got env={config.env.type} that shows pictures (env.observation) and policy.model="
            f"{config.policy.model!r}, which sees none: take env.observation=tree, or a model that "
            "sees, such as policy=qwen3_vl_4b"
        )


def _check_teacher(config: CommandConfig) -> None:
    teacher = config.trainer.distillation.teacher
    if teacher in ("policy", "frozen"):
        return
    try:
        find_model(teacher)
    except ConfigError as error:
        message = str(error).replace("policy.model", "trainer.distillation.teacher")
        raise ConfigError(message) from error


def _check_same_model(config: ServeConfig, folder: RunFolder) -> None:
    stored = folder.read_config(ServeConfig)
    if stored.policy.model != config.policy.model:
        raise ConfigError(
            f"{folder.path} holds weights of {stored.policy.model!r}, got "
            f"policy.model={config.policy.model!r}: choose another folder (run.dir=PATH)"
        )


def _reach(key: str, url: str) -> Iterable[str]:
    if not url.startswith(("http://", "https://")):
        yield (
            f"got {key}={url!r}, expected an address with http:// or https:// and its /v1, such as "
            "http://127.0.0.1:8000/v1"
        )
        return
    why = why_unreachable(url)
    if why is not None:
        yield f"got {key}={url!r}, where nobody answers ({why}): start that server first"


def _evaluation_folder(config: EvaluateConfig) -> RunFolder:
    from clawrl_gym.run.evaluate import evaluation_folder

    return evaluation_folder(config)


def _notes_of(model: ModelPlan | None) -> list[str]:
    if model is not None and model.folder is None:
        return ["the model is not here: it is downloaded first, and looked at then"]
    return []
