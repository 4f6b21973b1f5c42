"""The verdict of a tool's result on the call: fields of JSON first, then patterns at its ends.

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
from clawrl_gym.judge.signals.idle_words import named_by, without_idle
from clawrl_gym.judge.signals.patterns import Words, compiled
from clawrl_gym.judge.signals.tool_fields import Fields, output_that_ended_well, parsed

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
_LOGGED = re.compile(
    r"\[?(?:\d{4}[-/]\d\d[-/]\d\d[T ])?\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?"
    r"(?![^\s\]])|\[ *\d+\.\d+\] |(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d "
)
"""The time at the beginning of a line of a log or chat."""
_CHECKS = re.compile(
    r"(?:^|_)(?:check|scan|lint|valid|verif|audit|detect|diagnos|inspect|test|plagiar|monitor"
    r"|conflict|duplicate|error|problem|issue|fail|alert|incident|blocker|diff|compare)"
)
"""Names of tools that look for what should not be there."""
_WORD = re.compile(r"[^\s;|&()\"'`<>]+")
_COMPLAINS = re.compile(r"^(?:\S*/)?([\w.+-]+): ", re.MULTILINE)
_SHELL_NAMES = frozenset(("bash", "sh", "zsh", "dash", "sudo", "ssh", "timeout"))
"""Programs that complain of a command, beside its own."""
_CLIENTS = frozenset(
    ("git", "gh", "docker", "podman", "kubectl", "oc", "npm", "pip", "pip3", "apt", "brew")
)
"""Programs that do not begin a complaint with their name."""
_COMPLAINTS_OF_CLIENTS = frozenset(("fatal", "error", "Error", "ERROR", "E", "unknown"))
_SHELLS = re.compile(r"(?:\S*/)?(?:ba|z|da)?sh -\w*c ")
_UNKNOWN = Finding(None, {"rule": "unknown", "reason": "no rule knows what the tool gave back"})
_CONTRADICTION = Finding(
    None, {"rule": "contradiction", "reason": "the tool gave back a success and an error"}
)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tool call that a result came back to."""

    name: str
    """Name of the tool; empty when it is not known."""
    command: str
    """The command that it ran; empty for other tools."""
    named: frozenset[str] = frozenset()
    """Stems of words for a failure that the call itself has: they tell nothing in its result."""

    @property
    def plain_name(self) -> str:
        """Its name in lower case, without a server's name: `mcp__files__readFile` is read_file."""
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
    """The command and its output, where a reply in words has one code block."""
    blocks = _BLOCK.findall(text_of(reply))
    command = blocks[0].strip() if len(blocks) == 1 else ""
    return ToolUse("", command, named_by("", command)), output


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
            of_name = named_by(call.plain_name, None)
            is_file = self._is_file(call)
            outcome = self._fields.outcome(answer, call.name, is_file, of_name, call.named)
            if outcome == "failed":
                return Finding(-1, {"rule": "fields"})
            if outcome == "empty":
                checks = _CHECKS.search(call.plain_name)  # nothing found is what one hopes for
                return _UNKNOWN if checks else Finding(-1, {"rule": "empty"})
            if outcome == "succeeded" or self._ended_well(answer, call):
                return self._success("fields")
            if answer and self._is_data(text, call):
                return self._success("data")
            if answer:
                return _UNKNOWN  # what words in it are about is not known
        return self._in_words(text, call)

    def _in_words(self, text: str, call: ToolUse) -> Finding:
        result = self._result(text, call)
        matching = [rule for rule in self._rules if rule.holds(result)]
        values = {rule.value for rule in matching}
        if 0 not in values and -1 in values and any(rule.is_fact for rule in matching):
            return _CONTRADICTION
        in_doubt = self._is_doubted(text) and not self._is_shown(text, call)
        for value in (0, -1, 1):
            for rule in matching:
                if rule.value == value and not (rule.doubtless and in_doubt):
                    recovered = value == -1 and not rule.of_contents and self._ends_well(result)
                    return _CONTRADICTION if recovered else self._by(rule)
        return _UNKNOWN

    def _result(self, text: str, call: ToolUse) -> _Result:
        is_contents = self._is_file(call) or self._is_page(call) or _is_log(text)
        telling = without_idle(text, call.named, call.command)
        return _Result(text, telling, call.plain_name, is_contents, self._is_shown(text, call))

    def _ends_well(self, result: _Result) -> bool:
        """Whether the last of several lines is a success: what failed before was tried again."""
        _, several, last = result.text.rpartition("\n")
        if not several or self._is_doubted(last):
            return False
        line = replace(result, text=last, telling=last)
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

    def _is_shown(self, text: str, call: ToolUse) -> bool:
        """Whether the words are those of what a command shows: none of its programs complains."""
        if self._reading is None or not self._reading.match(call.command):
            return False
        programs = {word.rpartition("/")[2] for word in _WORD.findall(call.command)}
        complainers = programs | _SHELL_NAMES
        if not programs.isdisjoint(_CLIENTS):
            complainers |= _COMPLAINTS_OF_CLIENTS
        return complainers.isdisjoint(match.group(1) for match in _COMPLAINS.finditer(text))

    def _ended_well(self, answer: object, call: ToolUse) -> bool:
        """Whether a command that shows something ended with exit code 0 and no complaint."""
        output = output_that_ended_well(answer)
        return output is not None and self._is_shown(output, call)

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
    telling: str
    """The text without words for a failure that tell none."""
    tool: str
    is_contents: bool
    is_shown: bool
    """Whether a command that only shows things printed it, without a complaint."""


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
        if result.is_shown and self.of_contents == "tools":
            return False
        if self._tools is not None and not self._tools.search(result.tool):
            return False
        if not self._is_in(result.text):
            return False
        return self.value != -1 or result.telling == result.text or self._is_in(result.telling)

    def _is_in(self, text: str) -> bool:
        if self._head is not None and not self._head.match(text[:_HEAD_CHARS]):
            return False
        if self._line is not None and not self._line.search(_ends(text)):
            return False
        return self._tail is None or self._tail.search(text[-_TAIL_CHARS:]) is not None


