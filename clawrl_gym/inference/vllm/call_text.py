"""Tool calls in the text of a reply: where they begin, what they say, what stands around them.

vLLM's own tool parsers lose text. One call that is not JSON takes all others of its reply away,
words behind a call vanish, and a streamed call whose arguments stand before its name becomes
garbage. So the formats of the policies in `conf/policy` are read here, each call for itself:

- A call that can be read becomes one, however its members are ordered.
- A call with a name whose arguments cannot be read keeps them as they are, and says why.
- What has no name stays text, and so does everything around the calls.

What a text says does not depend on the pieces in which it came.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

Arguments = Callable[[str], str | None]
"""The arguments of one call's text as vLLM's parser types them; None where it finds no call."""
_SHOWN = 200
_SPACE = re.compile(r"\s*")
_MEMBERS = ("name", "arguments", "parameters", "id", "type")
_ARGUMENTS = ("arguments", "parameters")
_ESCAPED = r"\u003c"
"""A '<' in JSON."""


@dataclass(frozen=True, slots=True)
class CallText:
    """One call as the policy wrote it."""

    name: str
    arguments: str
    """A JSON object, or what the policy wrote in its place."""
    id: str = ""
    """Id of the call, where a parser gave it one."""


@dataclass(slots=True)
class CallReading:
    """Parse of the text from the first call on."""

    calls: list[CallText] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """Text around the calls, and calls that could not be read, in order."""
    failures: list[str] = field(default_factory=list)
    """Errors of calls that could not be parsed, in words for the policy."""
    notes: list[str] = field(default_factory=list)
    """Notes on calls that were parsed in spite of an error."""

    def say(self, text: str) -> None:
        """Keep text that is not a call."""
        if text.strip():
            self.said.append(text)

    def fail(self, text: str, why: str) -> None:
        """Keep a call that cannot be read as text."""
        self.say(text)
        self.failures.append(f"the tool call {_shown(text)} could not be read: {why}")

    def leave(self, text: str, where: str) -> None:
        """Keep what stands where nothing belongs; brackets alone are only noted."""
        if not text.strip():
            return
        if any(character.isalnum() for character in text):
            self.say(text)
        self.notes.append(f"{where} stands {_shown(text)}, expected nothing")


class CallFormat(Protocol):
    """A policy's syntax of calls."""

    def said_before_calls(self, content: str, *, is_first: bool) -> int:
        """Number of characters that are surely not part of a call, whatever follows. `is_first`:
        the reply's content begins with them."""

    def starts(self, content: str) -> bool:
        """Whether a call begins there."""

    def read(self, text: str, arguments: Arguments) -> CallReading:
        """The calls of a text that begins with one."""


