"""Tasks of BFCL, from a copy of its data that the user has (the `bfcl_eval` package ships one).

A file `BFCL_v4_CATEGORY.json` has a question and functions a line, `possible_answer/` beside it the
calls that count as right, by the rules of `bfcl_grading`. One reply decides. What is Python-like
and has one turn can be read: simple, multiple, parallel, their live variants, irrelevance and
relevance. Other rows, and those for which no call is right by BFCL's own rules, are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from clawrl_gym.agents.tool_calls import Call, Reply
from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Json, Tool
from clawrl_gym.envs.selection import LeftOut, Selection
from clawrl_gym.envs.task_ids import split_of_content
from clawrl_gym.envs.toolcall.benchmarks.bfcl_grading import (
    MALFORMED,
    MAY_BE_LEFT_OUT,
    Answer,
    AnyCallGoal,
    BfclCallsGoal,
    is_allowed,
)
from clawrl_gym.envs.toolcall.benchmarks.task_table import AnyReplyGoal, TaskTable, read_text
from clawrl_gym.envs.toolcall.goals import CallsGoal
from clawrl_gym.envs.toolcall.schema import check_tool
from clawrl_gym.envs.toolcall.task import Goal, ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolContext, ToolFailure

_FILE = re.compile(r"BFCL_v\d+_(\w+)\.json")
_READABLE = re.compile(
    r"(?:live_)?(?:simple(?:_python)?|multiple|parallel|parallel_multiple|irrelevance)"
    r"|live_relevance"
)
_UNREADABLE = (
    (r"multi_turn|memory|web_search", "it takes several turns with tools of BFCL's own"),
    (r"javascript", "its values are written in JavaScript"),
    (r"java", "its values are written in Java"),
    (r"format_sensitivity", "it is another task once more, in a prompt of another form"),
)
"""Why the rows of some categories are left out."""
_TYPES = {
    "dict": "object", "float": "number", "tuple": "array", "integer": "integer", "array": "array",
    "string": "string", "boolean": "boolean", "object": "object", "number": "number",
}  # fmt: skip
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")
OK = json.dumps({"status": "ok"})
"""Result of every valid call: the functions are only described."""


class _QuestionMessage(TypedDict):
    role: str
    content: str


class _Function(TypedDict):
    name: str
    description: NotRequired[str]
    parameters: Mapping[str, object]


class BfclToolset:
    """Functions that are only described; their calls are what counts."""

    def __init__(self, functions: Sequence[Tool]) -> None:
        self._functions = list(functions)

    def tools(self) -> list[Tool]:
        return self._functions

    def call(self, name: str, arguments: Json, timeout_s: float) -> str:
        if all(name != function["function"]["name"] for function in self._functions):
            raise ToolFailure("there is no such tool")
        return OK

    def state(self) -> None:
        """There is none."""

    def close(self) -> None:
        """Do nothing: nothing is open."""


def make(task: ToolTask, context: ToolContext) -> BfclToolset:
    """The functions of the task's state, in OpenAI's form."""
    return BfclToolset(task.state.get("bfcl", {}).get("functions", ()))


def is_bfcl(path: Path) -> bool:
    """Whether a path is a file of BFCL or a folder with some."""
    if path.is_dir():
        return any(_FILE.fullmatch(file.name) for file in path.iterdir())
    return _FILE.fullmatch(path.name) is not None


def open_bfcl(path: Path) -> TaskTable:
    """The tasks of a file or of all files of a folder. Raises TaskError when none can be used."""
    files = sorted(file for file in path.iterdir() if _category(file)) if path.is_dir() else [path]
    tasks: dict[str, ToolTask] = {}
    left_out: list[LeftOut] = []
    for file in files:
        for name, entry in _entries(file):
            if isinstance(entry, ToolTask) and name in tasks:
                entry = "the id is taken already"
            if isinstance(entry, ToolTask):
                tasks[name] = entry
            else:
                left_out.append(LeftOut(name, entry))
    selection = Selection(len(tasks), tuple(left_out))
    selection.require_some(str(path))
    return TaskTable(tasks, str(path), selection)


def _category(file: Path) -> str | None:
    match = _FILE.fullmatch(file.name)
    return match.group(1) if match else None


def _entries(file: Path) -> Iterator[tuple[str, ToolTask | str]]:
    """Rows of a file by id: tasks, or why not."""
    category = str(_category(file))
    unreadable = next((why for form, why in _UNREADABLE if re.search(form, category)), None)
    if unreadable is None and not _READABLE.fullmatch(category):
        unreadable = f"the category {category!r} is unknown"
    try:
        rows = list(_rows(file))
        answers = {} if unreadable or "relevance" in category else _answers(file)
    except TaskError as error:
        yield file.name, str(error)
        return
    for number, row in enumerate(rows, 1):
        name = row.get("id") if isinstance(row, dict) else None
        where = name if isinstance(name, str) else f"{file.name}: line {number}"
        if unreadable is not None:
            yield where, unreadable
        elif not isinstance(row, dict):
            yield where, "it is not a JSON object, expected JSON lines"
        elif name != where:
            yield where, "the field 'id' is missing, expected a text"
        else:
            try:
                yield where, _task(row, category, answers.get(where))
            except TaskError as error:
                yield where, str(error)


def _answers(file: Path) -> dict[str, object]:
    path = file.parent / "possible_answer" / file.name
    if not path.is_file():
        raise TaskError(f"there is no {path}, expected BFCL's answers there")
    return {str(row.get("id")): row.get("ground_truth") for row in _rows(path) if row is not None}


def _rows(file: Path) -> Iterator[dict[str, Any] | None]:
    """JSON lines; None for one that is no object."""
    for line in read_text(file).split("\n"):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            yield row if isinstance(row, dict) else None


def _task(row: Mapping[str, Any], category: str, ground_truth: object) -> ToolTask:
    try:
        system, instruction = _request_of(row["question"])
        functions = [_function(function) for function in row["function"]]
        _check(functions)
        goals, solution = _goals(row["function"], functions, category, ground_truth)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, StopIteration) as error:
        raise TaskError(
            f"{type(error).__name__}: {error}, expected BFCL's fields question, function and, in "
            "possible_answer, ground_truth"
        ) from error
    return ToolTask(
        id=row["id"],
        family=category,
        split=split_of_content(f"{system}\n{instruction}"),
        instruction=instruction,
        goals=goals,
        toolsets=("bfcl",),
        system=system,
        state={"bfcl": {"functions": functions}},
        solution=(solution,),
        turns=1,
    )


def _check(functions: Sequence[Tool]) -> None:
    """Raises TaskError for functions that cannot be offered together."""
    names = [function["function"]["name"] for function in functions]
    if len(set(names)) < len(names):
        raise TaskError("two of its functions have the same name")
    for function in functions:
        if not _is_plain(function["function"]["parameters"]):
            check_tool(function)


def _is_plain(schema: object) -> bool:
    """Whether it has only what nearly all have, and so needs no slow check as a JSON schema."""
    return isinstance(schema, Mapping) and all(
        _is_plain_entry(key, entry) for key, entry in schema.items()
    )


def _is_plain_entry(key: str, entry: object) -> bool:
    match key:
        case "type" | "description" | "format":
            return isinstance(entry, str)
        case "required":
            names = entry if isinstance(entry, list) else [None]
            return all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
        case "properties":
            return isinstance(entry, Mapping) and all(map(_is_plain, entry.values()))
        case "items":
            return _is_plain(entry)
        case "enum":
            return isinstance(entry, list)
        case _:
            return key == "default"


def _goals(
    described: Sequence[_Function], functions: Sequence[Tool], category: str, ground_truth: Any
) -> tuple[tuple[Goal, ...], Reply]:
    """Goals of the task, and a reply that solves it."""
    if category.endswith("irrelevance"):
        return (CallsGoal(()), AnyReplyGoal()), Reply("None of the tools can do this.")
    if category.endswith("relevance"):
        return (AnyCallGoal(),), Reply("", (any_call(functions[0]),))
    if ground_truth is None:
        raise TaskError("possible_answer has no row of its id")
    if not _names_functions(category):
        ground_truth = ground_truth[:1]  # BFCL looks at no further one
    answers = tuple(_answer(call, described, category) for call in ground_truth)
    if not answers:
        raise TaskError("its answer has no call: doing nothing would be right")
    calls = tuple(right_call(answer, number) for number, answer in enumerate(answers, 1))
    return (BfclCallsGoal(answers),), Reply("", calls)


def _answer(
    call: Mapping[str, Mapping[str, list[object]]], described: Sequence[_Function], category: str
) -> Answer:
    """Raises TaskError for a call of a function that is not there."""
    ((name, allowed),) = call.items()
    if _names_functions(category):
        function = next((one for one in described if one["name"] == name), None)
    else:
        function = described[0]
    if function is None:
        raise TaskError(f"the answer calls {name!r}, expected a function of the question")
    return Answer(name_of(function["name"]), allowed, function["parameters"])


def _request_of(question: Sequence[Sequence[_QuestionMessage]]) -> tuple[str, str]:
    """Messages of the system and of the user; several messages become one text."""
    if len(question) != 1:
        raise ValueError(f"got {len(question)} turns, expected one")
    system = [str(m["content"]) for m in question[0] if m["role"] == "system"]
    user = [str(m["content"]) for m in question[0] if m["role"] != "system"]
    if not user:
        raise ValueError("no user says anything")
    return "\n\n".join(system), "\n\n".join(user)


def name_of(name: str) -> str:
    """A function's name as OpenAI's API takes it: without dots."""
    return _NO_NAME.sub("_", name)


def _function(described: _Function) -> Tool:
    return {
        "type": "function",
        "function": {
            "name": name_of(described["name"]),
            "description": str(described.get("description", "")),
            "parameters": _schema(described["parameters"]),
        },
    }


def _schema(described: Any) -> Any:
    """JSON schema of BFCL's: types by their JSON names, `any` without one."""
    if not isinstance(described, Mapping):
        return described
    schema = {key: value for key, value in described.items() if key not in ("type", "optional")}
    kind = _TYPES.get(str(described.get("type", "")).lower())
    if kind is not None:
        schema["type"] = kind
    if isinstance(described.get("properties"), Mapping):
        schema["properties"] = {k: _schema(v) for k, v in described["properties"].items()}
    if "items" in described:
        schema["items"] = _schema(described["items"])
    if not isinstance(schema.get("required", []), list):
        del schema["required"]
    return schema


