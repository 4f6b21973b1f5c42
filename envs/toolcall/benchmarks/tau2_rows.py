"""tau2-bench's task files: what of a row is read, which file and which split it is of."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeGuard

from pydantic import BaseModel, ConfigDict, ValidationError

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Json, Split
from clawrl_gym.envs.toolcall.benchmarks.task_table import read_json, read_text

_SPLITS: Mapping[str, Split] = {"train": "train", "test": "heldout"}
_SCENARIO = ("reason_for_call", "known_info", "unknown_info", "task_instructions")

Side = Literal["assistant", "user"]


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Action(_Row):
    name: str
    arguments: dict[str, Any]
    requestor: Side = "assistant"
    compare_args: tuple[str, ...] | None = None


class FunctionCall(_Row):
    env_type: Side
    func_name: str
    arguments: dict[str, Any]


class Assertion(FunctionCall):
    assert_value: bool = True


class Criteria(_Row):
    actions: tuple[Action, ...] | None = None
    env_assertions: tuple[Assertion, ...] | None = None
    communicate_info: tuple[str, ...] | None = None
    nl_assertions: tuple[str, ...] | None = None
    reward_basis: tuple[str, ...] = ("DB", "COMMUNICATE")


class InitialState(_Row):
    initialization_data: dict[str, Any] | None = None
    initialization_actions: tuple[FunctionCall, ...] | None = None
    message_history: tuple[object, ...] | None = None


class Scenario(_Row):
    instructions: str | dict[str, Any]
    persona: str | None = None

    @property
    def text(self) -> str:
        if isinstance(self.instructions, str):
            return self.instructions
        return "\n".join(
            str(self.instructions[key]) for key in _SCENARIO if self.instructions.get(key)
        )


class TaskRow(_Row):
    """One task of tasks.json: the fields that are read."""

    id: str | int
    user_scenario: Scenario
    evaluation_criteria: Criteria | None = None
    initial_state: InitialState | None = None
    ticket: str | None = None


class Unusable(Exception):
    """Why a task is left out."""


def has_id(content: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(content, dict) and isinstance(content.get("id"), str | int)


def read_row(content: object) -> TaskRow:
    try:
        return TaskRow.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "row"
        raise Unusable(f"it cannot be read: {field}: {first['msg']}") from None


def read_rows(file: Path) -> list[object]:
    rows = read_json(file)
    if isinstance(rows, dict):
        rows = rows.get("tasks")
    if not isinstance(rows, list) or not rows:
        raise TaskError(f"{file}: expected a list of tasks")
    return rows


def tasks_file(folder: Path) -> Path:
    file = folder / "tasks.json"
    others = sorted(one.name for one in folder.glob("tasks_*.json"))
    if not file.is_file() and others:
        raise TaskError(f"{folder} has no tasks.json; set env.tasks={folder / others[0]}")
    return file


def splits_of(file: Path) -> Callable[[str], Split | None]:
    """The split of an id, as split_tasks.json has it; None where it does not say.

    Where the file has a set `base`, the other tasks are left out, as tau2-bench does by default.
    """
    own = file.with_name(f"split_{file.name}")
    shared = file.with_name("split_tasks.json")
    sets: Any = next((read_json(one) for one in (own, shared) if one.is_file()), {})
    if not isinstance(sets, dict):
        raise TaskError(f"{own}: expected an object with the ids of train and test")
    by_id = {str(i): split for name, split in _SPLITS.items() for i in sets.get(name) or ()}
    base = {str(i) for i in sets.get("base") or ()} if own.is_file() else set()

    def split_of(task_id: str) -> Split | None:
        if base and task_id not in base and task_id not in by_id:
            raise Unusable(f"it is not in the set 'base' of {own.name}")
        return by_id.get(task_id)

    return split_of


def read_toml(file: Path) -> Json:
    try:
        tables = tomllib.loads(read_text(file))
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"{file} is not TOML: {error}") from None
    plain: Json = json.loads(json.dumps(tables, default=str))  # days as text
    return plain
