"""What a tool's result says about the call: fields of JSON first, then patterns at its ends.

A failure is clear in whatever form clients and services write it. A success is known only where the
result says so, or is what the tool is known to give; of anything else nothing is known. A result
that is the contents of a file may talk about errors without being one: only its exit code, an error
object, and rules marked `of_contents` count there. Words in the middle never do.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from clawrl_gym.config import JudgeConfig, ResultRule
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import FunctionCall, Message, ToolCall
from clawrl_gym.judge.interface import Finding
from clawrl_gym.judge.patterns import Words, compiled
from clawrl_gym.judge.tool_fields import Fields, parsed

_HEAD_CHARS = 600
_TAIL_CHARS = 600
_KEY = "judge.result_words"
_COMMANDS = ("command", "cmd", "script", "code")
_BLOCK = re.compile(r"```\w*[ \t]*\n(.*?)\n?```", re.DOTALL)
_MARKS = re.compile(r"[^0-9A-Za-z]")
_SERVER = re.compile(r"^.*(?:__|[./:])(?=\w)")
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ELEMENT = re.compile(
    r"<(?P<name>result|output|tool_result|tool_response|response|content|source|stdout)"
    r"(?: [^<>]*)?>"
    r"(?P<inside>.*)</(?P=name)>",
    re.DOTALL,
)
_GIVES_DATA = re.compile(
    r"(?:get|list|search|find|query|fetch|lookup|describe|show|create|add|update)(?:_|\Z)"
)
_LACKS = re.compile(
    r':\s*(?:0|""|\[\]|\{\})\s*[,}\]]|"\w*(?:code|status)"\s*:\s*"?-?(?:[03-9]\d*|\d{4,})\b',
    re.IGNORECASE,
)
"""A field of data that holds nothing, or a number that may stand for an error."""
_SHELLS = re.compile(r"(?:\S*/)?(?:ba|z|da)?sh -\w*c ")
_UNKNOWN = Finding(None, {"rule": "unknown", "reason": "no rule knows what the tool gave back"})
_CONTRADICTION = Finding(
    None, {"rule": "contradiction", "reason": "the tool gave back a success and an error"}
)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What a result came back to."""

    name: str
    """Of the tool; empty when it is not known."""
    command: str
    """The command that it ran; empty for other tools."""

    @property
    def plain_name(self) -> str:
        """In small letters, without a server's name: `mcp__files__readFile` is read_file."""
        return _CAPITAL.sub("_", _SERVER.sub("", self.name)).lower().replace("-", "_")


_SOME_TOOL = ToolUse("", "")


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
        words = config.result_words
        self._rules = [_ToolRule(name, rule, words) for name, rule in config.results.items()]
        self._readers = frozenset(config.readers)
        self._fetchers = frozenset(config.fetchers)
        self._reading = _optional(config.reading, words)
        self._telling = _optional(config.telling, words)
        self._doubts = _optional(config.doubts, words)
        self._success_weight = config.tool_success_weight
        self._fields = Fields(lambda text: self._in_words(text, _SOME_TOOL).value == -1)

    def find(self, text: str, call: ToolUse, marked: bool = False) -> Finding:
        """-1 for a failure, +1 for a known success, 0 where a rule says so; and that rule.

        None where no rule holds, unless failures are `marked`: what has no mark is a success then.
        """
        finding = self._find(_unwrapped(text.strip()), call)
        if finding.value is None and marked:
            finding = self._success("clean")
        if not call.name:
            return finding
        return replace(finding, detail={**finding.detail, "tool": call.name})

    def _find(self, text: str, call: ToolUse) -> Finding:
        answer = parsed(text)
        if answer is not None:
            outcome = self._fields.outcome(answer, call.name, self._is_file(call))
            if outcome == "failed" or outcome == "empty":
                return Finding(-1, {"rule": "fields" if outcome == "failed" else "empty"})
            if outcome == "succeeded":
                return self._success("fields")
            if answer and self._is_data(text, call):
                return self._success("data")
            if answer:
                return _UNKNOWN  # what words in it are about is not known
        return self._in_words(text, call)

    def _in_words(self, text: str, call: ToolUse) -> Finding:
        result = _Result(text, call.plain_name, self._is_file(call) or self._is_page(call))
        matching = [rule for rule in self._rules if rule.holds(result)]
        values = {rule.value for rule in matching}
        if 0 not in values and -1 in values and any(rule.is_fact for rule in matching):
            return _CONTRADICTION
        in_doubt = self._is_doubted(text)
        for value in (0, -1, 1):
            for rule in matching:
                if rule.value == value and not (rule.doubtless and in_doubt):
                    recovered = value == -1 and not rule.of_contents and self._ends_well(result)
                    return _CONTRADICTION if recovered else self._by(rule)
        return _UNKNOWN

    def _ends_well(self, result: _Result) -> bool:
        """Whether the last of several lines is a success: what failed before was tried again."""
        _, several, last = result.text.rpartition("\n")
        if not several or self._is_doubted(last):
            return False
        line = replace(result, text=last)
        return any(
            rule.value == 1 and rule.of_any_tool and rule.holds(line) for rule in self._rules
        )

    def _is_data(self, text: str, call: ToolUse) -> bool:
        """Whether JSON is what a tool of this name gives, and nothing in it speaks of a failure."""
        if self._is_file(call) or not _GIVES_DATA.match(call.plain_name):
            return False
        return not self._is_doubted(text) and not _LACKS.search(text)

    def _is_doubted(self, text: str) -> bool:
        return self._doubts is None or self._doubts.search(text) is not None

    def _by(self, rule: _ToolRule) -> Finding:
        usual = self._success_weight if rule.value == 1 else 1.0
        return Finding(rule.value, {"rule": rule.name}, rule.weight or usual)

    def _success(self, rule: str) -> Finding:
        return Finding(1, {"rule": rule}, self._success_weight)

    def _is_file(self, call: ToolUse) -> bool:
        if call.plain_name in self._readers:
            return True
        return self._reading is not None and self._reading.match(call.command) is not None

    def _is_page(self, call: ToolUse) -> bool:
        if call.plain_name in self._fetchers:
            return True
        return self._telling is not None and self._telling.search(call.plain_name) is not None


