"""Reads pytest's short summary of a test run against the tests that must have run.

A run without a summary has proved nothing. A skipped test has not passed: else skipping would
solve a task.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

HEADER = "short test summary info"
_LINE = re.compile(r"^(PASSED|XFAIL|SKIPPED|FAILED|XPASS|ERROR)\b[ \t]*(\S*)", re.MULTILINE)
_GOOD = ("PASSED", "XFAIL")


def failures_of(output: str, expected: Sequence[str]) -> list[str]:
    """Reasons against the task being solved; empty when it is.

    All after the first header is read, so a summary that was printed beside the real one can only
    add failures. `expected`: names of test functions; each must be among those that passed.
    """
    _, header, rest = output.partition(HEADER)
    if not header:
        return ["the tests printed no summary"]
    lines = [(match[1], match[2]) for match in _LINE.finditer(rest)]
    failures = [f"{test or 'a test'} {word.lower()}" for word, test in lines if word not in _GOOD]
    passed = {_name(test) for word, test in lines if word in _GOOD}
    missing = [name for name in expected if name not in passed]
    not_run = [
        f"{name} did not run" for name in missing if not any(name in text for text in failures)
    ]
    if not lines:
        not_run.append("no test ran")
    return failures + not_run


def _name(test_id: str) -> str:
    """`tests/x.py::Class::test_a[1]` -> `test_a`."""
    return test_id.partition("[")[0].rpartition("::")[2]


def collected(source: str) -> tuple[str, ...]:
    """Names of the test functions that pytest collects from a file, as far as they are written out.

    A file that cannot be read as Python names none: the run itself will fail.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(dict.fromkeys(_tests(tree.body)))


def _tests(body: Sequence[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("test"):
                yield node.name
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _tests(node.body)
