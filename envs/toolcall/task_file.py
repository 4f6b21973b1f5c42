r"""Tasks of a user's file: a JSON list, `{"tasks": [...]}`, or JSON lines. One task:

    {"id": "sum-1", "instruction": "What is 17 * 23?", "toolsets": ["calculator"],
     "goals": [{"type": "answer", "wanted": "391"}],
     "solution": [{"calls": [{"name": "calculate", "arguments": {"expression": "17 * 23"}}]},
                  {"say": "391"}]}

Also: `family`, `split` ("train" or "heldout"; without it about one task in five is held out),
`system`, `tools` (a choice of the toolsets'), `state` (by toolset), `customer`, `turns`. Goals:

    {"type": "answer", "wanted": TEXT, "form": "number" | "text", "boxed": false, "tolerance": 1e-9}
    {"type": "state", "toolset": NAME, "wanted": JSON, "at": [KEYS], "contains": false}
    {"type": "said", "texts": [TEXTS]}
    {"type": "calls", "wanted": [{"name": NAME, "arguments": {ARGUMENT: [ALLOWED VALUES]}}],
     "ordered": false, "extra": false}
    {"type": "program", "program": PYTHON, "timeout_s": 60}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clawrl_gym.agents.tool_calls import Call, Reply
from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.data_file import read_rows, require_text
from clawrl_gym.envs.sandbox.interface import SandboxSpec
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.selection import LeftOut, Selection
from clawrl_gym.envs.toolcall.goals import (
    AnswerGoal,
    CallsGoal,
    ExpectedCall,
    MentionGoal,
    StateGoal,
)
from clawrl_gym.envs.toolcall.grading import ProgramGoal
from clawrl_gym.envs.toolcall.task import Goal, ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolContext
from clawrl_gym.envs.twins.programs import is_trusted

_HELD_OUT_ONE_IN = 5


class _TaskFileModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _AnswerSpec(_TaskFileModel):
    type: Literal["answer"]
    expected: str = Field(alias="wanted")
    form: Literal["number", "text"] = "number"
    boxed: bool = False
    tolerance: float = Field(1e-9, ge=0, allow_inf_nan=False)

    def goal(self, sandboxes: Sandboxes) -> Goal:
        return AnswerGoal(self.expected, self.form, self.boxed, self.tolerance)


class _StateSpec(_TaskFileModel):
    type: Literal["state"]
    toolset: str
    expected: object = Field(alias="wanted")
    at: tuple[str, ...] = ()
    contains: bool = False

    def goal(self, sandboxes: Sandboxes) -> Goal:
        return StateGoal(self.toolset, self.expected, self.at, self.contains)


class _MentionSpec(_TaskFileModel):
    type: Literal["said"]
    texts: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)

    def goal(self, sandboxes: Sandboxes) -> Goal:
        return MentionGoal(self.texts)


class _ExpectedCallSpec(_TaskFileModel):
    name: str
    arguments: dict[str, list[object]] = Field(default_factory=dict)


class _CallsSpec(_TaskFileModel):
    type: Literal["calls"]
    expected: tuple[_ExpectedCallSpec, ...] = Field(alias="wanted")
    ordered: bool = False
    extra: bool = False

    def goal(self, sandboxes: Sandboxes) -> Goal:
        expected = tuple(ExpectedCall(call.name, call.arguments) for call in self.expected)
        return CallsGoal(expected, self.ordered, self.extra)


class _ProgramSpec(_TaskFileModel):
    type: Literal["program"]
    program: str = Field(min_length=1)
    timeout_s: float = Field(60.0, gt=0, le=3600)

    def goal(self, sandboxes: Sandboxes) -> Goal:
        return ProgramGoal(self.program, partial(sandboxes.open, SandboxSpec()), self.timeout_s)


class _CallSpec(_TaskFileModel):
    name: str
    arguments: dict[str, object] = Field(default_factory=dict)


class _ReplySpec(_TaskFileModel):
    say: str = ""
    calls: tuple[_CallSpec, ...] = ()

    def reply(self, number: int) -> Reply:
        calls = enumerate(self.calls, 1)
        return Reply(
            self.say,
            tuple(Call(f"{number}-{at}", one.name, json.dumps(one.arguments)) for at, one in calls),
        )


class TaskRow(_TaskFileModel):
    """One task as it stands in a file."""

    id: str = Field(
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$",
    )
    instruction: str = Field(min_length=1)
    goals: tuple[
        Annotated[
            _AnswerSpec | _StateSpec | _MentionSpec | _CallsSpec | _ProgramSpec,
            Field(discriminator="type"),
        ],
        ...,
    ] = Field(min_length=1)
    family: str = "file"
    split: Split | None = None
    system: str = ""
    toolsets: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    state: dict[str, Any] = Field(default_factory=dict)
    customer: dict[str, object] | None = None
    turns: int | None = Field(None, ge=1)
    solution: tuple[_ReplySpec, ...] = ()

    @property
    def in_split(self) -> Split:
        if self.split is not None:
            return self.split
        digest = hashlib.sha256(self.instruction.encode(errors="replace")).digest()
        return "heldout" if digest[0] % _HELD_OUT_ONE_IN == 0 else "train"

    def task(self, sandboxes: Sandboxes) -> ToolTask:
        return ToolTask(
            id=self.id,
            family=self.family,
            split=self.in_split,
            instruction=self.instruction,
            goals=tuple(goal.goal(sandboxes) for goal in self.goals),
            toolsets=self.toolsets,
            tools=self.tools,
            system=self.system,
            state=self.state,
            customer=self.customer,
            solution=tuple(reply.reply(at) for at, reply in enumerate(self.solution, 1)),
            turns=self.turns,
        )


class FileTasks:
    """A `TaskSource` over the rows of a file that can be used."""

    def __init__(self, rows: Sequence[TaskRow], selection: Selection, sandboxes: Sandboxes) -> None:
        self._rows = {row.id: row for row in rows}
        self.selection = selection
        self._sandboxes = sandboxes

    def ids(self, split: Split) -> Sequence[str]:
        return [row.id for row in self._rows.values() if row.in_split == split]

    def load(self, task_id: str) -> ToolTask:
        if task_id not in self._rows:
            reason = self.selection.reason_of(task_id) or "there is none in this file"
            raise TaskError(f"task {task_id!r} cannot be used here: {reason}")
        return self._rows[task_id].task(self._sandboxes)


def open_file(path: Path, context: ToolContext) -> FileTasks:
    """The tasks of a file that can be used. Raises TaskError when it has none."""
    rows: dict[str, TaskRow] = {}
    left_out: list[LeftOut] = []
    for place, content in read_rows(path):
        task_id = content.get("id") if isinstance(content, dict) else None
        name = task_id if isinstance(task_id, str) and task_id else place
        try:
            row = _row(content)
            if row.id in rows:
                raise TaskError("the id is taken already")
            _try(row.task(context.sandboxes), context)
            rows[row.id] = row
        except TaskError as error:
            left_out.append(LeftOut(name, str(error)))
    untrusted = tuple(
        row.id
        for row in rows.values()
        if any(
            isinstance(goal, _ProgramSpec) and not is_trusted(goal.program) for goal in row.goals
        )
    )
    selection = Selection(len(rows), tuple(left_out), untrusted)
    selection.require_some(str(path))
    return FileTasks(list(rows.values()), selection, context.sandboxes)


def _row(content: object) -> TaskRow:
    if isinstance(content, ValueError):
        raise TaskError(f"not JSON: {content}")
    require_text(content)
    try:
        return TaskRow.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise TaskError(f"{field or 'row'}: {first['msg']}") from error


def _try(task: ToolTask, context: ToolContext) -> None:
    """Raises TaskError for a task that no episode could begin with."""
    from clawrl_gym.envs.toolcall.customer import read_script
    from clawrl_gym.envs.toolcall.toolbox import Toolbox

    if task.customer is not None:
        read_script(task.customer)
    for goal in task.goals:
        if isinstance(goal, StateGoal) and goal.toolset not in (*task.toolsets, "mcp"):
            raise TaskError(f"a goal asks for the state of {goal.toolset!r}, which is none of the "
                            f"task's toolsets: {', '.join(task.toolsets) or 'none'}")  # fmt: skip
    if "mcp" not in task.toolsets and not context.config.mcp:  # those start the user's servers
        Toolbox.open(task, context).close()