@dataclass(frozen=True, slots=True)
class _Result:
    """A result in words."""

    text: str
    tool: str
    is_contents: bool

    @property
    def head(self) -> str:
        return self.text[:_HEAD_CHARS]

    @property
    def tail(self) -> str:
        return self.text[-_TAIL_CHARS:]

    @property
    def ends(self) -> str:
        """What lines are looked for in: whole lines only."""
        if len(self.text) <= _HEAD_CHARS + _TAIL_CHARS:
            return self.text
        return f"{self.head}\n{self.tail.partition(chr(10))[2]}"


class _ToolRule:
    """One compiled rule."""

    def __init__(self, name: str, rule: ResultRule, words: Words) -> None:
        self.name = name
        self.value = rule.value
        self.weight = rule.weight
        self.of_contents = rule.of_contents
        self.doubtless = rule.doubtless
        self._head = _optional(rule.head, words)
        self._line = None if rule.line is None else compiled(f"(?m:^)(?:{rule.line})", words, _KEY)
        self._tail = _optional(rule.tail, words)
        self._tools = _optional(rule.tools, words)

    @property
    def of_any_tool(self) -> bool:
        return self._tools is None

    @property
    def is_fact(self) -> bool:
        """Whether it is a success that any tool tells even with contents, such as an exit code."""
        return self.value == 1 and self.of_contents and self.of_any_tool

    def holds(self, result: _Result) -> bool:
        if result.is_contents and not self.of_contents:
            return False
        if self._tools is not None and not self._tools.search(result.tool):
            return False
        if self._head is not None and not self._head.match(result.head):
            return False
        if self._line is not None and not self._line.search(result.ends):
            return False
        return self._tail is None or self._tail.search(result.tail) is not None


def _optional(pattern: str | None, words: Words) -> re.Pattern[str] | None:
    return None if pattern is None else compiled(pattern, words, _KEY)


def _unwrapped(text: str) -> str:
    """Without the element that a client puts around a whole result."""
    element = _ELEMENT.fullmatch(text)
    return element["inside"].strip() if element else text


def _use_of(call: ToolCall) -> ToolUse:
    function = call.get("function") or FunctionCall()
    text = function.get("arguments") or "{}"
    try:
        arguments = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, TypeError, RecursionError):
        arguments = {}
    fields = arguments if isinstance(arguments, dict) else {}
    commands = filter(None, (_command(fields.get(key)) for key in _COMMANDS))
    return ToolUse(str(function.get("name") or ""), next(commands, ""))


def _command(value: object) -> str:
    """The command in an argument: a string, or words of which the shell's own are left out."""
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return _SHELLS.sub("", " ".join(value), count=1).strip()
    return value.strip() if isinstance(value, str) else ""


def _plain(call_id: object) -> str:
    return _MARKS.sub("", call_id) if isinstance(call_id, str) else ""
