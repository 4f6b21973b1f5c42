"""Actions as lines of text: `type(3, "pens")`, and whatever else models write for it.

A call is read, never run. Around the calls may stand prose, lists and fences. A text may go over
lines, unknown escapes stay as they are, words need no quotes, and where nothing else is on the
line no brackets are needed: `press Enter`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TypeAlias

from clawrl_gym.envs.gui.action import GuiAction
from clawrl_gym.envs.gui.aliases import NAMES
from clawrl_gym.envs.gui.schema import FORMS

MAX_CHARS = 20_000
"""Most characters of one call."""
MAX_CALLS = 64
"""Places in a text where one is looked for."""


class Bare(str):
    """A value that stood without quotes: a number or a word."""

    __slots__ = ()


Argument: TypeAlias = "str | list[Argument]"
"""A text, what stood without quotes, or a list of such."""


@dataclass(frozen=True, slots=True)
class TextCall:
    """One call as it stands in the text."""

    source: str
    name: str = ""
    positional: tuple[Argument, ...] = ()
    keywords: dict[str, Argument] = field(default_factory=dict)
    unread: str = ""
    """The part of it that cannot be read, in words."""
    form: str | None = None
    """JSON of a <tool_call>, instead of all the others."""
    is_loose: bool = False
    """Written so that it may be prose: it is prose when it makes no sense as an action."""


class _Unread(Exception):
    """Reason in words: what was got and what was expected."""


_NAME = "|".join(sorted(NAMES, key=len, reverse=True))
_HEAD = r"(?:[ \t>*`+-]|\d{1,2}[.)][ \t])*(?:action[ \t]*:[ \t]*`?)?"
_START = re.compile(
    rf"(?P<form><tool_call>)|^{_HEAD}(?P<name>{_NAME})\b"
    rf"(?:(?P<open>[ \t]*\()|(?P<rest>[ \t][^\n]*|`*)$)",
    re.MULTILINE | re.IGNORECASE,
)
_NEXT = re.compile(rf"[ \t`]*[;,]?[ \t`]*(?P<name>{_NAME})(?P<open>\()", re.IGNORECASE)
_ALONE = re.compile(r"^[ \t`]*([A-Za-z]\w{0,30})\([^\n]*\)[`; \t]*$", re.MULTILINE)
_KEYWORD = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(?!=)(.*)", re.DOTALL)
_QUOTE = re.compile(r'"""|\'\'\'|"|\'|`')
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[nrtbf\\/'\"])")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_NUMBER = re.compile(r"\[?-?\d+(?:\.\d+)?\]?")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_OPENERS = frozenset("=[(,{:")
"""A quote begins a text only where a value begins: there are apostrophes, too."""
_TAKES_A_WORD = frozenset({"press", "key", "scroll", "goto", "navigate", "new_tab"})
_NEEDS_NOTHING = frozenset(kind for kind, form in FORMS.items() if not form.needs)


def find_calls(text: str) -> list[TextCall]:
    """The calls in the order of the text; what merely looks like one is prose."""
    calls: list[TextCall] = []
    at = 0
    for _ in range(MAX_CALLS):
        if (match := _START.search(text, at)) is None:
            break
        at = match.end()
        if match["form"]:
            call, at = _form_at(text, at)
            calls.append(call)
        elif match["open"]:
            at = _brackets_at(text, match, calls)
        elif (line := _without_brackets(match["name"].lower(), match["rest"])) is not None:
            calls.append(line)
    return calls


def unknown_calls(text: str) -> list[str]:
    """Names of what stands on a line like a call, and is no action."""
    return [name for name in dict.fromkeys(_ALONE.findall(text)) if name.lower() not in NAMES]


def format_action(action: GuiAction) -> str:
    """The usual notation of an action; `find_calls` reads it again."""
    return f"{action.kind}({', '.join(_arguments(action))})"


def _arguments(action: GuiAction) -> list[str]:
    ids = [str(action.id)] if action.id is not None else []
    points = [f"{n}={getattr(action, n):g}" for n in ("x", "y") if getattr(action, n) is not None]
    text = [json.dumps(action.text, ensure_ascii=False)]
    match action.kind:
        case "type" | "select":
            return ids + text
        case "press":
            return [*ids, json.dumps(action.keys, ensure_ascii=False)]
        case "scroll":
            amount = [f"{action.amount:g}"] if action.amount != 1 else []
            return [*ids, f'"{action.direction}"', *amount, *points]
        case "drag":
            return _drag_arguments(action)
        case "wait":
            return [f"{action.seconds:g}"]
        case "goto" | "answer":
            return text
        case "new_tab" | "give_up":
            return text if action.text else []
        case "switch_tab" | "close_tab":
            return [] if action.tab is None else [str(action.tab)]
    return ids + points


def _drag_arguments(action: GuiAction) -> list[str]:
    if action.id is not None and action.to_id is not None:
        return [str(action.id), str(action.to_id)]
    names = ("id", "x", "y", "to_id", "to_x", "to_y")
    values = {name: getattr(action, name) for name in names}
    return [f"{name}={value:g}" for name, value in values.items() if value is not None]


def _form_at(text: str, at: int) -> tuple[TextCall, int]:
    """The JSON after a <tool_call>, and where the text continues."""
    end = text.find("</tool_call>", at)
    if end < 0:
        return TextCall(text[at : at + 80].strip(), unread="a <tool_call> that is not closed"), len(
            text
        )
    form = text[at:end].strip()
    if form.startswith("```"):
        form = form.partition("\n")[2].removesuffix("```")
    return TextCall(form, form=form), end + len("</tool_call>")


def _brackets_at(text: str, first: re.Match[str], calls: list[TextCall]) -> int:
    """Read `name(...)`, and those that follow it on the line. Returns where the text continues."""
    is_loose = first["open"] != "("
    following: re.Match[str] | None = first
    at = first.end()
    while following is not None:
        name, start, at = following["name"].lower(), following.end(), following.end()
        try:
            end, pieces = _pieces(text, start)
            positional, keywords = _values(pieces)
        except _Unread as error:
            line = text.find("\n", at)
            end = len(text) if line < 0 else line
            source = text[following.start("name") : end].strip()
            if not is_loose:
                calls.append(TextCall(source, name, unread=str(error)))
            return at if is_loose else end
        source = text[following.start("name") : end]
        if FORMS.get(NAMES[name]) and "text" in FORMS[NAMES[name]].needs:
            positional = _unquoted_answer(name, positional, text[start : end - 1])
        calls.append(TextCall(source, name, positional, keywords, is_loose=is_loose))
        is_loose, at = False, end
        following = _NEXT.match(text, at)
    return at


def _unquoted_answer(
    name: str, positional: tuple[Argument, ...], inside: str
) -> tuple[Argument, ...]:
    """`answer(Yes, it is)`: one text, which stood without quotes."""
    is_list = NAMES[name] == "answer" and len(positional) > 1
    is_bare = all(isinstance(argument, Bare) for argument in positional)
    return (Bare(inside.strip()),) if is_list and is_bare else positional


def _pieces(text: str, start: int) -> tuple[int, list[str]]:
    """Texts between the brackets, split at commas; `start` is behind the opening one."""
    pieces, begin, depth = list[str](), start, [")"]
    at, before = start, ","
    while at < min(len(text), start + MAX_CHARS):
        char = text[at]
        quote = _QUOTE.match(text, at) if before in _OPENERS else None
        before = before if char.isspace() else char
        if quote is not None:
            at = _behind_quote(text, at, quote[0])
            continue
        if char in _CLOSING:
            depth.append(_CLOSING[char])
        elif char == depth[-1]:
            depth.pop()
            if not depth:
                return at + 1, [*pieces, text[begin:at]]
        elif char == "," and len(depth) == 1:
            pieces.append(text[begin:at])
            begin = at + 1
        at += 1
    raise _Unread("got a call without its closing bracket")


def _behind_quote(text: str, at: int, quote: str) -> int:
    """The place behind a text in quotes."""
    end = at + len(quote)
    while end < min(len(text), at + MAX_CHARS):
        if text[end] == "\\":
            end += 2
        elif text.startswith(quote, end):
            return end + len(quote)
        else:
            end += 1
    raise _Unread(f"got a text without its closing {quote}")


def _values(pieces: list[str]) -> tuple[tuple[Argument, ...], dict[str, Argument]]:
    positional, keywords = list[Argument](), dict[str, Argument]()
    if pieces and not pieces[-1].strip():
        pieces = pieces[:-1]  # nothing, or a comma at the end
    for piece in pieces:
        if (match := _KEYWORD.fullmatch(piece)) is None:
            positional.append(_value(piece))
        elif match[1].lower() in keywords:
            raise _Unread(f"got {match[1]} twice")
        else:
            keywords[match[1].lower()] = _value(match[2])
    return tuple(positional), keywords


def _value(piece: str) -> Argument:
    """A text, a number or word as it stands, or a list of such."""
    piece = piece.strip()
    quote = _QUOTE.match(piece)
    if quote is not None:
        if _behind_quote(piece, 0, quote[0]) != len(piece):
            raise _Unread(f'got {piece[:80]}, expected one text in quotes, those in it as \\"')
        return _unescaped(piece[len(quote[0]) : -len(quote[0])])
    if piece[:1] in ("[", "(") and piece.endswith(_CLOSING[piece[0]]):
        return list(_values(_pieces(piece[:-1] + ")", 1)[1])[0])
    if not piece or piece[0] in "{<" or "\n" in piece:
        raise _Unread(f"got {piece[:80]!r}, expected a number, a word, or a text in quotes")
    return Bare(piece)


def _unescaped(text: str) -> str:
    unescaped = _ESCAPE.sub(_character, text)
    try:
        return unescaped.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return unescaped  # half a character: refused where texts are checked


def _character(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code[1:], 16)) if code[0] in "ux" else _ESCAPED.get(code, code)


def _without_brackets(name: str, rest: str) -> TextCall | None:
    """`click 12`, `type 3 "pens"`, `press Enter`, `back`; None for prose."""
    words, kind = rest.strip().strip("`").strip(), NAMES[name]
    if not words:
        return TextCall(name, name) if kind in _NEEDS_NOTHING else None
    values = list[Argument]()
    left = words
    while left:
        quote, number = _QUOTE.match(left), _NUMBER.match(left)
        if quote is not None:
            try:
                end = _behind_quote(left, 0, quote[0])
            except _Unread:
                return None
            values.append(_unescaped(left[len(quote[0]) : end - len(quote[0])]))
        elif number is not None and left[number.end() : number.end() + 1] in ("", " ", ","):
            values.append(Bare(number[0]))
            end = number.end()
        elif name in _TAKES_A_WORD and not values and " " not in left:
            values.append(Bare(left))
            end = len(left)
        else:
            return None
        left = left[end:].lstrip(" ,")
    return TextCall(f"{name} {words}", name, tuple(values), is_loose=True)
