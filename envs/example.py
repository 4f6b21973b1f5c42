"""A solved training task that a system message shows: one for each family of tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.task_env import TaskT
from clawrl_gym.envs.task_ids import TaskIds
from clawrl_gym.envs.task_source import TaskSource


@dataclass(frozen=True, slots=True)
class Example:
    """A request and the reply to it."""

    request: str
    replies: tuple[str, ...]
    """Replies of an agent of the kind; empty: unknown."""

    @property
    def text(self) -> str:
        """The example as text for a system message."""
        replies = "\n".join(f"Reply: {reply}" for reply in self.replies)
        return f"An example of a request, and what to reply.\n\nRequest: {self.request}\n{replies}"


class Examples(Generic[TaskT]):
    """Solved training tasks of a source, by family."""

    def __init__(self, source: TaskSource[TaskT], example_of: Callable[[TaskT], Example]) -> None:
        """Raises ConfigError for a source with fewer than two solved training tasks."""
        ids = source.ids("train")
        firsts = ids[: 2 * len(ids.families)] if isinstance(ids, TaskIds) else ids
        self._example_of = example_of
        self._examples: list[tuple[str, Example]] = []
        for task in map(source.load, firsts):
            example = example_of(task)
            if example.replies:
                self._examples.append((task.family, example))
        if len({example.request for _, example in self._examples}) < 2:
            raise ConfigError(
                "got env.example=true, expected at least two training tasks with a solution"
            )

    def text_for(self, task: TaskT) -> str:
        """An example of the task's family, where training has one; never the task itself."""
        own = self._example_of(task).request
        others = [(family, one) for family, one in self._examples if one.request != own]
        alike = [one for family, one in others if family == task.family]
        return (alike or [one for _, one in others])[0].text


def with_example(system: str, examples: Examples[TaskT] | None, task: TaskT) -> str:
    """A system text that ends with the example of a task, where there are any."""
    parts = (system, "" if examples is None else examples.text_for(task))
    return "\n\n".join(part for part in parts if part)
