"""Twins of tests: the same test with another expectation, which code that is right cannot meet.

The code of a patch runs in its tests' process and can make any runner say anything. What it cannot
know, unless it knows the answer, is whether it meets a test or its twin: a twin has its test's
name, place and look, and differs in what it expects alone (`== 5` is `== 6`), or, where nothing
that is expected stands there literally, in the sense of its comparison. Code that passes both has
not been tested.

Everything here is text in, text out: test files of Python are read by `ast`, others line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from random import Random

from clawrl_gym.envs.twins.python import of_function
from clawrl_gym.envs.twins.text import Change, applied, of_lines

_IDENTIFIER_HEADS = (
    re.compile(r"\s*(?:async\s+)?def\s+(?P<name>test\w*)"),
    re.compile(r"\s*(?:pub\s+)?(?:async\s+)?fn\s+(?P<name>\w+)"),
    re.compile(r"\s*(?:public\s+)?(?:func|fun|function)\s+(?P<name>[tT]est\w*)"),
    re.compile(r"\s*(?:public\s+|async\s+|static\s+)*(?:void|Task)\s+(?P<name>\w+)\s*\("),
)
_PHRASE_HEADS = (
    re.compile(r"\s*(?:test|it|specify)(?:\.\w+)?\s*\(\s*(?P<quote>[\"'`])(?P<name>.+?)(?P=quote)"),
    re.compile(r"\s*(?:test|it|specify)\s+(?P<quote>[\"'])(?P<name>.+?)(?P=quote)\s+do\b"),
)
_DOCSTRING = re.compile(r"\s*[rR]?(?P<quote>\"\"\"|''')(?P<name>.+?)(?:(?P=quote)|$)")
_MUST_FAIL = {
    ".py": "assert not {name!r}",
    ".js": "throw new Error({name!r});",
    ".rb": "raise {name!r}",
    ".rs": "panic!();",
    ".go": "t.Fatal()",
    ".php": "throw new \\Exception();",
    ".java": "if (true) throw new RuntimeException();",
}
"""Failing statement for a test without written expectations, by suffix."""
_LIKE_JS = frozenset((".mjs", ".cjs", ".ts", ".tsx", ".jsx", ".mts", ".cts"))


@dataclass(frozen=True, slots=True)
class TestTwin:
    """One test of a file, and what makes its twin of it."""

    __test__ = False
    path: str
    ids: tuple[str, ...]
    """Ids in the instance; several for a test with parameters."""
    options: tuple[tuple[Change, ...], ...]
    """Each makes its twin; each of its expectations is wrong in one of them."""


def twins_of(path: str, text: str, ids: Iterable[str], random: Random) -> tuple[TestTwin, ...]:
    """A twin of each test that stands in a file; ids whose test is not found have none.

    Tests that cannot be told apart by their names have one twin together.
    """
    bodies = _bodies(text)
    by_names: dict[frozenset[int], list[str]] = {}
    for test_id in ids:
        own = frozenset(at for at, body in enumerate(bodies) if body.is_named_by(test_id, path))
        if own:
            by_names.setdefault(own, []).append(test_id)
    twins = list[TestTwin]()
    for own, names in _merged(by_names).items():
        options = [_options(path, bodies[at], random) for at in sorted(own)]
        if all(options):
            twins.append(TestTwin(path, tuple(names), _side_by_side(options)))
    return tuple(twins)


def with_twins(text: str, twins: Iterable[tuple[TestTwin, int]]) -> str:
    """The file with these twins in the place of their tests, each made by one of its options."""
    return applied(
        text,
        [change for twin, number in twins for change in twin.options[number % len(twin.options)]],
    )


def _side_by_side(options: Sequence[Sequence[Sequence[Change]]]) -> tuple[tuple[Change, ...], ...]:
    """Bodies of one name are changed together."""
    most = max(map(len, options))
    return tuple(
        tuple(change for each in options for change in each[number % len(each)])
        for number in range(most)
    )


@dataclass(frozen=True, slots=True)
class _Body:
    """A test in a file."""

    names: tuple[tuple[str, bool], ...]
    """Each with whether it is a phrase, which ids end with, and no identifier."""
    start: int
    text: str

    def is_named_by(self, test_id: str, path: str) -> bool:
        return _may_be_in(test_id, path) and any(
            _names(test_id, name, is_phrase) for name, is_phrase in self.names
        )


def _may_be_in(test_id: str, path: str) -> bool:
    """Where an id names a file or a module, it is this one."""
    file, has_parts, _ = test_id.partition("::")
    if has_parts and re.search(r"\.\w+$", file):
        return f"/{path}".endswith(f"/{file}") or f"/{file}".endswith(f"/{path}")
    dotted = re.search(r"\((\w+(?:\.\w+)+)\)", test_id)
    if dotted is None:
        return True
    module = "." + path.removesuffix(".py").replace("/", ".")
    parts = dotted[1].split(".")
    return any(module.endswith("." + ".".join(parts[:end])) for end in range(1, len(parts) + 1))


def _names(test_id: str, name: str, is_phrase: bool) -> bool:
    if not is_phrase:
        return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", test_id.partition("[")[0]) is not None
    phrase = name.strip().rstrip(".")
    before = test_id.rstrip(". ").removesuffix(phrase)
    return before != test_id.rstrip(". ") and not before[-1:].isalnum()


def _bodies(text: str) -> list[_Body]:
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    bodies = list[_Body]()
    for at, line in enumerate(lines):
        head = _head(line)
        if head is None:
            continue
        end = _end(lines, at)
        names = [head, *_docstring(lines, at, end)]
        bodies.append(_Body(tuple(names), starts[at], text[starts[at] : starts[end]]))
    return bodies


def _head(line: str) -> tuple[str, bool] | None:
    for patterns, is_phrase in ((_IDENTIFIER_HEADS, False), (_PHRASE_HEADS, True)):
        for pattern in patterns:
            if match := pattern.match(line):
                return match["name"], is_phrase
    return None


def _docstring(lines: Sequence[str], head: int, end: int) -> Iterator[tuple[str, bool]]:
    """Frameworks that show a test's docstring call it by its first line."""
    if head + 1 < end and (match := _DOCSTRING.match(lines[head + 1])):
        yield match["name"].strip(), True


