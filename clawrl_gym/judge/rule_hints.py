"""Hints without a model: what a next state teaches about a turn, in one of three forms of words.

A hint is short, on one line, and made of what came back; nothing in it can end a turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from clawrl_gym.judge.models.prompt import as_data

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
"""Lines that terminals, tools and test programs add below the words that matter."""
_COLOUR = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_ERROR_WORDS = re.compile(
    r"error|exception|fail|fatal|panic|denied|cannot|can't|unable|invalid|illegal|unknown|unexpected"
    r"|unrecognized|missing|not (?:found|permitted|a\b|supported|exist)|no such|refused|timed out"
    r"|expected|already exists|too (?:long|many|large)",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"```.*?(?:```|\Z)|^[ \t]*>.*?$", re.DOTALL | re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\s*\n\s*")
_MESSAGE_FIELDS = ("error", "message", "detail", "details", "stderr", "reason", "output", "stdout")


def is_report(text: str) -> bool:
    """Whether this is what an environment's checks report at the end of an episode."""
    return _REPORT.match(text) is not None


def hint_of_report(report: str) -> str:
    """The hint in a report with failures; empty when it teaches nothing."""
    begin = _REPORT.match(report)
    if begin is None or begin["end"].lower() == "passed":
        return ""
    lines = [line.strip() for line in report[begin.end() :][:_READ_CHARS].splitlines()]
    failures = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    tests = [match["test"] for line in lines if (match := _FAILED_TEST.match(line))]
    parts = failures or tests or [line for line in lines if line]
    reasons = _fitting((_line(words).rstrip(".;") for words in parts), "; ", _REPORT_CHARS)
    return f"The checks failed: {reasons}." if reasons else "The checks failed."


def hint_of_error(output: str) -> str:
    """The hint in the output of a failed command or tool."""
    error = _of_object(output) or _of_lines(output)
    reason = _cut(_line(error), _ERROR_CHARS).rstrip(".")
    return f"It failed: {reason}." if reason else "It failed."


def hint_of_words(text: str) -> str:
    """The hint in a person's correction: its first sentences; empty when it has no words."""
    sentences = _SENTENCE_END.split(_QUOTED.sub("\n", text[:_READ_CHARS]).strip())
    text_of_user = _fitting(map(_line, sentences), " ", _WORDS_CHARS)
    return f"The user said: {text_of_user}" if re.search(r"\w", text_of_user) else ""


def _of_lines(output: str) -> str:
    """The last line about an error; without one the last line that is not a note."""
    end = output[-_READ_CHARS:]
    stopped = _STOPPED.search(end)
    if stopped:
        return stopped["how"]
    lines = [line.strip() for line in end.splitlines() if re.search(r"\w", line)]
    words = [line for line in lines if not _NOTE.fullmatch(line)]
    if words:
        return next((line for line in reversed(words) if _ERROR_WORDS.search(line)), words[-1])
    code = _CODE.search(" ".join(lines))
    return f"exit code {code['code']}" if code else ""


def _of_object(output: str) -> str:
    """The message of an error object; empty when the output is not one."""
    text = output.strip()
    if not (text.startswith("{") and text.endswith("}")) or len(text) > _READ_CHARS:
        return ""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return _message(fields, depth=0)


def _message(fields: object, depth: int) -> str:
    if isinstance(fields, str):
        return _of_lines(fields)
    if not isinstance(fields, dict) or depth > 3:
        return ""
    messages = (_message(fields[name], depth + 1) for name in _MESSAGE_FIELDS if name in fields)
    return next((words for words in messages if words), "")


def _fitting(parts: Iterable[str], separator: str, most_chars: int) -> str:
    """The first parts that fit together; the very first one is cut to fit."""
    joined = ""
    for part in filter(None, parts):
        if not joined:
            joined = _cut(part, most_chars)
        elif len(joined) + len(separator) + len(part) <= most_chars:
            joined += separator + part
        else:
            break
    return joined


def _line(text: str) -> str:
    """The text on one line, without anything that a chat template takes for control."""
    plain = _COLOUR.sub("", text)
    printable = "".join(sign if sign.isprintable() else " " for sign in plain)
    return " ".join(as_data(printable).split())


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3].rstrip() + "..."
