"""Tasks of BFCL, from a copy of its data that the user has (the `bfcl_eval` package ships one).

A file `BFCL_v4_CATEGORY.json` has a question and functions a line, `possible_answer/` beside it the
calls that count as right. One reply decides. What is Python-like and has one turn can be read:
simple, multiple, parallel, their live variants, irrelevance and relevance. Categories that need
BFCL's own classes, the web, or Java or JavaScript values cannot. A task whose answer its own schema
forbids (about one in a hundred) is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from clawrl_gym.agents.tool_calls import Call, Reply
from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Json, Tool
from clawrl_gym.envs.selection import LeftOut, Selection
from clawrl_gym.envs.task_ids import split_of_content
from clawrl_gym.envs.toolcall.benchmarks.task_table import AnyCallGoal, AnyReplyGoal, TaskTable
from clawrl_gym.envs.toolcall.goals import CallsGoal, ExpectedCall
from clawrl_gym.envs.toolcall.schema import arguments_of
from clawrl_gym.envs.toolcall.task import ExecutedCall, Goal, Outcome, ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolContext, ToolFailure

MAX_FILE_BYTES = 256 * 2**20
_FILE = re.compile(r"BFCL_v\d+_(\w+)\.json")
_READABLE = re.compile(
    r"(?:live_)?(?:simple(?:_python)?|multiple|parallel|parallel_multiple|irrelevance)"
    r"|live_relevance"
)
_TYPES = {
    "dict": "object", "float": "number", "tuple": "array", "integer": "integer", "array": "array",
    "string": "string", "boolean": "boolean", "object": "object", "number": "number",
}  # fmt: skip
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")
OK = json.dumps({"status": "ok"})
"""What every valid call returns: the functions are only described."""

_GroundTruth = Sequence[Mapping[str, Mapping[str, list[object]]]]
"""A call each: allowed values by argument by the function's name."""


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
        """Nothing is open."""


def make(task: ToolTask, context: ToolContext) -> BfclToolset:
    """The functions of the task's state, in OpenAI's form."""
    return BfclToolset(task.state.get("bfcl", {}).get("functions", ()))


def is_bfcl(path: Path) -> bool:
    """Whether a path is a file of BFCL or a folder with some."""
    if path.is_dir():
        return any(_FILE.fullmatch(file.name) for file in path.iterdir())
    return _FILE.fullmatch(path.name) is not None


def open_bfcl(path: Path) -> TaskTable:
    """The tasks of a file; of a folder, those of all files that can be read. Raises TaskError."""
    files = sorted(file for file in path.iterdir()) if path.is_dir() else [path]
    readable = [file for file in files if (c := _category(file)) and _READABLE.fullmatch(c)]
    if not readable:
        raise TaskError(
            f"{path}: got the category {_category(path) or 'of no file'!r}, expected one with a "
            "single turn: simple, multiple, parallel, parallel_multiple, irrelevance, relevance "
            "(multi_turn, memory, web_search, java and javascript need more than their data)"
        )
    tasks: dict[str, ToolTask] = {}
    left_out: list[LeftOut] = []
    for file in readable:
        category = str(_category(file))
        needs_answers = "relevance" not in category
        answers = _answers(file) if needs_answers else {}
        for number, row in enumerate(_rows(file), 1):
            where = f"{file}: line {number}"
            task = _task(row, category, answers if needs_answers else None, where)
            if task.id in tasks:
                raise TaskError(f"{where}: the id {task.id!r} is taken already")
            if _contradicts(task):
                left_out.append(LeftOut(task.id, "its own schema forbids its answer"))
            else:
                tasks[task.id] = task
    selection = Selection(len(tasks), tuple(left_out))
    selection.require_some(str(path))
    return TaskTable(tasks, str(path), selection)


def _category(file: Path) -> str | None:
    match = _FILE.fullmatch(file.name)
    return match.group(1) if match else None


def _answers(file: Path) -> dict[str, object]:
    path = file.parent / "possible_answer" / file.name
    if not path.is_file():
        raise TaskError(f"{file}: there is no {path}, expected BFCL's answers there")
    return {str(row.get("id")): row.get("ground_truth") for row in _rows(path)}