def _end(lines: Sequence[str], head: int) -> int:
    """The line after the last one indented deeper than the head; what closes it belongs to it."""
    depth = _indent(lines[head])
    end = head + 1
    for at in range(head + 1, len(lines)):
        line = lines[at]
        if not line.strip():
            continue
        if _indent(line) < depth or (_indent(line) == depth and line.strip()[0] not in ")]}"):
            break
        end = at + 1
    return end


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _options(path: str, body: _Body, random: Random) -> list[list[Change]]:
    """One expectation at a time, for one that is wrong hides the others; all of them where none is
    sure to be met; where there is none, a failure."""
    suffix = PurePosixPath(path).suffix
    expectations = (of_function if suffix == ".py" else of_lines)(body.text, random)
    options = [[one.change] for one in expectations if one.is_sure]
    random.shuffle(options)
    if not options:
        changes = [one.change for one in expectations] or _must_fail(body.text, suffix, random)
        options = [changes] if changes else []
    return [[change.moved(body.start) for change in option] for option in options]


def _must_fail(text: str, suffix: str, random: Random) -> list[Change]:
    form = _MUST_FAIL.get(".js" if suffix in _LIKE_JS else suffix)
    lines = text.splitlines(keepends=True)
    if form is None or len(lines) < 2:
        return []
    statement = form.format(name=f"{random.getrandbits(32):08x}")
    if suffix == ".py":  # at its end, where its docstring stays one
        indent = " " * _indent(next(line for line in lines[1:] if line.strip()))
        ending = "" if text.endswith("\n") else "\n"
        return [Change(len(text), len(text), f"{ending}{indent}{statement}\n")]
    if not lines[0].rstrip().endswith(("{", "do")):
        return []
    at = len(lines[0])
    return [Change(at, at, f"{' ' * _indent(lines[1])}{statement}\n")]


def _merged(by_names: dict[frozenset[int], list[str]]) -> dict[frozenset[int], list[str]]:
    """Groups of ids that share a body are one."""
    merged: dict[frozenset[int], list[str]] = {}
    for own, ids in by_names.items():
        bodies, names = own, list(ids)
        for other in [other for other in merged if other & own]:
            bodies, names = bodies | other, [*merged.pop(other), *names]
        merged[bodies] = names
    return merged
