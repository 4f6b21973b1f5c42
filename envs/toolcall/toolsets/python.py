"""The toolset `python`: code in, what it printed and its last value out; variables stay."""

from __future__ import annotations

from functools import partial

from clawrl_gym.core.types import Json, Tool
from clawrl_gym.envs.sandbox.interface import SandboxSpec
from clawrl_gym.envs.toolcall.task import ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolContext, ToolFailure, tool
from clawrl_gym.envs.toolcall.toolsets.interpreter import Interpreter

PYTHON = tool(
    "python", "Run Python code; variables stay between calls", {"code": {"type": "string"}}
)


def make(task: ToolTask, context: ToolContext) -> Python:
    return Python(Interpreter(partial(context.sandboxes.open, SandboxSpec())))


class Python:
    """A `Toolset` over one interpreter, which starts with the first call."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter

    def tools(self) -> list[Tool]:
        return [PYTHON]

    def call(self, name: str, arguments: Json, timeout_s: float) -> str:
        code = str(arguments["code"])
        if not code.strip():
            raise ToolFailure("there is no code to run")
        return self._interpreter.run(code, timeout_s)

    def state(self) -> object:
        """None: what is in the interpreter is graded by what the policy says."""
        return None

    def close(self) -> None:
        self._interpreter.close()
