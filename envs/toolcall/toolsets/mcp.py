"""The toolset of a user's MCP servers, each connected for one episode.

Schemas are offered as the servers list them. Whatever becomes of a call is a result for the model:
a tool's own error, a refusal, a call that takes too long, a server that dies, hangs or floods. Such
a server is started again at once. Where that fails no tool of it works any more, and the episode's
grade is an EnvError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from clawrl_gym.core.errors import ConfigError, EnvError
from clawrl_gym.core.types import Json, Tool
from clawrl_gym.envs.toolcall.config import McpServerConfig
from clawrl_gym.envs.toolcall.task import ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolContext, ToolFailure
from clawrl_gym.envs.toolcall.toolsets.mcp_connection import Connection
from clawrl_gym.envs.toolcall.toolsets.mcp_repair import LISTED_SCHEMA, say_once

if TYPE_CHECKING:
    import mcp_types

MAX_NAME_CHARS = 64
"""Most characters of a tool's name, as in OpenAI's API."""
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")


class McpToolset:
    """The tools of all configured servers. One that cannot be used closes the others."""

    def __init__(self, configs: Sequence[McpServerConfig]) -> None:
        self._configs = {config.name: config for config in configs}
        self._connections: dict[str, Connection] = {}
        self._lost: dict[str, EnvError] = {}
        """Servers that could not be started again, and why."""
        try:
            for config in configs:
                self._connections[config.name] = Connection.open(config)
            self._offers = _offers(self._connections)
        except BaseException:
            self.close()
            raise

    def tools(self) -> list[Tool]:
        return [_schema(name, listing) for name, (_, listing) in self._offers.items()]

    def call(self, name: str, arguments: Json, timeout_s: float) -> str:
        if name not in self._offers:
            raise ToolFailure(f"there is no such tool; tools: {', '.join(self._offers)}")
        server, listing = self._offers[name]
        if server in self._lost:
            raise ToolFailure(f"the server {server!r} of this tool is gone")
        try:
            result = self._connections[server].call(listing.name, dict(arguments), timeout_s)
        except EnvError as error:
            raise ToolFailure(self._restarted(server, error)) from error
        text = _text(result)
        if result.is_error:
            raise ToolFailure(text or "the tool failed and did not say why")
        return text

    def state(self) -> None:
        """A server's state is its own. Raises EnvError when a server was lost: what the task asked
        for could not be done."""
        for error in self._lost.values():
            raise error

    def _restarted(self, server: str, error: EnvError) -> str:
        """Another process or connection in the place of one that failed, in words."""
        say_once(server, f"a call ended with it: {error}")
        self._connections[server].close()
        try:
            self._connections[server] = Connection.open(self._configs[server])
        except EnvError as again:
            self._lost[server] = again
            return f"the server {server!r} of this tool ended, and does not start again"
        return f"{error}; it was started again, and what it remembered is lost"

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def make(task: ToolTask, context: ToolContext) -> McpToolset:
    """The servers of `env.mcp`. Raises ConfigError for a wrong one, EnvError when one fails."""
    return McpToolset(read_servers(context.config.mcp))


def read_servers(servers: Iterable[object]) -> list[McpServerConfig]:
    """Raises ConfigError unless each has a name of its own and either a command or a URL."""
    configs = []
    for server in servers:
        try:
            configs.append(McpServerConfig.model_validate(server))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise ConfigError(f"env.mcp is wrong at {where!r}: {first['msg']}") from None
    for config in configs:
        if (config.command is None) == (config.url is None):
            raise ConfigError(
                f"got env.mcp server {config.name!r} with command={config.command!r} and "
                f"url={config.url!r}, expected exactly one of them"
            )
        if config.url is not None and not config.url.startswith(("http://", "https://")):
            raise ConfigError(f"got env.mcp url={config.url!r}, expected http://... or https://...")
    names = [config.name for config in configs]
    if len(set(names)) < len(names):
        raise ConfigError(f"got env.mcp servers {names!r}, expected a name of its own for each")
    return configs


def _offers(connections: Mapping[str, Connection]) -> dict[str, tuple[str, mcp_types.Tool]]:
    """Server and tool by the name that is offered; names that clash get the server's in front, and
    a number where that is not enough."""
    names = [name for one in connections.values() for name in {_name(t.name) for t in one.tools}]
    offers: dict[str, tuple[str, mcp_types.Tool]] = {}
    for server, connection in connections.items():
        for tool in connection.tools:
            name = _name(tool.name)
            if names.count(name) > 1:
                name = _name(f"{server}_{tool.name}")
            offers[_free(name, offers)] = (server, tool)
    return offers


def _name(name: str) -> str:
    return _NO_NAME.sub("_", name)[:MAX_NAME_CHARS]


def _free(name: str, taken: Container[str]) -> str:
    """The name, or with the first number that makes it one of its own."""
    free, number = name, 2
    while free in taken:
        free = f"{name[: MAX_NAME_CHARS - len(str(number)) - 1]}_{number}"
        number += 1
    return free


def _schema(name: str, listing: mcp_types.Tool) -> Tool:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": listing.description or "",
            "parameters": (listing.meta or {})[LISTED_SCHEMA],
        },
    }


def _text(result: mcp_types.CallToolResult) -> str:
    """A result in words: texts as they are, other content named; structured content without any
    text as JSON."""
    parts = [_part(part) for part in result.content]
    if not any(part.type == "text" for part in result.content) and (
        result.structured_content is not None
    ):
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return "\n".join(parts)


def _part(part: mcp_types.ContentBlock) -> str:
    if part.type == "text":
        return str(part.text)
    if part.type in ("image", "audio"):
        return f"[{part.type} {part.mime_type}, {len(part.data) * 3 // 4} bytes]"
    if part.type == "resource_link":
        return f"[resource {part.uri}]"
    resource = getattr(part, "resource", None)
    text = getattr(resource, "text", None)
    return text if isinstance(text, str) else f"[resource {getattr(resource, 'uri', '')}]"
