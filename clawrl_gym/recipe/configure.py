"""A command's configuration as the command line has it: groups, keys, and a run to resume."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeVar, get_args, overload

import yaml

from clawrl_gym.config import (
    BenchConfig,
    EvaluateConfig,
    RejudgeConfig,
    RunConfig,
    ServeConfig,
    SftConfig,
)
from clawrl_gym.config.compose import compose, split_search_path
from clawrl_gym.config.sft import is_supervised
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.inference.models.resolve import is_shipped
from clawrl_gym.inference.weights.checkpoints import is_run, run_of
from clawrl_gym.inference.weights.remote_run import pinned_model
from clawrl_gym.recipe.model_size import compose_sized
from clawrl_gym.recipe.repeat import FLAG, repeated, split_config
from clawrl_gym.recipe.reply_form import with_form
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.run_folder.kept_model import kept_model

C = TypeVar("C", RunConfig, ServeConfig, EvaluateConfig)
T = TypeVar("T", RunConfig, ServeConfig, SftConfig)
"""Configuration of a command that learns."""
Command = Literal["train", "sft", "serve", "evaluate", "rejudge", "bench"]
_OF_RAY = ("ray.address", "ray.token_file")
_WITH_SFT_RESUME = ("resume", "dry_run")
_WITH_RESUME = ("resume", "trainer.steps", "dry_run", "ui", "logger", *_OF_RAY)
"""Keys that may be given together with resume=."""
_CHOICE_OF_JUDGE = {"judge", "judge.type", "judge.chain"}
_BENCH_LISTS = ("experiment", "controls", "matrix")


@overload
def load_config(overrides: Sequence[str] = ..., command: Literal["train"] = ...) -> RunConfig: ...
@overload
def load_config(overrides: Sequence[str], command: Literal["sft"]) -> SftConfig: ...
@overload
def load_config(overrides: Sequence[str], command: Literal["serve"]) -> ServeConfig: ...
@overload
def load_config(overrides: Sequence[str], command: Literal["evaluate"]) -> EvaluateConfig: ...
@overload
def load_config(overrides: Sequence[str], command: Literal["rejudge"]) -> RejudgeConfig: ...
@overload
def load_config(overrides: Sequence[str], command: Literal["bench"]) -> BenchConfig: ...


def load_config(
    overrides: Sequence[str] = (), command: Command = "train"
) -> RunConfig | SftConfig | ServeConfig | EvaluateConfig | RejudgeConfig | BenchConfig:
    """The configuration that `python -m clawrl_gym.COMMAND OVERRIDES` runs with.

    `["--config", "runs/NAME/config.yaml", ...]` is that of an earlier run, in a folder of its own.
    Raises ConfigError, in one line, for whatever does not fit.
    """
    if isinstance(overrides, str) or not isinstance(overrides, Sequence):
        raise ConfigError(
            f"got overrides of type {type(overrides).__name__}, expected a list as the command "
            'line has it, such as ["env=terminal", "trainer.steps=10"], or a configuration of the '
            f"command {command}"
        )
    arguments = list(overrides)
    wrong = [argument for argument in arguments if not isinstance(argument, str)]
    if wrong:
        raise ConfigError(f"got the override {wrong[0]!r}, expected a text such as 'seed=3'")
    if command == "train":
        config = _with_all_cores(_pinned(_train_config(arguments)))
        return with_form(_with_effect(config, arguments), arguments)
    if command == "sft":
        return _sft_config(arguments)
    if command == "serve":
        return _with_effect(_serve_config(arguments), arguments)
    if command == "evaluate":
        composed = _composed("evaluate", arguments, EvaluateConfig)
        return with_form(_with_all_cores(_pinned(composed)), arguments)
    if command == "rejudge":
        return _rejudge_config(arguments)
    if command == "bench":
        return _bench_config(arguments)
    raise ConfigError(f"got command {command!r}, expected one of {', '.join(get_args(Command))}")


def _with_effect(config: T, arguments: list[str]) -> T:
    """Raises ConfigError for a key of the command line that changes nothing here; what a preset
    says for those with an adapter is not such a key."""
    names = {argument.lstrip("+").partition("=")[0] for argument in arguments}
    learner = config.learner
    if "learner.base" in names and learner.base != "served" and learner.adapter is None:
        raise ConfigError(
            f"got learner.base={learner.base} with a learner that trains all weights, expected one "
            "with an adapter, beside which weights are frozen: learner=lora, or leave learner.base "
            "out"
        )
    return config


def _composed(command: Command, arguments: list[str], model: type[C]) -> C:
    """Compose from `conf/`, or with `--config` from what an earlier run wrote."""
    file, overrides = split_config(arguments)
    if file is None:
        return compose_sized(command, overrides, model)
    config = repeated(file, overrides, command, model)
    kept = kept_model(file.parent, config.policy.model)  # the checkpoint that it began with is gone
    return config if kept is None else _with_model(config, str(kept))


def _with_model(config: C, model: str) -> C:
    policy = config.policy.model_copy(update={"model": model})
    return config.model_copy(update={"policy": policy})


def _pinned(config: C) -> C:
    """A run that is given as model or teacher is its newest checkpoint of now: later it has others.

    Raises ConfigError for a run without one.
    """
    config = _with_model(config, pinned_model(config.policy.model))
    if isinstance(config, EvaluateConfig):
        return config
    distillation = config.trainer.distillation
    distillation = distillation.model_copy(update={"teacher": pinned_model(distillation.teacher)})
    trainer = config.trainer.model_copy(update={"distillation": distillation})
    return config.model_copy(update={"trainer": trainer})


def _with_all_cores(config: C) -> C:
    """Give engine and learner all cores each, where they never compute at once."""
    if isinstance(config, RunConfig) and config.rollout.mode == "async":
        return config
    parts = {name: getattr(config, name, None) for name in ("policy", "learner")}
    update = {
        name: part.model_copy(update={"threads": "all"})
        for name, part in parts.items()
        if part is not None and part.threads == "auto"
    }
    return config.model_copy(update=update)


def _train_config(arguments: list[str]) -> RunConfig:
    """`resume=` takes the run's own configuration and lets a few keys change it."""
    config = _composed("train", arguments, RunConfig)
    if config.resume is None:
        return config
    folder = RunFolder(Path(config.resume))
    if is_supervised(folder.read_values()):
        raise ConfigError(
            f"got resume={config.resume}, a run of the command sft, expected one of train: begin "
            f"RL with its weights, policy.model={config.resume}, or resume "
            f"python -m clawrl_gym.sft resume={config.resume}"
        )
    stored = folder.read_config(RunConfig)
    overrides, places = split_search_path(arguments)
    names = [override.lstrip("+").split("=", 1)[0] for override in overrides]
    foreign = [name for name in names if name not in _WITH_RESUME]
    if foreign:
        raise ConfigError(
            f"got {foreign[0]!r} together with resume=, expected only "
            f"{', '.join(_WITH_RESUME[1:])}: a resumed run keeps its own configuration"
        )
    changed: dict[str, object] = {
        "resume": config.resume,
        "dry_run": config.dry_run,
        "ui": config.ui,
    }
    if places:
        changed["searchpath"] = config.searchpath
    if of_ray := {name.partition(".")[2] for name in _OF_RAY if name in names}:
        given = {name: getattr(config.ray, name) for name in of_ray}
        changed["ray"] = stored.ray.model_copy(update=given)
    if "logger" in names:
        changed |= {"logger": config.logger, "logger_options": config.logger_options}
    if "trainer.steps" in names:
        longer = stored.trainer.model_copy(update={"steps": config.trainer.steps})
        return stored.model_copy(update={**changed, "trainer": longer})
    return stored.model_copy(update=changed)


