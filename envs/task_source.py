"""A set of tasks, and how the options of `reset` choose from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.core.types import Split

LoadedT = TypeVar("LoadedT", covariant=True)


class TaskSource(Protocol[LoadedT]):
    """A finite set of tasks, by id and split."""

    def ids(self, split: Split) -> Sequence[str]: ...

    def load(self, task_id: str, /) -> LoadedT:
        """Raises TaskError for an unknown id or a task whose own files are wrong."""
        ...


def requested_task(options: Mapping[str, object]) -> tuple[str | None, Split]:
    """The task id, or None, and the split that reset's options name.

    Raises ConfigError for other options, TaskError for what is no id.
    """
    split = options.get("split", "train")
    if set(options) - {"task", "split"} or split not in ("train", "heldout"):
        raise ConfigError(
            f"got reset options {options!r}, expected 'task' (an id) "
            "and 'split' ('train' or 'heldout')"
        )
    task_id = options.get("task")
    if task_id is not None and not isinstance(task_id, str):
        raise TaskError(f"got task {task_id!r}, expected an id: a text")
    return task_id, "heldout" if split == "heldout" else "train"
