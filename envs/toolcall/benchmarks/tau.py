"""Tasks of tau-bench's retail shop, from a copy of its files that the user has.

A folder of tau-bench (`tau_bench/envs/retail`: data/*.json, wiki.md, tasks_train.py, tasks_test.py,
which are read and not run) or of tau2-bench (`domains/retail`: db.json, policy.md, tasks.json,
split_tasks.json). A task is solved when the data is as its gold actions leave it and all outputs
were said. Tasks that start from other data, use other tools, or are judged by a model are left out.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from clawrl_gym.agents.tool_calls import Call, Reply
from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Json, Split
from clawrl_gym.envs.selection import LeftOut, Selection
from clawrl_gym.envs.task_ids import split_of_content
from clawrl_gym.envs.toolcall.benchmarks.task_table import AnyReplyGoal, TaskTable
from clawrl_gym.envs.toolcall.benchmarks.tau_retail import RetailData, TauRetail
from clawrl_gym.envs.toolcall.benchmarks.tau_retail_tools import TOOLS
from clawrl_gym.envs.toolcall.goals import MentionGoal, StateGoal
from clawrl_gym.envs.toolcall.schema import arguments_of
from clawrl_gym.envs.toolcall.task import Goal, ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolContext, ToolFailure

MAX_FILE_BYTES = 256 * 2**20
MAX_TURNS = 30
_TABLES = ("users", "orders", "products")
_SPLITS: Mapping[str, Split] = {"train": "train", "test": "heldout"}
_JUDGED_HERE = {"DB", "COMMUNICATE"}
_BY_NAME = {tool["function"]["name"]: tool for tool in TOOLS}
OPENING = "Hi, I need some help."
"""The first message where a model plays the user; it tells the rest when asked."""


@dataclass(frozen=True, slots=True)
class _TauTask:
    """One task as the files have it."""

    id: str
    split: Split | None
    instruction: str
    actions: tuple[tuple[str, dict[str, object]], ...]
    outputs: tuple[str, ...]
    usable: bool = True


class _GoldAction(TypedDict):
    name: str
    arguments: dict[str, object]
    requestor: NotRequired[str]
    """Whose call it is: "user" or "assistant"."""


class _Criteria(TypedDict):
    actions: NotRequired[list[_GoldAction] | None]
    env_assertions: NotRequired[list[object] | None]
    reward_basis: NotRequired[list[str] | None]
    communicate_info: NotRequired[list[object] | None]


class _Scenario(TypedDict):
    instructions: str | Mapping[str, object]


class _SecondTask(TypedDict):
    """A row of tau2-bench's tasks.json: the fields that are read."""

    id: str | int
    user_scenario: _Scenario
    evaluation_criteria: _Criteria
    initial_state: NotRequired[object]


def is_domain(path: Path) -> bool:
    """Whether a path is a domain's folder of either benchmark."""
    return (path / "db.json").is_file() or (path / "data" / "users.json").is_file()


def open_tau(path: Path, context: ToolContext) -> TaskTable:
    """The usable tasks of a domain. Raises TaskError when it is not retail, or none is usable."""
    second = (path / "db.json").is_file()
    tables = _json(path / "db.json") if second else _data_of_first(path)
    if not isinstance(tables, dict) or not all(isinstance(tables.get(t), dict) for t in _TABLES):
        raise TaskError(
            f"{path}: got data without {', '.join(_TABLES)}, expected those of tau-bench's retail "
            "domain: the tools of other domains are not built in"
        )
    data: RetailData = {
        "users": tables["users"],
        "orders": tables["orders"],
        "products": tables["products"],
    }
    policy = _text(path / ("policy.md" if second else "wiki.md"))
    played = context.config.user == "model"
    tasks, left_out = {}, list[LeftOut]()
    for row in _rows_of_second(path) if second else _rows_of_first(path):
        if row.usable and _fits(row):
            tasks[row.id] = _task(row, data, policy, played)
        else:
            left_out.append(LeftOut(row.id, "it needs other data, other tools or a judge"))
    selection = Selection(len(tasks), tuple(left_out))
    selection.require_some(str(path))
    return TaskTable(tasks, str(path), selection)


def _task(row: _TauTask, data: RetailData, policy: str, played: bool) -> ToolTask:
    goals: tuple[Goal, ...] = (StateGoal("tau_retail", _left_by(row, data)), AnyReplyGoal())
    if row.outputs:
        goals = (*goals, MentionGoal(row.outputs))
    calls = (
        Reply("", (_call(n, name, arguments),)) for n, (name, arguments) in enumerate(row.actions)
    )
    summary = f"Everything is done. {', '.join(row.outputs)}".strip()
    return ToolTask(
        id=row.id,
        family="tau_retail",
        split=row.split or split_of_content(row.instruction),
        instruction=OPENING if played else f"This is who I am and what I want. {row.instruction}",
        goals=goals,
        toolsets=("tau_retail",),
        system=policy,
        state={"tau_retail": data},
        customer={"type": "role", "instruction": row.instruction},
        solution=(*calls, Reply(summary)),
        turns=MAX_TURNS,
    )


