"""Records what a client sends, for rules and tests: a server that speaks OpenAI chat completions.

    python -m tools.record_client OUT --port 8899 --replace "$HOME=/home/user"

Point the client at http://127.0.0.1:8899/v1 (any key, model `policy`), use it, and press Ctrl-C.
Each request becomes OUT/N.json, `{"headers": ..., "body": ..., "reply": ...}`, ready for
`tests/fixtures/`: keys and headers that say nothing are left out, long system prompts shortened in
their middle, tools' descriptions cut. `--replace` may be given several times (host, user, paths).

Replies are short and fixed. A person's message that ends with `call NAME {"key": "value"}` is
answered with that tool call, where the request offers the tool.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_LONGEST_SYSTEM = 2400
"""Characters of a system message that are kept; the rest is cut out of its middle."""
_LONGEST_DESCRIPTION = 36
_SAYS_NOTHING = (
    "authorization", "host", "connection", "content-length", "accept-encoding", "accept-language",
    "sec-fetch-mode", "x-stainless-arch", "x-stainless-os",
)  # fmt: skip
_CALL = re.compile(r"\bcall (\w+) (\{[^\n]*\})")


class Recorder:
    """Writes requests into a folder, numbered as they come."""

    def __init__(self, folder: Path, replacements: dict[str, str]) -> None:
        self._folder = folder
        self._replacements = replacements
        self._numbers = itertools.count(1)
        folder.mkdir(parents=True, exist_ok=True)

    def record(self, headers: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        """The assistant message that answers."""
        number = next(self._numbers)
        reply = reply_to(body, number)
        kept = {name: headers[name] for name in headers if name.lower() not in _SAYS_NOTHING}
        text = json.dumps(
            {"headers": kept, "body": trimmed(body), "reply": reply}, indent=1, ensure_ascii=False
        )
        for old, new in self._replacements.items():
            text = text.replace(old, new)
        (self._folder / f"{number}.json").write_text(text + "\n", encoding="utf-8")
        print(f"{number}: {len(body.get('messages', []))} messages", flush=True)
        return reply


def reply_to(body: dict[str, Any], number: int) -> dict[str, Any]:
    """A tool call where the newest messages ask for one that is offered; else a short text."""
    messages = body.get("messages") or [{}]
    offered = {tool.get("function", {}).get("name") for tool in body.get("tools") or []}
    newest = itertools.takewhile(lambda message: message.get("role") == "user", messages[::-1])
    for message in newest:
        asked = _CALL.search(_text_of(message).replace('\\"', '"'))
        if asked is not None and asked[1] in offered:
            call = {"name": asked[1], "arguments": asked[2]}
            calls = [{"id": f"call_{number}", "type": "function", "function": call}]
            return {"role": "assistant", "content": None, "tool_calls": calls}
    return {"role": "assistant", "content": f"Answer {number}."}


def _text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text") or "") for part in content)


def trimmed(body: dict[str, Any]) -> dict[str, Any]:
    """The request without what makes it long and says nothing of its kind."""
    messages = [
        {**message, "content": _shortened(message["content"])}
        if message.get("role") in ("system", "developer") and "content" in message
        else message
        for message in body.get("messages") or []
    ]
    tools = [_without_descriptions(tool) for tool in body.get("tools") or []]
    return {**body, "messages": messages, **({"tools": tools} if tools else {})}


def _shortened(content: Any) -> Any:
    if isinstance(content, list):
        return [
            {**part, "text": _shortened(part["text"])} if "text" in part else part
            for part in content
        ]
    if not isinstance(content, str) or len(content) <= _LONGEST_SYSTEM:
        return content
    half = _LONGEST_SYSTEM // 2
    left_out = len(content) - 2 * half
    return f"{content[:half]}\n[... {left_out} characters left out ...]\n{content[-half:]}"


def _without_descriptions(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function", {})
    said = function.get("description", "")
    if len(said) > _LONGEST_DESCRIPTION:
        said = said[:_LONGEST_DESCRIPTION] + "..."
    names = list(function.get("parameters", {}).get("properties", {}))
    parameters = {"type": "object", "properties": {name: {} for name in names}}
    return {**tool, "function": {**function, "description": said, "parameters": parameters}}


def _events(reply: dict[str, Any], model: str) -> Iterator[bytes]:
    """The reply as a stream of two chunks and the usage."""
    delta = dict(reply)
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(delta["tool_calls"])]
    reason = "tool_calls" if "tool_calls" in reply else "stop"
    ends: list[tuple[dict[str, Any], str | None]] = [(delta, None), ({}, reason)]
    for part, finish_reason in ends:
        choice = {"index": 0, "delta": part, "finish_reason": finish_reason}
        yield _event(_envelope("chat.completion.chunk", model) | {"choices": [choice]})
    usage = {"choices": [], "usage": _USAGE}
    yield _event(_envelope("chat.completion.chunk", model) | usage)
    yield b"data: [DONE]\n\n"


_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def _envelope(kind: str, model: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 0, "model": model}


def _event(payload: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def _handler(recorder: Recorder) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def do_GET(self) -> None:
            models = [{"id": "policy", "object": "model", "created": 0, "owned_by": "recorder"}]
            self._answer("application/json", json.dumps({"object": "list", "data": models}))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
            reply = recorder.record(dict(self.headers.items()), body)
            model = str(body.get("model", "policy"))
            if body.get("stream"):
                text = b"".join(_events(reply, model)).decode()
                self._answer("text/event-stream", text)
                return
            reason = "tool_calls" if "tool_calls" in reply else "stop"
            choice = {"index": 0, "message": reply, "finish_reason": reason}
            whole = _envelope("chat.completion", model) | {"choices": [choice], "usage": _USAGE}
            self._answer("application/json", json.dumps(whole))

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: `record` says what came."""

        def _answer(self, content_type: str, text: str) -> None:
            data = text.encode()
            self.send_response(200)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser(description="Record what a client sends.")
    parser.add_argument("out", type=Path, help="folder that the requests are written into")
    parser.add_argument("--port", type=int, default=8899)
    parser.add_argument("--replace", action="append", default=[], metavar="OLD=NEW")
    said = parser.parse_args()
    replacements = dict(pair.rsplit("=", 1) for pair in said.replace)
    server = ThreadingHTTPServer(
        ("127.0.0.1", said.port), _handler(Recorder(said.out, replacements))
    )
    print(f"recording into {said.out}: http://127.0.0.1:{said.port}/v1, Ctrl-C ends it", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
