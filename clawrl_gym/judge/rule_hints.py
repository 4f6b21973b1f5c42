"""Hints without a model: what a next state teaches about a turn, in one of three forms of words.

A lesson is short, on one line, and made of what came back; nothing in it can end a turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from clawrl_gym.judge.prompt import as_data

_REPORT_CHARS = 400
_ERROR_CHARS = 200
_WORDS_CHARS = 300
_READ_CHARS = 20_000
_REPORT = re.compile(r"\s*Test report: (?P<end>passed|failed)\s*(?:\n|\Z)", re.IGNORECASE)
_FAILED_TEST = re.compile(r"\s*(?:FAILED|FAIL:|ERROR|not ok \d+ -)\s+(?P<test>\S.*?)(?: - .*)?$")
_STOPPED = re.compile(r"^\(stopped: (?P<how>[^()\n]*)\)$", re.MULTILINE)
_EXIT = r"exit(?:ed)?(?: with)?(?: exit)?(?: code| status)?[:= ]+(?P<code>-?\d+)"
_CODE = re.compile(_EXIT, re.IGNORECASE)
_NOTE = re.compile(
    rf"[(\[][^()\[\]\n]*[)\]]\.?|(?:command |process )?{_EXIT}\.?|=+ .* =+", re.IGNORECASE
)
"""What terminals, tools and test programs put below the words that tell something."""
_COLOUR = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_TELLING = re.compile(
    r"error|exception|fail|fatal|panic|denied|cannot|can't|unable|invalid|illegal|unknown|unexpected"
    r"|unrecognized|missing|not (?:found|permitted|a\b|supported|exist)|no such|refused|timed out"
    r"|expected|already exists|too (?:long|many|large)",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"```.*?(?:```|\Z)|^[ \t]*>.*?$", re.DOTALL | re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\s*\n\s*")
_MESSAGE_FIELDS = ("error", "message", "detail", "details", "stderr", "reason", "output", "stdout")


def is_report(text: str) -> bool:
    """Whether this is what an environment's checks said at the end of an episode."""
    return _REPORT.match(text) is not None


def lesson_of_report(report: str) -> str:
    """Of a report with failures; empty when there is nothing to learn from it."""
    begin = _REPORT.match(report)
    if begin is None or begin["end"].lower() == "passed":
        return ""
    lines = [line.strip() for line in report[begin.end() :][:_READ_CHARS].splitlines()]
    failures = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    tests = [found["test"] for line in lines if (found := _FAILED_TEST.match(line))]
    named = failures or tests or [line for line in lines if line]
    told = "; ".join(_fitting(_line(words).rstrip(".;") for words in named))
    return f"The checks failed: {told}." if told else "The checks failed."


def lesson_of_error(output: str) -> str:
    """Of a failed command or tool."""
    told = _of_object(output) or _of_lines(output)
    told = _cut(_line(told), _ERROR_CHARS).rstrip(".")
    return f"It failed: {told}." if told else "It failed."


def lesson_of_words(text: str) -> str:
    """Of a person's correction: its first sentences; empty when it has no words."""
    kept, room = list[str](), _WORDS_CHARS
    for sentence in _SENTENCE_END.split(_QUOTED.sub("\n", text[:_READ_CHARS]).strip()):
        words = _line(sentence)
        if kept and len(words) + 1 > room:
            break
        if words:
            kept.append(_cut(words, _WORDS_CHARS))
            room -= len(words) + 1
    told = " ".join(kept)
    return f"The user said: {told}" if re.search(r"\w", told) else ""


def _of_lines(output: str) -> str:
    """The last line that tells an error; without one the last line that is no note."""
    end = output[-_READ_CHARS:]
    stopped = _STOPPED.search(end)
    if stopped:
        return stopped["how"]
    lines = [line.strip() for line in end.splitlines() if re.search(r"\w", line)]
    said = [line for line in lines if not _NOTE.fullmatch(line)]
    if said:
        return next((line for line in reversed(said) if _TELLING.search(line)), said[-1])
    code = _CODE.search(" ".join(lines))
    return f"exit code {code['code']}" if code else ""


def _of_object(output: str) -> str:
    """What an error object says; empty when the output is none."""
    text = output.strip()
    if not (text.startswith("{") and text.endswith("}")) or len(text) > _READ_CHARS:
        return ""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return _message(fields, depth=0)


def _message(fields: Any, depth: int) -> str:
    if isinstance(fields, str):
        return _of_lines(fields)
    if not isinstance(fields, dict) or depth > 3:
        return ""
    found = (_message(fields[name], depth + 1) for name in _MESSAGE_FIELDS if name in fields)
    return next((words for words in found if words), "")


def _fitting(parts: Iterable[str]) -> list[str]:
    """The first parts that fit a report's lesson; the very first one is cut to fit."""
    kept, room = list[str](), _REPORT_CHARS
    for part in parts:
        if kept and len(part) + 2 > room:
            break
        kept.append(_cut(part, _REPORT_CHARS))
        room -= len(part) + 2
    return kept


def _line(text: str) -> str:
    """On one line, and without anything that a chat template takes for control."""
    plain = _COLOUR.sub("", text)
    printable = "".join(sign if sign.isprintable() else " " for sign in plain)
    return " ".join(as_data(printable).split())


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3].rstrip() + "..."
