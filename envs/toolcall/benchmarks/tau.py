"""Tasks of tau-bench's retail shop, from a copy of its files that the user has.

A folder of tau-bench (`tau_bench/envs/retail`: data/*.json, wiki.md, tasks_train.py, tasks_test.py,
which are read and not run), or a domain of tau2-bench (tau2.py). A task of tau-bench is solved when
the data is as its gold actions leave it and all outputs were said.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeGuard

from clawrl_gym.agents.tool_calls import Call, Reply
from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.core.types import Json, Split
from clawrl_gym.envs.conversation.endpoint import Endpoint
from clawrl_gym.envs.selection import LeftOut, Selection
from clawrl_gym.envs.task_ids import split_of_content
from clawrl_gym.envs.toolcall.benchmarks import tau2
from clawrl_gym.envs.toolcall.benchmarks.task_table import (
    AnyReplyGoal,
    TaskTable,
    read_json,
    read_text,
)
from clawrl_gym.envs.toolcall.benchmarks.tau2_goals import AssertionJudge
from clawrl_gym.envs.toolcall.benchmarks.tau_retail import NAME, TABLES, RetailData, TauRetail
from clawrl_gym.envs.toolcall.benchmarks.tau_retail_tools import TOOLS
from clawrl_gym.envs.toolcall.goals import MentionGoal, StateGoal
from clawrl_gym.envs.toolcall.schema import arguments_of
from clawrl_gym.envs.toolcall.task import Goal, ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolContext, ToolFailure

MAX_TURNS = 30
_SPLITS: Mapping[str, Split] = {"train": "train", "test": "heldout"}
_BY_NAME = {tool["function"]["name"]: tool for tool in TOOLS}
_OF_A_ROW = (TaskError, SyntaxError, LookupError, TypeError, ValueError, AttributeError,
             RecursionError)  # fmt: skip
"""Errors of a single odd task, which is left out."""


@dataclass(frozen=True, slots=True)
class _TauTask:
    """One task as the files have it."""

    id: str
    split: Split | None
    instruction: str
    actions: tuple[tuple[str, dict[str, object]], ...]
    outputs: tuple[str, ...]


def is_domain(path: Path) -> bool:
    """Whether a path is a domain of either benchmark."""
    is_first = (path / "data" / "users.json").is_file()
    return is_first or tau2.is_second(path) or bool(tau2.domains_in(path))


@dataclass(frozen=True, slots=True)
class _Players:
    """Players of the user and of the judge."""

    is_played: bool
    judge_base_url: str | None
    judge_key: str | None
    judge_model: str | None
    judge_timeout_s: float

    @property
    def judge(self) -> AssertionJudge | None:
        """Raises ConfigError."""
        if self.judge_base_url is None:
            return None
        if self.judge_model is None:
            raise ConfigError(
                "got env.judge_base_url and no env.judge_model, expected the model's name there"
            )
        endpoint = Endpoint(self.judge_base_url, self.judge_key)
        return AssertionJudge(endpoint, self.judge_model, self.judge_timeout_s)


def open_tau(path: Path, context: ToolContext) -> TaskTable:
    """The usable tasks of a domain. Raises TaskError for another domain, or with none usable.

    Read once for all environments of a process, as long as its files stay the same.
    """
    config = context.config
    players = _Players(
        config.user == "model",
        config.judge_base_url,
        config.judge_key,
        config.judge_model,
        config.judge_timeout_s,
    )
    return _open(path, _stamp(path), players)


@lru_cache(maxsize=2)
def _open(path: Path, stamp: object, players: _Players) -> TaskTable:
    if tau2.is_second(path):
        return tau2.open_second(path, players.is_played, players.judge)
    if domains := tau2.domains_in(path):
        raise TaskError(
            f"{path} has {len(domains)} domains, expected one of them: set env.tasks={domains[0]}"
        )
    return _open_first(path, players.is_played)


def _stamp(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Changes when a file of the domain does."""
    folder = path.parent if path.is_file() else path
    files = [file for file in (*folder.glob("*"), *folder.glob("data/*")) if file.is_file()]
    stats = {str(file): file.stat() for file in files}
    return tuple(sorted((name, one.st_mtime_ns, one.st_size) for name, one in stats.items()))


