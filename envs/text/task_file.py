r"""Prompts of a user's file: a JSON list, `{"tasks": [...]}`, or JSON lines. One row:

    {"prompt": "What is 17 * 23?", "answer": "391"}

`prompt` is a text, or messages as trl has them: at most one system message, then the user's. Also:
`id` (else the row's number), `family`, `split` ("train" or "heldout"; without it about one row in
five is held out), `solution` (a reply that earns 1). Every other field is a column for the grader:

    def right(prompts, completions, answer, **columns):
        return [float(a in text) for text, a in zip(completions, answer)]

It is called with keywords and lists of one, as trl calls a reward function with a batch, and
returns a list of one number. For a prompt of messages, the completion is one, too:
`[{"role": "assistant", "content": REPLY}]`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.core.plugins import load
from clawrl_gym.core.types import Split
from clawrl_gym.envs.data_file import read_rows, require_text
from clawrl_gym.envs.report import Grade, report_of
from clawrl_gym.envs.selection import LeftOut, Selection
from clawrl_gym.envs.task_ids import split_of_content
from clawrl_gym.envs.text.task import TextTask

Reward = Callable[..., Any]
"""A reward function. Any: what it returns is checked."""


class PromptMessage(BaseModel):
    """One message of a prompt."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Literal["system", "user"]
    content: str


class PromptRow(BaseModel):
    """One row of a file; further fields are columns."""

    model_config = ConfigDict(extra="allow", frozen=True)

    prompt: str | tuple[PromptMessage, ...] = Field(min_length=1)
    id: str | None = Field(None, min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")
    family: str = "file"
    split: Split | None = None
    solution: str | None = None

    @property
    def messages(self) -> tuple[PromptMessage, ...]:
        if isinstance(self.prompt, str):
            return (PromptMessage(role="user", content=self.prompt),)
        return self.prompt

    @property
    def columns(self) -> Mapping[str, object]:
        """Columns that a reward function gets beside prompts and completions."""
        return {**(self.model_extra or {}), "solution": self.solution}


@dataclass(frozen=True, slots=True)
class FunctionGrader:
    """A user's reward function, for one row."""

    name: str
    function: Reward
    row: PromptRow

    def grade(self, reply: str) -> Grade:
        """Raises whatever the function raises; what it returns is not checked here."""
        is_text = isinstance(self.row.prompt, str)
        prompt = self.row.prompt if is_text else [m.model_dump() for m in self.row.messages]
        completion = reply if is_text else [{"role": "assistant", "content": reply}]
        columns = {name: [value] for name, value in self.row.columns.items()}
        rewards = self.function(prompts=[prompt], completions=[completion], **columns)
        if not hasattr(rewards, "__len__") or len(rewards) != 1:
            raise TypeError(f"got {rewards!r:.100}, expected a list of one reward")
        reward = rewards[0]
        is_solved = isinstance(reward, int | float) and reward >= 1.0
        return Grade(reward, report_of([] if is_solved else [f"the grader gave {reward!r:.100}"]))


class FileTasks:
    """A `TaskSource` over the rows of a file that can be used."""

    def __init__(self, tasks: Mapping[str, TextTask], selection: Selection) -> None:
        self._tasks = tasks
        self.selection = selection

    def ids(self, split: Split) -> Sequence[str]:
        return [task.id for task in self._tasks.values() if task.split == split]

    def load(self, task_id: str, /) -> TextTask:
        if task_id not in self._tasks:
            reason = self.selection.reason_of(task_id) or "there is none in this file"
            raise TaskError(f"task {task_id!r} cannot be used here: {reason}")
        return self._tasks[task_id]


def open_file(tasks: str, grader: str) -> FileTasks:
    """The prompts of a file that can be used.

    Raises ConfigError for a file or a reward function that cannot be found, TaskError when no row
    can be used.
    """
    path = Path(tasks).expanduser()
    if not path.exists():
        raise ConfigError(
            f"got env.tasks={tasks!r}, expected a file of prompts (there is no "
            f"{str(path.absolute())!r})"
        )
    function = load_reward(grader)
    made: dict[str, TextTask] = {}
    left_out: list[LeftOut] = []
    for place, content in read_rows(path):
        name = place.replace(" ", "-")
        try:
            task = _task(name, content, grader, function)
            if task.id in made:
                raise TaskError(f"the id {task.id!r} is taken already")
            made[task.id] = task
        except TaskError as error:
            left_out.append(LeftOut(name, str(error)))
    selection = Selection(len(made), tuple(left_out))
    selection.require_some(str(path))
    return FileTasks(made, selection)


def load_reward(path: str) -> Reward:
    """The function of an import path. Raises ConfigError for what is missing or no plain one."""
    function: Reward = load(path, f"env.grader={path!r}")
    if not callable(function) or inspect.iscoroutinefunction(function):
        kind = "an async function" if callable(function) else type(function).__name__
        raise ConfigError(f"got env.grader={path!r}, {kind}, expected a plain function")
    return function


def _task(name: str, content: object, grader: str, function: Reward) -> TextTask:
    row = _row(content)
    system = [message.content for message in row.messages if message.role == "system"]
    user = [message.content for message in row.messages if message.role == "user"]
    if len(user) != 1 or len(system) > 1 or row.messages[-1].role != "user":
        raise TaskError("prompt: expected at most one system message, then one of the user")
    try:
        inspect.signature(function).bind(prompts=[], completions=[], **row.columns)
    except TypeError as error:
        called = ", ".join(("prompts", "completions", *row.columns))
        raise TaskError(f"env.grader={grader} is called with {called}: {error}") from error
    prompt = user[0]
    return TextTask(
        id=row.id or name,
        family=row.family,
        split=row.split or split_of_content(prompt),
        prompt=prompt,
        grader=FunctionGrader(grader, function, row),
        solution=row.solution,
        system="".join(system),
    )


def _row(content: object) -> PromptRow:
    if isinstance(content, ValueError):
        raise TaskError(f"not JSON: {content}")
    require_text(content)
    try:
        return PromptRow.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise TaskError(f"{field or 'row'}: {first['msg']}") from error
