"""The model that a command would load: whether it is whole, can be served, and fits here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.cluster.placement import is_apart_here, own_gpus
from clawrl_gym.config import CommandConfig, EvaluateConfig, LearnerConfig, ServeConfig
from clawrl_gym.core import provenance
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.inference.device import Device
from clawrl_gym.inference.engine_classes import engine_class
from clawrl_gym.inference.models.abilities import Abilities, abilities_of
from clawrl_gym.inference.models.resolve import find_model, sees
from clawrl_gym.inference.models.servable import model_problems, setting_problems
from clawrl_gym.inference.models.shape import ModelShape, shape_of_folder, shape_of_hub_model
from clawrl_gym.inference.models.vocabulary import check_vocabulary
from clawrl_gym.inference.port import reserve_port
from clawrl_gym.preflight.adapters import serving_problems
from clawrl_gym.preflight.gpu_fit import fit_gpu, words
from clawrl_gym.preflight.learner_demands import unseen_by_learner
from clawrl_gym.preflight.problems import Problems
from clawrl_gym.preflight.requirements import (
    Requirements,
    adapter_problems,
    disk_problems,
    gpu_memory_gib,
    learns,
    memory_problems,
    requirements_of,
)
from clawrl_gym.recipe.model_size import settings_note
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.run_folder.kept_model import kept_model
from clawrl_gym.store.users import Users
from clawrl_gym.trainers.models import eight_bits, nf4
from clawrl_gym.trainers.objectives import distils


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """The model that a run would load, and what it takes of this machine."""

    device: Device
    folder: Path | None
    """The model's folder; None: it is to be downloaded."""
    shape: ModelShape | None = None
    """Its shape; None: nothing is known of it before it is here."""
    needs: Requirements | None = None
    gpu_gib: float | None = None
    """Memory of the device; None without one, or where it cannot be asked."""

    @property
    def abilities(self) -> Abilities | None:
        """Its abilities; None for a model that is not here."""
        return None if self.folder is None else abilities_of(self.folder)


def look_at_model(
    problems: Problems, config: CommandConfig | EvaluateConfig, folder: RunFolder
) -> ModelPlan | None:
    """Whether the model is whole and fits this machine; None when that cannot be said, and where
    the engine has a model of its own."""
    policy, engine = config.policy, engine_class(config.policy)
    if not engine.capabilities.model:
        if not problems.lines:  # else its options may be wrong
            problems.lines += engine.problems(policy, None)
        return None
    device: Device | None = None
    with problems.noted():
        device = engine.device(policy.device)
    if policy.port:
        with problems.noted():
            for number in range(policy.servers):
                reserve_port(policy.port + number).close()
    model: Path | None = None
    before = len(problems.lines)
    with problems.noted():
        model = kept_model(folder.path, policy.model) or find_model(policy.model)
    if device is None or len(problems.lines) > before:
        return None
    problems.lines += engine.problems(policy, model)
    if model is None:
        problems.lines += setting_problems(policy)
        shape = shape_of_hub_model(policy.model)
        if shape is None:
            return ModelPlan(device, None)
    else:
        problems.lines += model_problems(model, policy)
        shape = shape_of_folder(model)
    if isinstance(config, CommandConfig):
        if learns(config):
            _check_packages(problems, config.learner)
        problems.lines += adapter_problems(config, shape)
        has_eyes = model is not None and sees(model)
        problems.lines += serving_problems(config, sees=has_eyes)
        problems.lines += unseen_by_learner(config, sees=has_eyes)
        with problems.noted():
            own_gpus(config, device)
    users = 0
    with problems.noted():
        users = len(Users(folder.path).all())
    needs = requirements_of(config, shape, device, users)
    gpu_gib = gpu_memory_gib() if device == "cuda" else None
    available_gib = provenance.memory_available_gb()
    is_apart = isinstance(config, CommandConfig) and is_apart_here(config)
    problems.lines += memory_problems(needs, policy, available_gib, gpu_gib, is_apart=is_apart)
    problems.lines += disk_problems(needs, folder.path)
    return ModelPlan(device, model, shape, needs, gpu_gib)


def _check_packages(problems: Problems, learner: LearnerConfig) -> None:
    """Check for packages that not every installation has."""
    if learner.adapter is not None and learner.base == "nf4":
        with problems.noted():
            nf4.check_installed()
    if learner.moment_bits == 8:
        with problems.noted():
            eight_bits.check_installed()


def shape_of(model: str) -> ModelShape:
    """Shape of the model that `policy.model` names; nothing is downloaded. Raises ConfigError."""
    known = shape_of_hub_model(model)
    if known is not None:
        return known
    folder = find_model(model)
    if folder is None:
        raise ConfigError(
            f"got policy.model={model!r}, which is not here, expected a preset (policy=qwen3_4b) "
            "or a model's folder: only of these the size is known without a download"
        )
    return shape_of_folder(folder)


def check_teacher(config: CommandConfig, policy: ModelPlan | None) -> None:
    """Check another model as teacher: it is there, and has the policy's tokens."""
    teacher = config.trainer.distillation.teacher
    if not (distils(config.trainer) and config.trainer.distillation.is_another_model):
        return
    try:
        folder = find_model(teacher)
    except ConfigError as error:
        message = str(error).replace("policy.model", "trainer.distillation.teacher")
        raise ConfigError(message) from error
    if folder is not None and policy is not None and policy.folder is not None:
        check_vocabulary(str(folder), str(policy.folder))


def notes_of(config: CommandConfig | EvaluateConfig, model: ModelPlan | None) -> Iterator[str]:
    """Notes, which are not errors, on the model."""
    if model is None:
        return
    if model.shape is not None:
        settings = settings_note(config, model.shape.parameters)
        yield from [] if settings is None else [settings]
    if isinstance(config, CommandConfig) and model.shape is not None and model.gpu_gib is not None:
        plan = fit_gpu(config, model.shape, model.gpu_gib)
        if plan.settings or not plan.fits:
            yield (
                "by arithmetic, a full pack does not fit this GPU beside the engine: "
                + (f"set {words(plan.settings)}" if plan.fits else "nothing here makes it fit")
            )
    if model.folder is None:
        yield "the model is not here: it is downloaded first and checked then"
        return
    able = model.abilities
    if able is not None and able.template is not None:
        yield from able.template.notes(able.end_tokens)
    if isinstance(config, ServeConfig) and able is not None and not able.shows_tools:
        yield "the chat template shows the model no tools: those of a client's request go unseen"