def _open_first(path: Path, is_played: bool) -> TaskTable:
    tables = _tables(path)
    if not all(isinstance(tables.get(table), dict) for table in TABLES):
        raise TaskError(
            f"{path}: got data without {', '.join(TABLES)}, expected those of tau-bench's retail "
            "domain: the tools of its other domains are built in for tau2-bench's files only"
        )
    data: RetailData = {
        "users": tables["users"],
        "orders": tables["orders"],
        "products": tables["products"],
    }
    policy = read_text(path / "wiki.md")
    tasks: dict[str, ToolTask] = {}
    left_out: list[LeftOut] = []
    for name, split, call in _rows(path):
        try:
            row = _row(name, split, call)
            reason = _unfit(row)
            if not reason:
                tasks[name] = _task(row, data, policy, is_played)
        except _OF_A_ROW as error:
            reason = (
                f"{type(error).__name__}: {error}, expected Task(instruction=, actions=[Action("
            )
            reason += "name=, kwargs=)], outputs=) with literal values"
        if reason:
            left_out.append(LeftOut(name, reason))
    selection = Selection(len(tasks), tuple(left_out))
    selection.require_some(str(path))
    return TaskTable(tasks, str(path), selection)


def _task(row: _TauTask, data: RetailData, policy: str, played: bool) -> ToolTask:
    goals: tuple[Goal, ...] = (StateGoal(NAME, _left_by(row, data)), AnyReplyGoal())
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
        instruction=tau2.OPENING
        if played
        else f"This is who I am and what I want. {row.instruction}",
        goals=goals,
        toolsets=(NAME,),
        system=policy,
        state={NAME: data},
        customer={"type": "role", "instruction": row.instruction},
        solution=(*calls, Reply(summary)),
        turns=MAX_TURNS,
    )


def _call(number: int, name: str, arguments: Json) -> Call:
    return Call(f"call-{number + 1}", name, json.dumps(arguments))


def _left_by(row: _TauTask, data: RetailData) -> RetailData:
    """State after the gold actions; some of them fail, and are meant to."""
    shop = TauRetail(data)
    for name, arguments in row.actions:
        try:
            shop.call(name, arguments, 1.0)
        except ToolFailure:
            continue
    return shop.state()


def _unfit(row: _TauTask) -> str:
    """Why a gold action is no call of a tool that there is; empty when all are."""
    for name, arguments in row.actions:
        if name not in _BY_NAME:
            return f"its gold actions call {name!r}, which is not built in"
        try:
            arguments_of(json.dumps(arguments), _BY_NAME[name])
        except ToolFailure as why:
            return f"its gold action {name}: {why}"
    return ""


def _tables(path: Path) -> dict[str, Any]:
    files = {table: path / "data" / f"{table}.json" for table in TABLES}
    return {table: read_json(file) for table, file in files.items() if file.is_file()}


def _rows(path: Path) -> Iterator[tuple[str, Split | None, ast.Call]]:
    """`Task(...)` in Python files, each with its id and its split."""
    names = [name for name in _SPLITS if (path / f"tasks_{name}.py").is_file()]
    if not names:
        raise TaskError(f"{path}: there is no tasks_train.py or tasks_test.py")
    for name in names:
        file = path / f"tasks_{name}.py"
        try:
            nodes = list(ast.walk(ast.parse(read_text(file))))
        except (SyntaxError, ValueError, RecursionError) as error:
            raise TaskError(
                f"{file}: {type(error).__name__}: {error}, expected a list of Task(...) in Python"
            ) from error
        split = _SPLITS[name] if len(names) > 1 else None
        for number, call in enumerate(node for node in nodes if _is_call(node, "Task")):
            yield f"tau-{name}-{number}", split, call


def _row(name: str, split: Split | None, call: ast.Call) -> _TauTask:
    """Raises some of `_OF_A_ROW` for a task whose arguments are no literals."""
    keywords = _keywords(call)
    instruction = ast.literal_eval(keywords["instruction"])
    if not isinstance(instruction, str) or not instruction.strip():
        raise ValueError(f"got the instruction {instruction!r}")
    return _TauTask(
        name,
        split,
        instruction,
        tuple(map(_action, keywords["actions"].elts)),
        tuple(map(str, ast.literal_eval(keywords["outputs"]))),
    )


def _is_call(node: ast.AST, name: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _keywords(call: Any) -> dict[str, Any]:
    return {keyword.arg: keyword.value for keyword in call.keywords}


def _action(node: ast.expr) -> tuple[str, dict[str, object]]:
    keywords = _keywords(node)
    return ast.literal_eval(keywords["name"]), ast.literal_eval(keywords["kwargs"])