@dataclass(frozen=True, slots=True)
class TaggedJson:
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, as Hermes and Qwen write it."""

    start: str = "<tool_call>"
    end: str = "</tool_call>"

    def said_before_calls(self, content: str, *, is_first: bool) -> int:
        return _before(content, self.start)

    def starts(self, content: str) -> bool:
        return content.startswith(self.start)

    def read(self, text: str, arguments: Arguments) -> CallReading:
        reading, at = CallReading(), 0
        while at < len(text):
            begin = _find(text, at, self.start)
            reading.say(text[at:begin])
            if begin == len(text):
                break
            inside = begin + len(self.start)
            # a value may hold the tags itself: they are looked for behind the JSON
            json_end = value_end(text, _skip(text, inside)) or inside
            end = _find(text, json_end, self.end, self.start)
            at = end + len(self.end) if text.startswith(self.end, end) else end
            _read_objects(text[inside:end], text[begin:at], reading)
        return reading


@dataclass(frozen=True, slots=True)
class TaggedXml:
    """`<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`, as
    Qwen3-Coder and Qwen3.5 write it; some leave the outer tags out."""

    start: str = "<tool_call>"
    end: str = "</tool_call>"
    function: str = "<function="
    function_end: str = "</function>"
    parameter: str = "<parameter="
    parameter_end: str = "</parameter>"

    def said_before_calls(self, content: str, *, is_first: bool) -> int:
        return min(_before(content, self.start), _before(content, self.function))

    def starts(self, content: str) -> bool:
        return content.startswith((self.start, self.function))

    def read(self, text: str, arguments: Arguments) -> CallReading:
        reading, at = CallReading(), 0
        opened, count = -1, 0
        """Position of the outer tag, and the number of functions since."""
        while at < len(text):
            if text.startswith(self.function, at):
                at, count = self._read_function(text, at, reading, arguments), count + 1
                continue
            begins, ends = text.startswith(self.start, at), text.startswith(self.end, at)
            if opened >= 0 and not count and (begins or ends):
                self._fail(text[opened : at + len(self.end) * ends], reading)
            if begins or (ends and opened >= 0):
                opened, count = at if begins else -1, 0
                at += len(self.start if begins else self.end)
                continue
            after = _find(text, at + 1, self.start, self.function, *([self.end] * (opened >= 0)))
            if opened < 0:
                reading.say(text[at:after])
            elif count or text.startswith(self.function, after):
                reading.leave(text[at:after], "in a tool call")
            at = after
        if opened >= 0 and not count:
            self._fail(text[opened:], reading)
        return reading

    def _fail(self, text: str, reading: CallReading) -> None:
        reading.fail(text, f"expected {self.function}NAME> in it")

    def _read_function(self, text: str, at: int, reading: CallReading, arguments: Arguments) -> int:
        """Read one function; where it ends."""
        bracket = _find(text, at, ">")
        name = text[at + len(self.function) : bracket].strip() if bracket < len(text) else ""
        parameters, end = self._parameters(text, bracket + 1)
        closes = text.startswith(self.function_end, end)
        if name and "<" not in name and (closes or _find(text, end, *self._marks) == end):
            typed = self._typed(text[at : bracket + 1], parameters, arguments)
            written = text[bracket + 1 : end].strip()
            reading.calls.append(CallText(name, written if typed is None else typed))
            return end + len(self.function_end) * closes
        cut = _find(text, min(end, len(text)), self.function_end, *self._marks)
        after = cut + len(self.function_end) * text.startswith(self.function_end, cut)
        if not name or "<" in name:
            reading.fail(text[at:after], "expected a name and a '>' behind it")
        else:
            reading.calls.append(CallText(name, text[bracket + 1 : cut].strip() or "<"))
        return after

    @property
    def _marks(self) -> tuple[str, str, str]:
        """Texts that may stand behind a function without its end."""
        return self.start, self.end, self.function

    def _parameters(self, text: str, at: int) -> tuple[list[tuple[str, str]], int]:
        """The names and values of parameters that are whole, and where they and white space end.
        One ends where the next one begins, too."""
        found, at = list[tuple[str, str]](), _skip(text, at)
        while text.startswith(self.parameter, at):
            value = text.find(">", at) + 1
            end = _find(text, value, self.parameter_end, self.parameter) if value else len(text)
            if end == len(text):
                break
            found.append((text[at + len(self.parameter) : value - 1], text[value:end]))
            at = end + len(self.parameter_end) * text.startswith(self.parameter_end, end)
            at = _skip(text, at)
        return found, at

    def _typed(
        self, head: str, parameters: list[tuple[str, str]], arguments: Arguments
    ) -> str | None:
        """A function's arguments; None where one of them has two values, or has no type.

        A value may hold the tags themselves, so vLLM reads it without any: a '<' in JSON may be
        escaped, and text is put back.
        """
        values = dict(parameters)
        if len({*parameters}) > len(values):
            return None
        body = "".join(
            f"{self.parameter}{key}>{value.replace('<', _ESCAPED)}{self.parameter_end}\n"
            for key, value in values.items()
        )
        typed = arguments(f"{self.start}\n{head}\n{body}{self.function_end}\n{self.end}")
        if typed is None or not any("<" in value for value in values.values()):
            return typed
        fields = json.loads(typed)
        for key, value in values.items():
            if "<" in value and isinstance(fields.get(key), str):
                fields[key] = value.removeprefix("\n").removesuffix("\n")
        return json.dumps(fields, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class LeadingJson:
    """A reply that is nothing but JSON objects, perhaps behind a mark, as Llama 3 writes it."""

    mark: str = "<|python_tag|>"

    def said_before_calls(self, content: str, *, is_first: bool) -> int:
        may_start = is_first and (self.mark.startswith(content) or self.starts(content))
        return 0 if may_start else len(content)

    def starts(self, content: str) -> bool:
        return content.startswith(("{", self.mark))

    def read(self, text: str, arguments: Arguments) -> CallReading:
        reading, body = CallReading(), text.removeprefix(self.mark)
        _read_objects(body, None, reading, separators=";,", needs_arguments=True)
        if reading.calls or body != text:
            return reading
        return CallReading(said=[text])  # an answer in JSON calls nothing


@dataclass(frozen=True, slots=True)
class MarkedJson:
    """`[TOOL_CALLS][{"name": ..., "arguments": {...}}]`, or `[TOOL_CALLS]NAME[ARGS]{...}` for each
    call, as Mistral writes it."""

    start: str = "[TOOL_CALLS]"
    marks: tuple[str, ...] = ("[CALL_ID]", "[ARGS]")

    def said_before_calls(self, content: str, *, is_first: bool) -> int:
        return _before(content, self.start)

    def starts(self, content: str) -> bool:
        return content.startswith(self.start)

    def read(self, text: str, arguments: Arguments) -> CallReading:
        reading, at = CallReading(), 0
        while at < len(text):
            inside = at + len(self.start)
            # a value may hold the mark itself: the next one is looked for behind the JSON
            at = _find(text, value_end(text, self._value(text, inside)) or inside, self.start)
            body = text[inside:at]
            if body.lstrip().startswith(("[", "{")) and not body.lstrip().startswith(self.marks):
                _read_objects(body, None, reading)
            else:
                self._read_named(body, reading)
        return reading

    def _value(self, text: str, at: int) -> int:
        """Position of a call's JSON, named or not."""
        begin = _skip(text, at)
        if text.startswith("[", begin) and not text.startswith(self.marks, begin):
            return begin
        first = _find(text, begin, self.marks[-1], "{", self.start)
        return _skip(text, first + len(self.marks[-1]) * text.startswith(self.marks[-1], first))

    def _read_named(self, body: str, reading: CallReading) -> None:
        ends = [at for mark in (*self.marks, "{") if (at := body.find(mark)) >= 0]
        name = body[: min(ends, default=0)].strip()
        if not name or any(character.isspace() for character in name):
            return reading.fail(self.start + body, "expected a name and its arguments")
        at = self._value(body, 0)
        end = value_end(body, at)
        written = body[at:end].rstrip() or "{"
        reading.calls.append(CallText(name, "{}" if written == "null" else written))
        return reading.say("" if end is None else body[end:])