def _serve_config(arguments: list[str]) -> ServeConfig:
    """`resume=` takes the folder's own configuration, and whatever keys change it."""
    config = _judged(_composed("serve", arguments, ServeConfig), arguments)
    if config.resume is not None:
        folder = RunFolder(Path(config.resume))
        if folder.exists and split_config(arguments)[0] is None:
            config = repeated(folder.config_file, arguments, "serve", ServeConfig, "resume=")
        run = config.run.model_copy(update={"dir": config.resume})
        config = config.model_copy(update={"run": run})
    return _pinned(_as_begun(config))


def _judged(config: ServeConfig, arguments: list[str]) -> ServeConfig:
    """Choose the judge that suits the policy, unless one was chosen.

    A model judges what no rule knows; a shipped one is too small for it and has rules alone.
    """
    file, overrides = split_config(arguments)
    names = {override.lstrip("+~").partition("=")[0] for override in overrides}
    if file is not None or names & _CHOICE_OF_JUDGE or is_shipped(config.policy.model):
        return config
    return compose_sized("serve", ["judge=chain", *arguments], ServeConfig)


def _as_begun(config: ServeConfig) -> ServeConfig:
    """Serving that began with a checkpoint of a run continues with it when given the run again."""
    model, place = Path(config.policy.model), config.run.dir
    if place is None or not is_run(model) or not RunFolder(Path(place)).exists:
        return config
    begun = RunFolder(Path(place)).read_config(ServeConfig).policy.model
    own_run = run_of(begun)
    if own_run is None or own_run.resolve() != model.resolve():
        return config
    return _with_model(config, begun)


