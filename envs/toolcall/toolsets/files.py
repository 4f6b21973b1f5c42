"""The toolset `files`: `list_files`, `read_file`, `write_file` over a store in memory.

Its state is that store: contents by path.
"""

from __future__ import annotations

from collections.abc import Mapping

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Json, Tool
from clawrl_gym.envs.file_store import FileStore, FileStoreError
from clawrl_gym.envs.toolcall.task import ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolContext, ToolFailure, tool

_TEXT = {"type": "string"}
TOOLS = (
    tool("list_files", "List the files", {}),
    tool("read_file", "Read a file", {"path": _TEXT}),
    tool("write_file", "Write a file", {"path": _TEXT, "content": _TEXT}),
)


def make(task: ToolTask, context: ToolContext) -> Files:
    files = task.state.get("files", {})
    if not isinstance(files, Mapping) or not all(isinstance(text, str) for text in files.values()):
        raise TaskError(f"task {task.id!r}: expected state.files to be texts by path")
    return Files(files)


class Files:
    """A `Toolset` over the files of one episode."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._store = FileStore(files, "store", "notes/12.txt")

    def tools(self) -> list[Tool]:
        return list(TOOLS)

    def call(self, name: str, arguments: Json, timeout_s: float) -> str:
        if name == "list_files":
            return "\n".join(sorted(self._store.files)) or "(no files)"
        try:
            if name == "read_file":
                return self._store.read(str(arguments["path"]))
            return self._store.write(str(arguments["path"]), str(arguments["content"]))
        except FileStoreError as error:
            raise ToolFailure(str(error)) from None

    def state(self) -> dict[str, str]:
        return dict(self._store.files)

    def close(self) -> None:
        pass
