"""A policy for coding agents that says a shell command in whatever tool an agent offers."""

from __future__ import annotations

import json

from clawrl_gym.core.types import FunctionCall, Message, Tool, ToolCall
from tests.support.gateway_rig import Bench

SHELLS = ("bash", "Bash", "shell", "local_shell", "exec_command", "exec", "shell_command")


class Coder:
    """Calls the agent's shell once for each command, then says that it is done; a request without
    a shell gets a title."""

    def __init__(self, bench: Bench, commands: list[str]) -> None:
        self._bench = bench
        self._commands = commands
        self.calls = 0

    def __call__(self, messages: list[Message]) -> Message:
        shell = self._shell(self._bench.policy.bodies[-1].get("tools", []))
        if shell is None:
            return {"role": "assistant", "content": "A title"}
        if not self._commands:
            return {"role": "assistant", "content": "It is done."}
        self.calls += 1
        arguments = json.dumps(_arguments(shell, self._commands.pop(0)))
        function: FunctionCall = {"name": shell["function"]["name"], "arguments": arguments}
        call: ToolCall = {"id": f"call_{self.calls}", "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}

    def _shell(self, tools: list[Tool]) -> Tool | None:
        by_name = {tool["function"]["name"]: tool for tool in tools}
        return next((by_name[name] for name in SHELLS if name in by_name), None)


def _arguments(tool: Tool, command: str) -> dict[str, object]:
    """Arguments of a tool that runs a command: what it requires, and nothing else."""
    schema = tool["function"]["parameters"]
    properties = schema["properties"]
    name = next(one for one in ("command", "cmd") if one in properties)
    is_list = properties[name].get("type") == "array"
    others = {one: "work" for one in schema.get("required", []) if one != name}
    return {**others, name: ["bash", "-c", command] if is_list else command}
