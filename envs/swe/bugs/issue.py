"""A user's report of a bug: what a failing test expects, and what came instead.

All of it is taken from the test and from the error's own words. The file and the lines in which the
bug is are never named.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_MOST_LINES = 10
_MOST_LOOKED_AT = 20
"""Tests of which the one that says most is taken."""
_LONGEST_LINE = 200
_OPENINGS = (
    '"{name}" does not hold any more.',
    'I think this is broken: "{name}".',
    'Something is wrong with "{name}" since the last change.',
    'Regression: "{name}".',
    'It used to be so that "{name}", and now it is not.',
    'Could somebody look at this? "{name}" fails.',
)
_SYMPTOMS = (
    ("When I run\n\n{statement}\n\nI get\n\n{message}\n", "I get\n\n{message}\n"),
    (
        "What comes out of\n\n{statement}\n\nis\n\n{message}\n",
        "What comes out is\n\n{message}\n",
    ),
    ("This\n\n{statement}\n\nends with\n\n{message}\n", "It ends with\n\n{message}\n"),
)
_SECTION = re.compile(r"(?m)^_{2,} (?P<title>\S.*?) _{2,}$")
_DIVISION = re.compile(r"(?m)^={3,} .* ={3,}$")
_FRAME_END = re.compile(r"(?P<file>\S+\.py):\d+: ?")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Failure:
    """pytest's report of a test that fails."""

    statement: str
    """The test's statement that failed; may be empty."""
    message: str
    """The error's own words."""

    @property
    def is_plain(self) -> bool:
        """Something else came out than was expected, which says more than an error within."""
        return self.message.lower().startswith("assert") and bool(self.statement)


def issue_text(log: str, failing: Sequence[str], path: str, draw: int) -> str:
    """The issue of a bug in the file at `path`, from the log of the tests that it makes fail.

    `draw` chooses among the ways to say it.
    """
    failures = {test: _failure(log, test) for test in failing[:_MOST_LOOKED_AT]}
    plain = (test for test, failure in failures.items() if failure.is_plain)
    first = next(plain, failing[0])
    failure = failures[first]
    opening = _OPENINGS[draw % len(_OPENINGS)].format(name=_name(first))
    with_statement, without = _SYMPTOMS[draw // len(_OPENINGS) % len(_SYMPTOMS)]
    message = _lines(failure.message, path)
    parts = [opening, ""]
    if message:
        statement = _lines(failure.statement, path)
        form = with_statement if statement else without
        parts.append(form.format(statement=statement, message=message))
    parts.append(_where([first, *(test for test in failing if test != first)]))
    return "\n".join(parts).strip() + "\n"


def _where(failing: Sequence[str]) -> str:
    tests = [f"`{test}`" for test in failing[:3]]
    if len(failing) == 1:
        return f"The test is {tests[0]}."
    more = f" and {len(failing) - len(tests)} more" if len(failing) > len(tests) else ""
    return f"These tests fail: {', '.join(tests)}{more}."


def _name(test_id: str) -> str:
    """`total has a fee (2)` of `tests/test_cart.py::TestCart::test_total_has_a_fee[2]`."""
    name, _, parameters = test_id.rpartition("::")[2].partition("[")
    words = " ".join(name.removeprefix("test").replace("_", " ").split()) or name
    return f"{words} ({parameters.removesuffix(']')})" if parameters else words


def _failure(log: str, test_id: str) -> Failure:
    file, *names = test_id.split("::")
    title = ".".join(names).split(" ")[0]
    bodies = [body for head, body in _sections(log) if title in head.split()]
    bodies.sort(key=lambda body: f"{file}:" not in body)
    if not bodies:
        return Failure("", _of_summary(log, test_id))
    lines = bodies[0].split("\n")
    return Failure(_statement(lines, file), _message(lines) or _of_summary(log, test_id))


def _sections(log: str) -> Iterator[tuple[str, str]]:
    """Each failure of a log with its title."""
    for part in _DIVISION.split(log):
        heads = list(_SECTION.finditer(part))
        ends = [*(head.start() for head in heads[1:]), len(part)]
        for head, end in zip(heads, ends, strict=True) if heads else ():
            yield head["title"], part[head.end() : end]


def _statement(lines: Sequence[str], file: str) -> str:
    """Statement of the first frame in the test's own file: others are where the bug may be."""
    frame = list[str]()
    for line in lines:
        end = _FRAME_END.match(line)
        if end is None:
            frame.append(line)
        elif end["file"] == file:
            return _marked_statement(frame)
        else:
            frame = []
    return ""


def _marked_statement(frame: Sequence[str]) -> str:
    """The one that pytest marks in a frame."""
    start = next((at for at, line in enumerate(frame) if line.startswith(">")), None)
    if start is None:
        return ""
    statement = [" " + frame[start][1:]]
    for line in frame[start + 1 :]:
        if line.startswith("E ") or not line.strip():
            break
        if line.strip(" ^~"):  # what points at a part of the line above
            statement.append(line)
    return textwrap.dedent("\n".join(statement))


def _message(lines: Sequence[str]) -> str:
    """The last error's."""
    message = list[str]()
    is_open = False
    for line in lines:
        if line.startswith("E "):
            message = [*message, line[1:]] if is_open else [line[1:]]
            is_open = True
        elif _FRAME_END.match(line):
            is_open = False
    return textwrap.dedent("\n".join(message))


def _of_summary(log: str, test_id: str) -> str:
    match = re.search(rf"(?m)^(?:FAILED|ERROR) {re.escape(test_id)}\S* - (.+)$", log)
    return match[1] if match else ""


def _lines(text: str, path: str) -> str:
    """The text as a block, without what names the file of the bug."""
    lines = [_ADDRESS.sub("", line.rstrip()) for line in text.split("\n")]
    lines = [line for line in lines if path not in line]
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], "..."]
    return "\n".join(f"    {line[:_LONGEST_LINE]}".rstrip() for line in lines).strip("\n")
