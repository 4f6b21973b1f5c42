"""Messages of MCP servers in the form that the SDK reads, so that one odd part costs only itself.

The SDK refuses a whole listing or result for one tool or content part that breaks the protocol.
Here an entry that cannot be read is left out with a line in the log, and a part becomes text. The
schema of arguments that a server lists is kept beside the one that the SDK checks; schemas of
results are left out, for nothing is made of them here and checking one may fetch what it refers to.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pydantic

_log = logging.getLogger(__name__)
LISTED_SCHEMA = "clawrl_gym/inputSchema"
"""Key of a tool's `_meta` under which its own schema stands."""
MAX_SCHEMA_CHARS = 100_000
MAX_SCHEMA_DEPTH = 64
MAX_DESCRIPTION_CHARS = 20_000
_MAX_TEXT_CHARS = 2_000
_INTERNAL_ERROR = -32603
_CONNECTION_CLOSED = -32000
"""The SDK's code of a connection that ended; servers use it for errors of any kind."""


def read_line(line: bytes, server: str) -> dict[str, Any] | None:
    """A line's message, repaired; None for what is none, such as a stray print."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        text = line.decode(errors="replace")
        message = json.loads(text)
        if "\\ud" in text.lower():  # half a pair of surrogates is no text
            whole = json.dumps(message, ensure_ascii=False).encode(errors="replace")
            message = json.loads(whole)
    except (ValueError, RecursionError) as error:
        say_once(server, f"a line that is no JSON is left out: {error}")
        return None
    if "result" in message:
        message["result"] = repaired_result(message["result"], server)
    if "error" in message and "id" in message:
        message["error"] = _error(message["error"])
    return {**message, "jsonrpc": "2.0"}


def repaired_result(result: object, server: str) -> dict[str, Any]:
    """A result whose tools and content parts can all be read."""
    if not isinstance(result, dict):
        return {"content": [_as_text(result)]}
    repaired = dict(result)
    if not isinstance(repaired.get("_meta", {}), dict):
        del repaired["_meta"]
    if "tools" in repaired:
        repaired["tools"] = _tools(repaired["tools"], server)
        if not isinstance(repaired.get("nextCursor"), str):
            repaired.pop("nextCursor", None)
    if repaired.keys() & {"content", "structuredContent", "isError"}:
        _repair_content(repaired)
    return repaired


@cache
def say_once(server: str, what: str) -> None:
    """One line in the log, once a process."""
    _log.warning("the MCP server %r: %s", server, what)


def _error(error: object) -> dict[str, Any]:
    fields = error if isinstance(error, dict) else {"message": error}
    message, code = fields.get("message"), fields.get("code")
    is_usual = isinstance(code, int) and code != _CONNECTION_CLOSED
    return fields | {
        "code": code if is_usual else _INTERNAL_ERROR,
        "message": message if isinstance(message, str) else _words(error),
    }


def _tools(listed: object, server: str) -> list[dict[str, Any]]:
    if not isinstance(listed, list):
        say_once(server, f"got {_words(listed)} as its tools, expected a list; it offers none")
        return []
    tools = list[dict[str, Any]]()
    names = set[str]()
    for entry in listed:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name.strip():
            say_once(server, f"left out {_words(entry)[:200]}: it is no tool with a name")
        elif name in names:
            say_once(server, f"left out the second tool of the name {name!r}")
        else:
            names.add(name)
            tools.append(_tool(name, entry, server))
    return tools


def _tool(name: str, entry: Mapping[str, Any], server: str) -> dict[str, Any]:
    description = entry.get("description")
    schema = entry.get("inputSchema")
    problem = _problem(schema)
    if problem:
        say_once(server, f"the tool {name!r} is offered without its schema: {problem}")
    if problem or schema is None:
        schema = {"type": "object", "properties": {}}
    return {
        "name": name,
        "description": description[:MAX_DESCRIPTION_CHARS] if isinstance(description, str) else "",
        "inputSchema": schema if _is_readable(schema) else {"type": "object"},
        "_meta": {LISTED_SCHEMA: schema},
    }


def _problem(schema: object) -> str:
    """Why no model can be shown a schema; empty for one that it can."""
    if schema is None:
        return ""
    if not isinstance(schema, dict):
        return f"got {_words(schema)[:200]}, expected an object"
    if _depth(schema) > MAX_SCHEMA_DEPTH:
        return f"it is nested more than {MAX_SCHEMA_DEPTH} levels deep"
    size = len(json.dumps(schema))
    return f"it has {size} characters, over {MAX_SCHEMA_CHARS}" if size > MAX_SCHEMA_CHARS else ""


def _depth(schema: object) -> int:
    deepest, left = 0, list[tuple[Any, int]]([(schema, 1)])
    while left:
        value, depth = left.pop()
        deepest = max(deepest, depth)
        inner = value.values() if isinstance(value, dict) else value
        if isinstance(value, dict | list):
            left += [(part, depth + 1) for part in inner]
    return deepest


def _is_readable(schema: Mapping[str, Any]) -> bool:
    """Whether the SDK takes it; it needs the schema for headers that a server asks for."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    return (
        schema.get("type") == "object"
        and isinstance(schema.get("$schema", ""), str)
        and isinstance(properties, dict)
        and all(isinstance(one, dict | bool) for one in properties.values())
        and isinstance(required, list)
        and all(isinstance(name, str) for name in required)
    )


def _repair_content(result: dict[str, Any]) -> None:
    """Repair in place: parts that can be read, a truth, an object."""
    content = result.get("content")
    parts = content if isinstance(content, list) else [] if content is None else [content]
    result["content"] = [_part(part) for part in parts]
    structured = result.get("structuredContent")
    if structured is None:
        result.pop("structuredContent", None)
    elif not isinstance(structured, dict):
        del result["structuredContent"]
        result["content"] = result["content"] or [_as_text(structured)]
    if not isinstance(result.get("isError", False), bool):
        result["isError"] = str(result["isError"]).lower() not in ("none", "false", "0", "")


def _part(part: object) -> dict[str, Any]:
    """A content part that the SDK reads; text for any other."""
    if not isinstance(part, dict):
        return _as_text(part)
    bare = {key: value for key, value in part.items() if key not in ("_meta", "annotations")}
    if bare.get("type") == "text" and "text" in bare:
        return _as_text(bare["text"])
    try:
        _content_block().validate_python(bare, by_name=False)
    except ValueError:
        return _as_text(bare)
    return bare


@cache
def _content_block() -> pydantic.TypeAdapter[Any]:
    import mcp_types
    import pydantic

    return pydantic.TypeAdapter(mcp_types.ContentBlock)


def _as_text(content: object) -> dict[str, Any]:
    return {"type": "text", "text": content if isinstance(content, str) else _words(content)}


def _words(content: object) -> str:
    try:
        text = json.dumps(content, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):
        text = f"a {type(content).__name__}"
    return text if len(text) <= _MAX_TEXT_CHARS else f"{text[:_MAX_TEXT_CHARS]}..."
