"""A set of tasks, and how the options of `reset` choose from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.types import Split

LoadedT = TypeVar("LoadedT", covariant=True)


class TaskSource(Protocol[LoadedT]):
    """A finite set of tasks, by id and split."""

    def ids(self, split: Split) -> Sequence[str]: ...

    def load(self, task_id: str, /) -> LoadedT:
        """Raises TaskError for an unknown id or a task whose own files are wrong."""
        ...


def requested_task(options: Mapping[str, Any]) -> tuple[Any, Split]:
    """The task id, or None, and the split that reset's options name. Raises ConfigError."""
    split = options.get("split", "train")
    if set(options) - {"task", "split"} or split not in ("train", "heldout"):
        raise ConfigError(
            f"got reset options {options!r}, expected 'task' (an id) "
            "and 'split' ('train' or 'heldout')"
        )
    return options.get("task"), cast(Split, split)
