"""Settings that suit a model by its size: which option of conf/size/ a command composes.

A shipped model has those of `size=tiny`, a preset (`policy=qwen3_4b`) names its own. Whoever names
another model (`policy.model=FOLDER`, a run, an id) gets those of its number of parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from clawrl_gym.config import CommandConfig, EvaluateConfig, RunConfig, ServeConfig, SftConfig
from clawrl_gym.config.compose import choices, compose
from clawrl_gym.inference.models.resolve import is_shipped
from clawrl_gym.inference.models.shape import parameters_of

C = TypeVar("C", RunConfig, ServeConfig, EvaluateConfig, SftConfig)
SHIPPED_SIZE = "tiny"
_BELOW = (("0_1b", 0.3e9), ("0_6b", 1e9), ("2b", 2.6e9), ("4b", 6e9), ("8b", 12e9))
"""Options of conf/size/, and the number of parameters below which each is taken."""
_UNKNOWN = "0_6b"
"""Size of a model whose size is unknown before it is downloaded."""
_OWN = "own"
"""The option of conf/policy/ that brings nothing with it."""


def size_of(parameters: int | None) -> str:
    """The option of conf/size/ for a model of so many parameters; None: it is not known."""
    if parameters is None:
        return _UNKNOWN
    return next((name for name, most in _BELOW if parameters < most), _BELOW[-1][0])


def compose_sized(command: str, arguments: Sequence[str], model: type[C]) -> C:
    """Compose, with the settings that suit the size of `policy.model`.

    Raises ConfigError.
    """
    config = compose(command, arguments, model)
    groups: list[str] = _groups_of_model(config, command, arguments)
    return compose(command, [*arguments, *groups], model) if groups else config


def settings_note(config: CommandConfig | EvaluateConfig, parameters: int) -> str | None:
    """Origin of the settings, for people; None for a shipped model with its own."""
    size, fitting = config.policy.size, _fitting(config.policy.model, parameters)
    if size == fitting == SHIPPED_SIZE:
        return None
    count = f"{parameters / 1e9:.2g}B" if parameters >= 1e7 else f"{parameters:,}"
    if size != fitting:
        made_for = "shipped models" if size == SHIPPED_SIZE else f"models of {_words(size)}"
        return (
            f"settings: conf/size/{size}.yaml, made for {made_for}, and policy.model has "
            f"{count} parameters: size={fitting} has those that suit it"
            + (" (so does leaving policy=tiny out)" if size == SHIPPED_SIZE else "")
        )
    files = [f"conf/size/{size}.yaml"]
    if isinstance(config, CommandConfig) and config.learner.adapter is not None:
        files.append(f"conf/tuned/{size}_lora.yaml")
    note = f"settings: {' and '.join(files)}, for a model of {count} parameters"
    if parameters >= _BELOW[-1][1]:
        note += ", which is more than they were made for"
    return note


def _groups_of_model(
    config: CommandConfig | EvaluateConfig | SftConfig, command: str, arguments: Sequence[str]
) -> list[str]:
    """Overrides that the command line would need for the model that it names; mostly none."""
    policy = config.policy
    given = [argument.partition("=")[0].lstrip("+") for argument in arguments]
    by_preset = policy.size != SHIPPED_SIZE and "size" not in given
    if by_preset or is_shipped(policy.model):
        return []
    added: list[str] = []
    if choices(command, arguments).get("policy") == SHIPPED_SIZE:
        if "policy" in given:  # is reported: see settings_note
            return []
        added.append(f"policy={_OWN}")
    if "size" not in given:
        added.append(f"size={size_of(parameters_of(policy.model))}")
    return added


def _fitting(model: str, parameters: int) -> str:
    return SHIPPED_SIZE if is_shipped(model) else size_of(parameters)


def _words(size: str) -> str:
    """`0_6b` as people write it."""
    return size.replace("_", ".").upper() + " parameters"
