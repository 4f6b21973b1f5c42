"""The toolset `python`: code in, what it printed and its last value out; variables stay."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from clawrl_gym.core.types import Tool
from clawrl_gym.envs.sandbox.interface import SandboxSpec
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.toolcall.task import ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolFailure, tool
from clawrl_gym.envs.toolcall.toolsets.interpreter import Interpreter

PYTHON = tool(
    "python", "Run Python code; variables stay between calls", {"code": {"type": "string"}}
)


def make(task: ToolTask, options: Mapping[str, Any]) -> Python:
    sandboxes = Sandboxes.of(options.get("sandbox") or {}, options.get("open_sandbox"))
    return Python(Interpreter(partial(sandboxes.open, SandboxSpec())))


class Python:
    """A `Toolset` over one interpreter, which starts with the first call."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter

    def tools(self) -> list[Tool]:
        return [PYTHON]

    def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float) -> str:
        code = arguments["code"]
        if not code.strip():
            raise ToolFailure("there is no code to run")
        return self._interpreter.run(code, timeout_s)

    def state(self) -> Any:
        """None: what is in the interpreter is graded by what the policy says."""
        return None

    def close(self) -> None:
        self._interpreter.close()