def _call(number: int, name: str, arguments: Json) -> Call:
    return Call(f"call-{number + 1}", name, json.dumps(arguments))


def _left_by(row: _TauTask, data: RetailData) -> RetailData:
    """What the gold actions change; some of them fail, and are meant to."""
    shop = TauRetail(data)
    for name, arguments in row.actions:
        try:
            shop.call(name, arguments, 1.0)
        except ToolFailure:
            continue
    return shop.state()


def _fits(row: _TauTask) -> bool:
    """Whether all gold actions are calls of tools that there are."""
    try:
        for name, arguments in row.actions:
            arguments_of(json.dumps(arguments), _BY_NAME[name])
    except (KeyError, ToolFailure):
        return False
    return True


def _data_of_first(path: Path) -> dict[str, Any]:
    files = {table: path / "data" / f"{table}.json" for table in _TABLES}
    return {table: _json(file) for table, file in files.items() if file.is_file()}


def _rows_of_first(path: Path) -> Iterator[_TauTask]:
    """tau-bench: lists of `Task(...)` in Python files, whose arguments are literals."""
    names = [name for name in _SPLITS if (path / f"tasks_{name}.py").is_file()]
    if not names:
        raise TaskError(f"{path}: there is no tasks_train.py or tasks_test.py")
    for name in names:
        file = path / f"tasks_{name}.py"
        try:
            calls = [n for n in ast.walk(ast.parse(_text(file))) if _is_call(n, "Task")]
            for number, call in enumerate(calls):
                keywords = _keywords(call)
                yield _TauTask(
                    f"tau-{name}-{number}",
                    _SPLITS[name] if len(names) > 1 else None,
                    ast.literal_eval(keywords["instruction"]),
                    tuple(map(_action, keywords["actions"].elts)),
                    tuple(map(str, ast.literal_eval(keywords["outputs"]))),
                )
        except (SyntaxError, ValueError, KeyError, AttributeError, RecursionError) as error:
            raise TaskError(
                f"{file}: {type(error).__name__}: {error}, expected a list of Task(instruction=, "
                "actions=[Action(name=, kwargs=)], outputs=) with literal values"
            ) from error


def _is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _keywords(call: Any) -> dict[str, Any]:
    return {keyword.arg: keyword.value for keyword in call.keywords}


def _action(node: ast.expr) -> tuple[str, dict[str, object]]:
    keywords = _keywords(node)
    return ast.literal_eval(keywords["name"]), ast.literal_eval(keywords["kwargs"])


def _rows_of_second(path: Path) -> Iterator[_TauTask]:
    """tau2-bench: JSON."""
    splits = _json(path / "split_tasks.json") if (path / "split_tasks.json").is_file() else {}
    by_id = {str(i): s for name, s in _SPLITS.items() for i in splits.get(name, ())}
    tasks = _json(path / "tasks.json")
    for number, task in enumerate(tasks if isinstance(tasks, list) else [None]):
        try:
            yield _row_of_second(task, by_id)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise TaskError(
                f"{path}/tasks.json: task {number}: {type(error).__name__}: {error}, expected id, "
                "user_scenario.instructions and evaluation_criteria.actions"
            ) from error


def _row_of_second(task: _SecondTask, splits: Mapping[str, Split]) -> _TauTask:
    criteria = task["evaluation_criteria"]
    assistants = [
        action for action in criteria.get("actions") or () if action.get("requestor") != "user"
    ]
    usable = not (
        task.get("initial_state")
        or criteria.get("env_assertions")
        or set(criteria.get("reward_basis") or ()) - _JUDGED_HERE
        or len(assistants) < len(criteria.get("actions") or ())
    )
    return _TauTask(
        f"tau-{task['id']}",
        splits.get(str(task["id"])),
        _scenario(task["user_scenario"]["instructions"]),
        tuple((str(action["name"]), dict(action["arguments"])) for action in assistants),
        tuple(map(str, criteria.get("communicate_info") or ())),
        usable,
    )


def _scenario(instructions: str | Mapping[str, object]) -> str:
    """A user's instructions as one text."""
    if isinstance(instructions, str):
        return instructions
    keys: Sequence[str] = (
        "reason_for_call", "known_info", "unknown_info", "task_instructions",
    )  # fmt: skip
    return "\n".join(str(instructions[key]) for key in keys if instructions.get(key))


def _json(file: Path) -> Any:
    try:
        return json.loads(_text(file))
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{file} is no JSON: {error}") from None


def _text(file: Path) -> str:
    if not file.is_file() or file.stat().st_size > MAX_FILE_BYTES:
        raise TaskError(f"{file}: expected a file of at most {MAX_FILE_BYTES} bytes")
    return file.read_text("utf-8", "replace")
