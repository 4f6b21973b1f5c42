"""Changed expectations in the text of a test, line by line, for languages without a parser here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random

_WORD_PAIRS = (
    ("assertEqual", "assertNotEqual"), ("assertEquals", "assertNotEquals"),
    ("assertTrue", "assertFalse"), ("assertSame", "assertNotSame"),
    ("assertNull", "assertNotNull"), ("assertContains", "assertNotContains"),
    ("assert_equal", "refute_equal"), ("assert_nil", "refute_nil"),
    ("assert_includes", "refute_includes"), ("assert_match", "refute_match"),
    ("must_equal", "wont_equal"), ("must_be_nil", "wont_be_nil"),
    ("must_include", "wont_include"), ("must_be_close_to", "wont_be_close_to"),
    ("must_match", "wont_match"), ("must_be_empty", "wont_be_empty"),
    ("assert.equal", "assert.notEqual"), ("assert.strictEqual", "assert.notStrictEqual"),
    ("assert.deepEqual", "assert.notDeepEqual"),
    ("assert.deepStrictEqual", "assert.notDeepStrictEqual"),
    ("assert.match", "assert.doesNotMatch"), ("assert.throws", "assert.doesNotThrow"),
    ("assert.rejects", "assert.doesNotReject"),
    ("assert.Equal", "assert.NotEqual"), ("require.Equal", "require.NotEqual"),
    ("assert.True", "assert.False"), ("require.True", "require.False"),
    ("assert.Nil", "assert.NotNil"), ("assert.NoError", "assert.Error"),
    ("require.NoError", "require.Error"), ("assert_eq!", "assert_ne!"),
    (".to eq", ".not_to eq"), (".to be", ".not_to be"),
    (".to.equal", ".to.not.equal"), (".to.eql", ".to.not.eql"), (".to.be", ".to.not.be"),
    (".to.deep", ".to.not.deep"), (".should.equal", ".should.not.equal"),
)  # fmt: skip
_OPPOSITES = {**dict(_WORD_PAIRS), **{right: left for left, right in _WORD_PAIRS}}
_OPPOSITE = re.compile(
    "|".join(
        rf"(?<![\w]){re.escape(word)}(?![\w])" if word[0] != "." else rf"{re.escape(word)}(?!\w)"
        for word in sorted(_OPPOSITES, key=len, reverse=True)
    )
)
_EXPECT = re.compile(r"(?<=\))\.(?P<no>not\.)?(?P<matcher>to[A-Z]\w*)\(")
_GO_GUARD = re.compile(r"^\s*if .*?(?P<sign>!=|==)(?=[^&|]*\{\s*$)")
_TRUTH = re.compile(r"(?<![\w.])(?:assert\.ok|assert!|assert)\s*\(")
_EQUAL_CALL = re.compile(
    r"(?<!\w)(?:assert\.(?:strictEqual|deepStrictEqual|equal|deepEqual|Equal)|require\.Equal"
    r"|assertEquals?|assertSame|assert_equal|assert_eq!)\s*[( ]"
)
_EQUAL_TAIL = re.compile(r"\.?(?:must_equal|to eq)\s+|\.(?:toBe|toEqual|toStrictEqual)\(")
_STRING = r"(?P<q>[\"'])(?:\\.|(?!(?P=q)).)*(?P=q)"
_STRING_FORM = re.compile(_STRING)
_LEAF = re.compile(rf"{_STRING}|(?<![\w.])\d+(?:\.\d+)?(?![\w.])|\b(?:true|false)\b")
_SPARE = re.compile(r"\w+\s*:|=>|\b(?:null|nil|undefined|None)\b|[\s\[\]{},:-]")
_RAISED = re.compile(
    r"(?:must_raise|assert_raises)[ (]\s*(?P<rb>[A-Z][\w:]*)"
    r"|(?:throws|rejects)\(.*,\s*(?P<js>[A-Z]\w*)\)\s*;?\s*$"
)
_ERRORS = {
    "js": ("TypeError", "RangeError", "SyntaxError", "URIError", "EvalError"),
    "rb": ("TypeError", "ZeroDivisionError", "NameError", "FloatDomainError"),
}


@dataclass(frozen=True, slots=True)
class Change:
    """Other words in the place of a piece of text."""

    start: int
    end: int
    text: str

    def moved(self, offset: int) -> Change:
        return replace(self, start=self.start + offset, end=self.end + offset)


@dataclass(frozen=True, slots=True)
class Expectation:
    """One thing that a test expects."""

    change: Change
    """Change that makes it wrong."""
    is_sure: bool
    """The test never passes without coming to it."""


def applied(text: str, changes: Iterable[Change]) -> str:
    """The text with changes, none of which overlap."""
    for change in sorted(changes, key=lambda one: one.start, reverse=True):
        text = text[: change.start] + change.text + text[change.end :]
    return text


def of_lines(text: str, random: Random) -> list[Expectation]:
    """Expectations of a test, given with its head; sure where indented no deeper than the body."""
    lines = text.splitlines(keepends=True)
    depth = next((_indent(line) for line in lines[1:] if line.strip()), 0)
    found, start = list[Expectation](), 0
    for line in lines:
        change = _expected_value(line, random) or _expected_error(line, random) or _sense(line)
        if change is not None:
            found.append(Expectation(change.moved(start), _indent(line) <= depth))
        start += len(line)
    return found


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def other_value(literal: str, random: Random) -> str:
    """Another value of the same kind, as it is written: a text, a number, a truth."""
    if literal in ("true", "false", "True", "False"):
        other = literal.lower() == "false"
        return str(other) if literal[0].isupper() else str(other).lower()
    if literal[-1] in "\"'":
        return _other_text(literal, random)
    if "." in literal:
        return f"{float(literal) * 2 + random.randint(1, 9)}"
    return str(int(literal) + random.randint(1, 3))


def _other_text(literal: str, random: Random) -> str:
    """One letter or figure is another one; escapes stay as they are."""
    places = [
        at
        for at in range(1, len(literal) - 1)
        if re.fullmatch(r"[0-9A-Za-z]", literal[at]) and "\\" not in literal[max(0, at - 8) : at]
    ]
    if not places:
        return f"{literal[:-1]}{random.choice('aeiou')}{literal[-1]}"
    at = random.choice(places)
    letters = "0123456789" if literal[at].isdigit() else "abcdefghijklmnoprstuvw"
    other = random.choice([letter for letter in letters if letter != literal[at].lower()])
    return literal[:at] + (other.upper() if literal[at].isupper() else other) + literal[at + 1 :]


def _expected_value(line: str, random: Random) -> Change | None:
    for start, end in _expected_pieces(line):
        piece = line[start:end]
        leaves = list(_LEAF.finditer(piece))
        if _SPARE.sub("", _LEAF.sub("", piece)):
            continue
        if leaves:
            leaf = random.choice(leaves)
            return Change(start + leaf.start(), start + leaf.end(),
                          other_value(leaf.group(), random))  # fmt: skip
        if piece.strip() == "[]":
            return Change(start, end, f"[{random.randint(0, 9)}]")
    return None


def _expected_pieces(line: str) -> Iterator[tuple[int, int]]:
    """Where what is expected stands: a side of an equality, or what follows a matcher."""
    if match := _EQUAL_CALL.search(line):
        yield from reversed(_arguments(line.rstrip(), match.end(), match.group()[-1] == " ")[:2])
    if match := _EQUAL_TAIL.search(line):
        if match.group().endswith("("):
            yield from _arguments(line, match.end())[:1]
        else:
            yield match.end(), len(line.rstrip())


def _arguments(line: str, start: int, is_bare: bool = False) -> list[tuple[int, int]]:
    """The arguments of a call that ends on its line, bare ones with it; empty for others."""
    spans, depth, at, begin = list[tuple[int, int]](), 0, start, start

    def close(end: int) -> None:
        spans.append((end - len(line[begin:end].lstrip()), end))

    while at < len(line) and depth >= 0:
        if string := _STRING_FORM.match(line, at):
            at = string.end()
            continue
        depth += (line[at] in "([{") - (line[at] in ")]}")
        if depth < 0 or (depth == 0 and line[at] == ","):
            close(at)
            begin = at + 1
        at += 1
    if is_bare and depth == 0:
        close(at)
    return spans if depth < 0 or (is_bare and depth == 0) else []


def _expected_error(line: str, random: Random) -> Change | None:
    match = _RAISED.search(line)
    if match is None:
        return None
    language = "js" if match["js"] else "rb"
    other = random.choice([kind for kind in _ERRORS[language] if kind != match[language]])
    return Change(*match.span(language), other)


def _sense(line: str) -> Change | None:
    """The same comparison in the opposite sense."""
    if match := _OPPOSITE.search(line):
        return Change(*match.span(), _OPPOSITES[match.group()])
    if match := _EXPECT.search(line):
        start, end = match.span()
        return Change(start, end, f".{'' if match['no'] else 'not.'}{match['matcher']}(")
    if match := _GO_GUARD.match(line):
        return Change(*match.span("sign"), "==" if match["sign"] == "!=" else "!=")
    if match := _TRUTH.search(line):
        arguments = _arguments(line, match.end())
        if arguments:
            start, end = arguments[0]
            truth = line[start:end]
            plain = re.fullmatch(r"!([\w.]+(?:\(.*\))?)", truth)
            return Change(start, end, plain[1] if plain else f"!({truth})")
    return None