FORMATS: dict[str, CallFormat] = {
    "Hermes2ProToolParser": TaggedJson(),
    "Qwen3EngineToolParser": TaggedXml(),
    "Llama3JsonToolParser": LeadingJson(),
    "MistralToolParser": MarkedJson(),
}
"""Formats by the class of vLLM's parser; others are read by vLLM alone."""


def value_end(text: str, at: int) -> int | None:
    """End of the JSON value at a position; None where there is none."""
    try:
        return _DECODER.raw_decode(text, at)[1]
    except (ValueError, RecursionError):
        return None


def _no_json(name: str) -> NoReturn:
    """NaN and its like are Python's, and no other client's."""
    raise ValueError(f"got {name}, expected JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_json)


def _read_objects(
    body: str,
    whole: str | None,
    reading: CallReading,
    separators: str = ",",
    *,
    needs_arguments: bool = False,
) -> None:
    """Read the objects of a call's text, one or a list. `whole`: what stays of it as text when its
    first object is not a call; None: the object itself."""
    at, count = _skip(body, 0), 0
    is_list = body.startswith("[", at)
    at = _skip(body, at + is_list)
    while body.startswith("{", at):
        end, failure = _read_object(body, at, reading, needs_arguments=needs_arguments)
        if failure and whole is not None and not (count or is_list):
            return reading.fail(whole, failure)
        if failure:
            reading.fail(body[at:end], failure)
        if end is None:
            return None
        count, at = count + 1, _skip(body, end)
        if body[at : at + 1] and body[at] in separators:
            at = _skip(body, at + 1)
    if not count:
        return reading.fail(whole or body, "expected a JSON object with a name and arguments")
    if is_list and body.startswith("]", at):
        at += 1
    return reading.leave(body[at:], "behind a tool call")


def _read_object(
    body: str, at: int, reading: CallReading, *, needs_arguments: bool
) -> tuple[int | None, str]:
    """Read one call; where it ends, None where nothing behind it can be read, and why it is
    none."""
    found = _Members.of(body, at)
    names, values = found.values("name"), found.values(*_ARGUMENTS)
    is_broken = found.broken in _ARGUMENTS
    if len(names) != 1 or not (name := _text(names[0])):
        return found.end, "expected one name in it"
    if len(values) + is_broken > 1:
        return found.end, "it has more than one set of arguments"
    others = [key for key, _ in found.spans if key not in _MEMBERS]
    is_whole = found.end is not None
    if not values and not is_broken and (needs_arguments or (is_whole and others)):
        return found.end, f"it has no arguments{f', but {others}' if others else ''}"
    arguments = values[0] if values else "{}"
    if is_broken or (found.end is None and not values):
        arguments = body[found.stopped :].rstrip() or "{"
    reading.calls.append(CallText(name, "{}" if arguments == "null" else arguments))
    for key, value in found.spans:
        if key not in _MEMBERS:
            reading.notes.append(f"no tool gets the member {key!r} of a call: {_shown(value)}")
    if found.end is None and values:
        reading.notes.append("a tool call lacks its last '}'")
        reading.leave(body[found.stopped :], "behind a tool call")
    return found.end, ""


@dataclass(frozen=True, slots=True)
class _Members:
    """An object's members as far as they can be read."""

    spans: list[tuple[str, str]]
    """Keys and the JSON of their values, in order."""
    end: int | None
    """End of the object; None where it is not whole."""
    stopped: int
    """Position where reading stopped."""
    broken: str | None = None
    """The key whose value could not be read."""

    def values(self, *keys: str) -> list[str]:
        """Different values of some keys."""
        return list(dict.fromkeys(value for key, value in self.spans if key in keys))

    @classmethod
    def of(cls, text: str, at: int) -> _Members:
        spans: list[tuple[str, str]] = []
        at = _skip(text, at + 1)
        if text.startswith("}", at):
            return cls(spans, at + 1, at + 1)
        while True:
            end = value_end(text, at) if text.startswith('"', at) else None
            if end is None:
                return cls(spans, None, at)
            key, at = json.loads(text[at:end]), _skip(text, end)
            if not text.startswith(":", at):
                return cls(spans, None, at, key)
            at = _skip(text, at + 1)
            end = value_end(text, at)
            if end is None:
                return cls(spans, None, at, key)
            spans.append((key, text[at:end]))
            at = _skip(text, end)
            if text.startswith("}", at):
                return cls(spans, at + 1, at + 1)
            if not text.startswith(",", at):
                return cls(spans, None, at)
            at = _skip(text, at + 1)


def _text(value: str) -> str:
    """A JSON text; empty for other values."""
    text = json.loads(value)
    return text if isinstance(text, str) else ""


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _find(text: str, at: int, *marks: str) -> int:
    """Position of the first of the marks from `at` on; the text's end where there is none."""
    return min((found for mark in marks if (found := text.find(mark, at)) >= 0), default=len(text))


def _before(content: str, mark: str) -> int:
    """Up to a mark, or to what may become one."""
    at = content.find(mark)
    if at >= 0:
        return at
    longest = min(len(mark) - 1, len(content))
    held = next((n for n in range(longest, 0, -1) if mark.startswith(content[-n:])), 0)
    return len(content) - held


def _shown(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
