"""The user's files, and the tools that reach them: `read` and `write`, as OpenClaw offers them.

What a model does wrong with a tool is a result that says so, never an exception.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from clawrl_gym.agents.tool_calls import Call, encode_results, failure
from clawrl_gym.core.types import Tool
from clawrl_gym.envs.file_store import FileStore, FileStoreError

MAX_CALLS = 16
"""Calls that are carried out of one reply."""
_PARAMETERS = {"read": ("path",), "write": ("path", "content")}


def _tool(name: str, description: str) -> Tool:
    parameters = _PARAMETERS[name]
    properties = {parameter: {"type": "string"} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


READ = _tool("read", "Read a file")
WRITE = _tool("write", "Write a file")


def arguments_of(**arguments: str) -> str:
    """Arguments of a call, as a model writes them."""
    return json.dumps(arguments)


class _CallError(Exception):
    """A call that cannot be carried out, in words for the model."""


class Workspace:
    """The files of one conversation."""

    def __init__(self, files: Mapping[str, str], tool_names: frozenset[str]) -> None:
        self._store = FileStore(files, "workspace", "homework/12.txt")
        self._tool_names = tool_names

    @property
    def files(self) -> Mapping[str, str]:
        """Contents by path."""
        return self._store.files

    def results(self, calls: tuple[Call, ...]) -> str:
        """Carry out the calls of one reply in order; JSON of one result each."""
        contents = [self.result(call) for call in calls[:MAX_CALLS]]
        too_many = f"too many calls at once: at most {MAX_CALLS}"
        contents += [failure(call.name, too_many) for call in calls[MAX_CALLS:]]
        return encode_results(calls, contents)

    def result(self, call: Call) -> str:
        """Carry out one call."""
        try:
            arguments = self._arguments(call)
            if call.name == "read":
                return self._store.read(arguments["path"])
            return self._store.write(arguments["path"], arguments["content"])
        except (_CallError, FileStoreError) as error:
            return failure(call.name, str(error))

    def _arguments(self, call: Call) -> dict[str, str]:
        if call.name not in self._tool_names:
            names = ", ".join(sorted(self._tool_names)) or "none"
            raise _CallError(f"there is no such tool; tools: {names}")
        expected = _PARAMETERS[call.name]
        try:
            arguments = json.loads(call.arguments)
        except (ValueError, RecursionError):
            raise _CallError(
                f"the arguments are not JSON; expected {', '.join(expected)}"
            ) from None
        if not isinstance(arguments, dict) or any(
            not isinstance(arguments.get(name), str) for name in expected
        ):
            raise _CallError(f"expected the arguments {', '.join(expected)}, each a text")
        return {name: arguments[name] for name in expected}