def _rows(file: Path) -> list[dict[str, Any]]:
    """JSON lines, each an object."""
    if file.stat().st_size > MAX_FILE_BYTES:
        raise TaskError(f"{file}: expected a file of at most {MAX_FILE_BYTES} bytes")
    rows = []
    for number, line in enumerate(file.read_text("utf-8", "replace").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise TaskError(f"{file}: line {number} is no JSON object, expected JSON lines")
        rows.append(row)
    return rows


def _task(
    row: Mapping[str, Any], category: str, answers: Mapping[str, Any] | None, where: str
) -> ToolTask:
    task_id = row.get("id")
    if not isinstance(task_id, str):
        raise TaskError(f"{where}: the field 'id' is missing")
    try:
        system, instruction = _request_of(row["question"])
        functions = [_function(function) for function in row["function"]]
        expected = None if answers is None else _expected_calls(answers[task_id])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, StopIteration) as error:
        raise TaskError(
            f"{where} ({task_id[:80]!r}): {type(error).__name__}: {error}, expected BFCL's fields "
            "question, function and, in possible_answer, ground_truth"
        ) from error
    goals: tuple[Goal, ...]
    if expected is not None:
        goals, solution = (CallsGoal(expected),), right_reply(expected, functions, where)
    elif category.endswith("irrelevance"):
        goals, solution = (CallsGoal(()), AnyReplyGoal()), Reply("None of the tools can do this.")
    else:
        goals, solution = (AnyCallGoal(),), Reply("", (any_call(functions[0]),))
    return ToolTask(
        id=task_id,
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


def _request_of(question: Sequence[Sequence[_QuestionMessage]]) -> tuple[str, str]:
    """What the system and the user say; of several messages one text."""
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


def _expected_calls(ground_truth: _GroundTruth) -> tuple[ExpectedCall, ...]:
    expected = []
    for call in ground_truth:
        ((name, arguments),) = call.items()
        expected.append(ExpectedCall(name_of(name), dict(arguments)))
    return tuple(expected)


def _contradicts(task: ToolTask) -> bool:
    """Whether the answer that counts as right is not allowed by the function's own schema, or not
    by itself."""
    functions = {one["function"]["name"]: one for one in task.state["bfcl"]["functions"]}
    reply = task.solution[0]
    calls = []
    for call in reply.calls:
        try:
            arguments = arguments_of(call.arguments, functions[call.name])
        except ToolFailure:
            return True
        calls.append(ExecutedCall(call, arguments, OK, failed=False))
    replies = (reply.content,) if reply.content else ()
    outcome = Outcome(replies, (tuple(calls),) if calls else (), {})
    return any(goal.missing(outcome) for goal in task.goals)


def right_reply(expected: Sequence[ExpectedCall], functions: Sequence[Tool], where: str) -> Reply:
    """The calls that are right. Raises TaskError for one of a function that is not there."""
    by_name = {function["function"]["name"]: function for function in functions}
    unknown = [call.name for call in expected if call.name not in by_name]
    if unknown:
        raise TaskError(f"{where}: the answer calls {unknown}, expected functions of the question")
    return Reply("", tuple(_call(call, n, by_name) for n, call in enumerate(expected)))


def _call(expected: ExpectedCall, number: int, functions: Mapping[str, Tool]) -> Call:
    """A call that is right: the first allowed value of each argument that it takes."""
    parameters = functions[expected.name]["function"]["parameters"]
    required = parameters.get("required", ())
    arguments = {
        name: _first([value for value in values if value != ""] or values)
        for name, values in expected.arguments.items()
        if name in required or "" not in values
    }
    return Call(f"call-{number + 1}", expected.name, json.dumps(arguments))


def _first(values: object) -> object:
    """Of a list of allowed values the first, and so inside it."""
    return _inside(values[0] if isinstance(values, list) and values else values)


def _inside(value: object) -> object:
    if isinstance(value, Mapping):
        return {k: _first(v) for k, v in value.items() if not (isinstance(v, list) and "" in v)}
    return [_inside(one) for one in value] if isinstance(value, list) else value


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