def _names_functions(category: str) -> bool:
    """Whether an answer says which of the functions it calls; else it is the only one."""
    return "multiple" in category or "parallel" in category


def right_call(answer: Answer, number: int) -> Call:
    """A call that counts as right: of each argument the first listed value that is taken.

    Raises TaskError when there is none.
    """
    arguments: dict[str, object] = {}
    for name, values in answer.allowed.items():
        if name not in answer.parameters["required"] and MAY_BE_LEFT_OUT in values:
            continue
        arguments[name] = _right_value(values, answer.parameters["properties"].get(name, {}))
    problem = answer.problem(answer.name, arguments)
    if problem is not None:
        raise TaskError(f"no call is right by the rules of BFCL: {problem}")
    return Call(f"call-{number}", answer.name, json.dumps(arguments))


def _right_value(values: Sequence[object], declared: Mapping[str, Any]) -> object:
    """The first that is taken; where none is, the first."""
    candidates = [_first_inside(value) for value in values if value != MAY_BE_LEFT_OUT] or [""]
    for candidate in candidates:
        with suppress(*MALFORMED):
            if is_allowed(candidate, values, declared):
                return candidate
    return candidates[0]


def _first_inside(value: object) -> object:
    """A value as it is written in a call: of what an object lists by key, the first."""
    if isinstance(value, Mapping):
        return {
            key: next(iter(parts), "")
            for key, parts in value.items()
            if MAY_BE_LEFT_OUT not in parts
        }
    return [_first_inside(part) for part in value] if isinstance(value, list) else value


def any_call(function: Tool) -> Call:
    """Some call that fits the schema of a function."""
    parameters = function["function"]["parameters"]
    properties = parameters.get("properties", {})
    arguments = {name: _sample(properties.get(name, {})) for name in parameters.get("required", [])}
    return Call("call-1", function["function"]["name"], json.dumps(arguments))


def _sample(schema: Mapping[str, Any]) -> object:
    if schema.get("enum"):
        return schema["enum"][0]
    if schema.get("type") == "object":
        inner = schema.get("properties", {})
        return {name: _sample(inner.get(name, {})) for name in schema.get("required", [])}
    samples = {"array": [], "number": 1.0, "integer": 1, "boolean": True}
    return samples.get(str(schema.get("type")), "x")
