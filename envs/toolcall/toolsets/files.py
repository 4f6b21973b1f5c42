"""A file store: `list_files`, `read_file`, `write_file` over a dictionary, never over the machine.

Its state is that dictionary: contents by path.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.toolcall.task import ToolTask
from clawrl_gym.envs.toolcall.toolset import Tool, ToolFailure, tool

MAX_FILES = 64
MAX_CONTENT_CHARS = 65_536
MAX_PATH_CHARS = 200
_TEXT = {"type": "string"}
TOOLS = (
    tool("list_files", "List the files", {}),
    tool("read_file", "Read a file", {"path": _TEXT}),
    tool("write_file", "Write a file", {"path": _TEXT, "content": _TEXT}),
)


def make(task: ToolTask, options: Mapping[str, Any]) -> Files:
    files = task.state.get("files", {})
    if not isinstance(files, Mapping) or not all(isinstance(text, str) for text in files.values()):
        raise TaskError(f"task {task.id!r}: expected state.files to be texts by path")
    return Files(files)


class Files:
    """A `Toolset` over the files of one episode."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = dict(files)

    def tools(self) -> list[Tool]:
        return list(TOOLS)

    def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float) -> str:
        if name == "list_files":
            return "\n".join(sorted(self._files)) or "(no files)"
        path = _clean(arguments["path"])
        if name == "read_file":
            return self._read(path)
        return self._write(path, arguments["content"])

    def state(self) -> dict[str, str]:
        return dict(self._files)

    def close(self) -> None:
        pass

    def _read(self, path: str) -> str:
        if path not in self._files:
            raise ToolFailure(f"File not found: {path}")
        return self._files[path]

    def _write(self, path: str, content: str) -> str:
        if len(content) > MAX_CONTENT_CHARS:
            raise ToolFailure(f"the content is too long: at most {MAX_CONTENT_CHARS} characters")
        if path not in self._files and len(self._files) >= MAX_FILES:
            raise ToolFailure(f"too many files: at most {MAX_FILES}")
        self._files[path] = content
        return f"wrote {path}"


def _clean(path: str) -> str:
    """A path below the store, written in one way."""
    clean = posixpath.normpath(path.strip()) if path.strip() else ""
    if not clean or clean in (".", "..") or clean.startswith(("/", "../")) or "\0" in clean:
        raise ToolFailure("expected a path below the store, such as notes/12.txt")
    if len(clean) > MAX_PATH_CHARS:
        raise ToolFailure(f"the path is too long: at most {MAX_PATH_CHARS} characters")
    return clean
