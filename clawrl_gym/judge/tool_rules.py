"""What a tool's result says about the call: structured fields first, then patterns at its ends.

A result that is the contents of a file may talk about errors without being one: only its exit
code, an error object, and rules marked `of_contents` count there. Words in the middle never do.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from clawrl_gym.config import JudgeConfig, ResultRule
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import FunctionCall, Json, Message, ToolCall
from clawrl_gym.judge.interface import Finding

_HEAD_CHARS = 400
_TAIL_CHARS = 400
_EXIT_CODES = ("exit_code", "exitCode", "exit_status", "returncode", "return_code")
_FAILED = ("error", "failed", "failure", "timeout", "timed_out", "aborted")
_ERROR_OBJECT = {"status", "tool", "error", "message", "code", "details", "isError", "is_error"}
"""Fields of an answer that is nothing but an error."""
_COMMANDS = ("command", "cmd", "script", "code")
_BLOCK = re.compile(r"```\w*[ \t]*\n(.*?)\n?```", re.DOTALL)
_MARKS = re.compile(r"[^0-9A-Za-z]")


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What a result came back to."""

    name: str
    """Of the tool; empty when it is not known."""
    command: str
    """The command that it ran; empty for other tools."""


def results_by_call(reply: Message, results: list[Message]) -> list[tuple[ToolUse, str]]:
    """Each result's text with its call: by id, in which clients drop marks, else by place."""
    calls = reply.get("tool_calls") or []
    by_id = {_plain(call.get("id")): call for call in calls}
    pairs = []
    for at, result in enumerate(results):
        call = by_id.get(_plain(result.get("tool_call_id")))
        if call is None and at < len(calls):
            call = calls[at]
        pairs.append((_use_of(call or ToolCall()), text_of(result)))
    return pairs


def shown_output(reply: Message, output: str) -> tuple[ToolUse, str]:
    """What an environment shows after a reply in words, whose one code block is the command."""
    blocks = _BLOCK.findall(text_of(reply))
    return ToolUse("", blocks[0].strip() if len(blocks) == 1 else ""), output


class ToolRules:
    """The configured rules."""

    def __init__(self, config: JudgeConfig) -> None:
        self._rules = [_ToolRule(name, rule) for name, rule in config.results.items()]
        self._readers = frozenset(config.readers)
        self._reading = re.compile(config.reading, re.IGNORECASE) if config.reading else None

    def find(self, text: str, call: ToolUse) -> Finding:
        """-1 for a failure, +1 for a clean result, 0 where a rule says so; and that rule."""
        finding = self._find(text.strip(), call)
        if not call.name:
            return finding
        return Finding(finding.value, {**finding.detail, "tool": call.name})

    def _find(self, text: str, call: ToolUse) -> Finding:
        contents = self._is_contents(call)
        fields = _object(text)
        failed = None if fields is None else _failed(fields, call.name, contents)
        if failed is not None:
            return Finding(-1 if failed else 1, {"rule": "fields"})
        matching = [rule for rule in self._rules if rule.holds(text, contents)]
        for value in (0, -1, 1):
            for rule in matching:
                if rule.value == value:
                    return Finding(rule.value, {"rule": rule.name})
        return Finding(1, {"rule": "clean"})

    def _is_contents(self, call: ToolUse) -> bool:
        if call.name in self._readers:
            return True
        return self._reading is not None and self._reading.match(call.command) is not None


class _ToolRule:
    """One compiled rule."""

    def __init__(self, name: str, rule: ResultRule) -> None:
        self.name = name
        self.value = rule.value
        self._of_contents = rule.of_contents
        self._head = None if rule.head is None else re.compile(rule.head, re.IGNORECASE)
        self._tail = None if rule.tail is None else re.compile(rule.tail, re.IGNORECASE)

    def holds(self, text: str, contents: bool) -> bool:
        if contents and not self._of_contents:
            return False
        if self._head is not None and not self._head.match(text[:_HEAD_CHARS]):
            return False
        return self._tail is None or self._tail.search(text[-_TAIL_CHARS:]) is not None


def _use_of(call: ToolCall) -> ToolUse:
    function = call.get("function") or FunctionCall()
    text = function.get("arguments") or "{}"
    try:
        arguments = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, TypeError, RecursionError):
        arguments = {}
    fields = arguments if isinstance(arguments, dict) else {}
    commands = (fields[key] for key in _COMMANDS if isinstance(fields.get(key), str))
    return ToolUse(str(function.get("name") or ""), next(commands, "").strip())


def _plain(call_id: object) -> str:
    return _MARKS.sub("", call_id) if isinstance(call_id, str) else ""


def _object(text: str) -> Json | None:
    """The result as an object, when it is one."""
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _failed(fields: Json, tool: str, contents: bool) -> bool | None:
    """Whether the object stands for a failure; None when it does not say.

    A JSON file is an object too: of contents only an answer that is nothing but an error counts.
    """
    if contents:
        alone = fields.keys() <= _ERROR_OBJECT and fields.get("tool", tool) == tool
        return True if alone and fields.get("status") == "error" else None
    for name in _EXIT_CODES:
        code = fields.get(name)
        if isinstance(code, int) and not isinstance(code, bool):
            return code != 0
    flags = (fields.get("isError"), fields.get("is_error"), fields.get("timed_out"))
    if True in flags or fields.get("success") is False or fields.get("ok") is False:
        return True
    if fields.get("error"):
        return True
    return True if fields.get("status") in _FAILED else None