def _sft_config(arguments: list[str]) -> SftConfig:
    """Configuration of SFT: data may stand without its key; `resume=` takes the run's own keys."""
    if split_config(arguments)[0] is not None:
        raise ConfigError(f"got {FLAG}, expected keys, or resume=FOLDER to resume a run")
    places = _bare(arguments)
    overrides = [argument for argument in arguments if argument not in places]
    config = compose_sized("sft", overrides, SftConfig)
    names = {name.lstrip("+~").partition("=")[0] for name in overrides}
    if config.resume is not None:
        foreign = sorted(names - set(_WITH_SFT_RESUME)) + places
        if foreign:
            raise ConfigError(
                f"got {foreign[0]!r} together with resume=, expected only dry_run: a resumed run "
                "keeps its own configuration"
            )
        values = RunFolder(Path(config.resume)).read_values()
        if not is_supervised(values):
            raise ConfigError(f"got resume={config.resume}, expected a run of the command sft")
        changed = {"resume": config.resume, "dry_run": config.dry_run}
        return SftConfig.of(values).model_copy(update=changed)
    of_env = sorted(name for name in names if name.partition(".")[0] in ("env", "agent"))
    if of_env and not config.demonstrations:
        raise ConfigError(
            f"got {of_env[0]} without demonstrations, expected demonstrations=N: so many episodes "
            "that its oracle plays are learned from"
        )
    if places and config.data:
        raise ConfigError(f"got {places[0]} and data={list(config.data)}, expected one of them")
    model = pinned_model(config.policy.model)
    policy = config.policy.model_copy(update={"model": model})
    changed = {"policy": policy, "data": tuple(places) or config.data}
    return with_form(_with_effect(config.model_copy(update=changed), arguments), arguments)


def _bare(arguments: list[str]) -> list[str]:
    """Arguments that are not KEY=VALUE."""
    return [text for text in arguments if "=" not in text and not text.startswith(("~", "-"))]


def _rejudge_config(arguments: list[str]) -> RejudgeConfig:
    """The run may stand without its key."""
    if split_config(arguments)[0] is not None:
        raise ConfigError(f"got {FLAG}, expected a present judge: judge=NAME and its keys")
    runs = _bare(arguments)
    if len(runs) > 1:
        raise ConfigError(f"got {' and '.join(runs)}, expected one run, and KEY=VALUE")
    config = compose("rejudge", [text for text in arguments if text not in runs], RejudgeConfig)
    if runs and config.folder is not None:
        raise ConfigError(f"got {runs[0]} and folder={config.folder}, expected one run")
    return config.model_copy(update={"folder": runs[0]}) if runs else config


def _bench_config(arguments: list[str]) -> BenchConfig:
    """Configuration of a bench: arguments that are not its keys go to every run."""
    if split_config(arguments)[0] is not None:
        raise ConfigError(
            f"got {FLAG}, expected recipes (experiment=): the bench repeats by its dir="
        )
    values: dict[str, object] = {}
    overrides = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name in BenchConfig.model_fields and name != "overrides" and equals:
            values[name] = _bench_value(name, value)
        else:
            overrides.append(argument)
    return BenchConfig.of({**values, "overrides": overrides})


def _bench_value(name: str, text: str) -> object:
    """A value as the command line gives it: lists may stand without their brackets."""
    if name == "dir":
        return text
    if name in _BENCH_LISTS and not text.startswith("["):
        text = f"[{text}]"
    try:
        value: object = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"cannot read {name}={text!r}; expected YAML") from error
    return value
