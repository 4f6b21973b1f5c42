"""The base of all configuration parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.plugins import validation_message

Threads = Literal["auto", "all"] | Annotated[int, Field(ge=1)]
"""A number of threads; `all`: one for each core of the machine that runs them; `auto`: for half of
them, or for all where no learner computes meanwhile (evaluate, rollout=sync)."""


class Part(BaseModel):
    """Base of all configuration parts: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @classmethod
    def of(cls, values: Mapping[str, object], prefix: str = "") -> Self:
        """From plain values. Raises ConfigError naming each wrong key, with `prefix` before it."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            keys = cls.dotted_keys(prefix)
            raise ConfigError(validation_message(error, prefix, keys)) from error

    @classmethod
    def dotted_keys(cls, prefix: str = "") -> list[str]:
        """All its keys and those of its parts, such as `learner.lr`, for suggestions."""
        keys: set[str] = set()
        for name, field in cls.model_fields.items():
            keys.add(prefix + name)
            for part in _parts_of(field.annotation):
                keys.update(part.dotted_keys(f"{prefix}{name}."))
        return sorted(keys)


def _parts_of(annotation: object) -> list[type[Part]]:
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return [annotation]
    arguments: tuple[object, ...] = getattr(annotation, "__args__", ())
    return [part for argument in arguments for part in _parts_of(argument)]


def leaf(values: Mapping[str, object], key: str) -> object:
    """A value by its dotted key; None when it is not there."""
    value: object = values
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def leaves(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Plain values by their dotted keys; lists and empty parts are values."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
