"""The calculator and the file store."""

import pytest

from clawrl_gym.envs.file_store import MAX_CONTENT_CHARS, MAX_FILES
from clawrl_gym.envs.toolcall.toolset import ToolFailure
from clawrl_gym.envs.toolcall.toolsets.calculator import calculate
from clawrl_gym.envs.toolcall.toolsets.files import Files


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("17 * 23", "391"),
        ("(3 + 4) * 2", "14"),
        ("8 / 2", "4"),
        ("7 // 2 + 7 % 4", "6"),
        ("2 ^ 10", "1024"),
        ("-2 ** 2", "-4"),
        ("6 × 7 − 2 ÷ 2", "41"),  # noqa: RUF001
        ("sqrt(2)", "1.41421356237"),
        ("max(1, 2, abs(-3))", "3"),
        ("round(2 * pi, 2)", "6.28"),
        ("1e400 if", None),
        ("1234567890123456", "1234567890123456"),
        ("1e14", "100000000000000"),
        ("1e15", "1e+15"),
        ("round(1.5)", "2"),
        ("round(5, 300) + round(5, -300)", "5"),
        ("2 ** 4999 * 2 ** 5000 // 2 ** 5000 // 2 ** 4990", "512"),
        ("2 ** 5000 ** 1 * 0", "0"),
        ("-" * 64 + "1", "1"),
        ("+" * 64 + "1", "1"),
        ("1" + "+1" * 64, "65"),
        ("abs(" * 64 + "1" + ")" * 64, "1"),
        ("1" + " " * 499, "1"),
        ("10 ** 100", "1" + "0" * 100),
        ("0.1 + 0.2", "0.3"),
        ("+5", "5"),
    ],
)
def test_arithmetic_is_worked_out(expression, value):
    if value is None:
        with pytest.raises(ToolFailure):
            calculate(expression)
    else:
        assert calculate(expression) == value


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "not an expression"),
        ("1 +", "not an expression"),
        ("1 / 0", "division by zero"),
        ("(-1) ** 0.5", "no real number"),
        ("9 ** 9 ** 9", "too large"),
        ("2 ** 100000", "too large"),
        ("10.0 ** 400", "too large|out of range"),
        ("sqrt(-1)", "math domain error|nonnegative"),
        ("1e308 * 10", "no real number"),
        ("__import__('os')", "expected numbers"),
        ("().__class__", "expected numbers"),
        ("'a' * 10", "expected numbers"),
        ("[1] * 10", "expected numbers"),
        ("True + 1", "expected numbers"),
        ("1 << 1000", "expected numbers"),
        ("lambda: 1", "expected numbers"),
        ("open", "expected numbers"),
        ("round(1, ndigits=2)", "expected numbers"),
        ("max(*(1, 2))", "expected numbers"),
        ("round(5, -10 ** 9)", "at most 300 digits"),
        ("round(5, 0.5)", "at most 300 digits"),
        ("9 ** 3000 / 7", "too large"),
        ("exp(1000)", "range error|out of range"),
        ("0 ** -1", "division by zero"),
        ("1j", "expected numbers"),
        ("min()", "at least 1 argument|expected at least"),
        ("-" * 65 + "1", "nested too deeply"),
        ("+" * 65 + "1", "nested too deeply"),
        ("1" + "+1" * 65, "nested too deeply"),
        ("1" + "**1" * 65, "nested too deeply"),
        ("abs(" * 65 + "1" + ")" * 65, "nested too deeply"),
        ("round(5, 301)", "at most 300 digits"),
        ("2 ** 5001", "too large"),
        ("2 ** 4999 * 2 ** 4999 * 4", "too large"),
        ("(" * 240 + "1" + ")" * 240, "not an expression|nested too deeply"),
        ("1" * 501, "too long"),
        ("1" * 499 + "\0", "not an expression|null"),
    ],
)
def test_anything_else_is_a_failure_in_words(expression, why):
    with pytest.raises(ToolFailure, match=why):
        calculate(expression)


def test_files_are_listed_read_and_written():
    files = Files({"b.txt": "two"})
    assert files.call("write_file", {"path": "./notes//a.txt", "content": "one"}, 1) == (
        "wrote notes/a.txt"
    )
    assert files.call("read_file", {"path": "notes/a.txt"}, 1) == "one"
    assert files.call("list_files", {}, 1) == "b.txt\nnotes/a.txt"
    assert files.state() == {"b.txt": "two", "notes/a.txt": "one"}
    assert Files({}).call("list_files", {}, 1) == "(no files)"


def test_a_store_does_not_change_the_tasks_own_state():
    given = {"a": "1"}
    Files(given).call("write_file", {"path": "a", "content": "2"}, 1)
    assert given == {"a": "1"}


@pytest.mark.parametrize("path", ["", " ", ".", "..", "/etc/passwd", "../x", "a/../../x", "a\0b"])
def test_paths_stay_below_the_store(path):
    for name, arguments in (("read_file", {}), ("write_file", {"content": "x"})):
        with pytest.raises(ToolFailure, match="expected a path"):
            Files({"x": "1"}).call(name, {"path": path, **arguments}, 1)


def test_the_store_has_limits():
    files = Files({str(n): "" for n in range(MAX_FILES)})
    with pytest.raises(ToolFailure, match="too many files"):
        files.call("write_file", {"path": "more", "content": ""}, 1)
    with pytest.raises(ToolFailure, match="content is too long"):
        files.call("write_file", {"path": "1", "content": "x" * (MAX_CONTENT_CHARS + 1)}, 1)
    with pytest.raises(ToolFailure, match="path is too long"):
        files.call("write_file", {"path": "x" * 201, "content": ""}, 1)
    with pytest.raises(ToolFailure, match="File not found: no"):
        files.call("read_file", {"path": "no"}, 1)