def _ends(text: str) -> str:
    """The text that lines are looked for in: whole lines only."""
    if len(text) <= _HEAD_CHARS + _TAIL_CHARS:
        return text
    return f"{text[:_HEAD_CHARS]}\n{text[-_TAIL_CHARS:].partition(chr(10))[2]}"


def _optional(pattern: str | None, words: Words) -> re.Pattern[str] | None:
    return None if pattern is None else compiled(pattern, words, _KEY)


def _unwrapped(text: str) -> str:
    """The text without the element that a client puts around a whole result."""
    element = _ELEMENT.fullmatch(text)
    return element["inside"].strip() if element else text


def _is_log(text: str) -> bool:
    """Whether each of the first lines has a time of its own: it tells of others then."""
    lines = text.split("\n", 3)[:3]
    return len(lines) > 1 and all(_LOGGED.match(line) for line in lines[:2])


def _use_of(call: ToolCall) -> ToolUse:
    function = call.get("function") or FunctionCall()
    text = function.get("arguments") or "{}"
    try:
        arguments = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, TypeError, RecursionError):
        arguments = {}
    fields = arguments if isinstance(arguments, dict) else {}
    commands = filter(None, (_command(fields.get(key)) for key in _COMMANDS))
    name = str(function.get("name") or "")
    return ToolUse(name, next(commands, ""), named_by(name, fields))


def _command(value: object) -> str:
    """The command in an argument: a string, or words of which the shell's own are left out."""
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return _SHELLS.sub("", " ".join(value), count=1).strip()
    return value.strip() if isinstance(value, str) else ""


def _plain(call_id: object) -> str:
    return _MARKS.sub("", call_id) if isinstance(call_id, str) else ""
