"""The user's files, and the tools that reach them: `read` and `write`, as OpenClaw offers them.

The files are a dictionary: nothing here touches the machine. What a model does wrong with a tool
is a result that says so, never an exception.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from typing import Any

from clawrl_gym.agents.tool_calls import Call, encode_results, failure

Tool = dict[str, Any]

MAX_FILES = 64
MAX_CONTENT_CHARS = 65_536
MAX_PATH_CHARS = 200
MAX_CALLS = 16
"""Calls that are carried out of one reply."""


def _tool(name: str, description: str, *parameters: str) -> Tool:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


READ = _tool("read", "Read a file", "path")
WRITE = _tool("write", "Write a file", "path", "content")
_PARAMETERS = {
    tool["function"]["name"]: tuple(tool["function"]["parameters"]["required"])
    for tool in (READ, WRITE)
}


def arguments_of(**given: str) -> str:
    """Arguments of a call, as a model writes them."""
    return json.dumps(given)


class _Wrong(Exception):
    """A call that cannot be carried out, in words for the model."""


class Workspace:
    """The files of one conversation."""

    def __init__(self, files: Mapping[str, str], offered: frozenset[str]) -> None:
        self.files = dict(files)
        """Contents by path."""
        self._offered = offered

    def results(self, calls: tuple[Call, ...]) -> str:
        """Carry out the calls of one reply in order; JSON of one result each."""
        contents = [self.result(call) for call in calls[:MAX_CALLS]]
        too_many = _Wrong(f"too many calls at once: at most {MAX_CALLS}")
        contents += [_error(call, too_many) for call in calls[MAX_CALLS:]]
        return encode_results(calls, contents)

    def result(self, call: Call) -> str:
        """Carry out one call."""
        try:
            given = self._arguments(call)
            path = _clean(given["path"])
            if call.name == "read":
                return self._read(path)
            return self._write(path, given["content"])
        except _Wrong as wrong:
            return _error(call, wrong)

    def _arguments(self, call: Call) -> dict[str, str]:
        if call.name not in self._offered:
            known = ", ".join(sorted(self._offered)) or "none"
            raise _Wrong(f"there is no such tool; tools: {known}")
        expected = _PARAMETERS[call.name]
        try:
            given = json.loads(call.arguments)
        except (ValueError, RecursionError):
            raise _Wrong(f"the arguments are not JSON; expected {', '.join(expected)}") from None
        if not isinstance(given, dict) or any(
            not isinstance(given.get(name), str) for name in expected
        ):
            raise _Wrong(f"expected the arguments {', '.join(expected)}, each a text")
        return {name: given[name] for name in expected}

    def _read(self, path: str) -> str:
        if path not in self.files:
            raise _Wrong(f"File not found: {path}")
        return self.files[path]

    def _write(self, path: str, content: str) -> str:
        if len(content) > MAX_CONTENT_CHARS:
            raise _Wrong(f"the content is too long: at most {MAX_CONTENT_CHARS} characters")
        if path not in self.files and len(self.files) >= MAX_FILES:
            raise _Wrong(f"too many files: at most {MAX_FILES}")
        self.files[path] = content
        return f"wrote {path}"


def _error(call: Call, wrong: _Wrong) -> str:
    return failure(call.name, str(wrong))


def _clean(path: str) -> str:
    """A path below the workspace, written in one way."""
    clean = posixpath.normpath(path.strip()) if path.strip() else ""
    if not clean or clean in (".", "..") or clean.startswith(("/", "../")) or "\0" in clean:
        raise _Wrong("expected a path below the workspace, such as homework/12.txt")
    if len(clean) > MAX_PATH_CHARS:
        raise _Wrong(f"the path is too long: at most {MAX_PATH_CHARS} characters")
    return clean
