"""Changed expectations in a test of Python, by its syntax."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable
from random import Random

from clawrl_gym.envs.swe.twin_text import Change, other_value

_MAX_LINES = 60
_BEGIN = re.compile(r"assert\b|(?:await\s+)?(?:\w+\.)*(?:assert\w*)\s*\(")
_PAIRS = (
    ("assertEqual", "assertNotEqual"), ("assertEquals", "assertNotEquals"),
    ("assertTrue", "assertFalse"), ("assertIn", "assertNotIn"), ("assertIs", "assertIsNot"),
    ("assertIsNone", "assertIsNotNone"), ("assertGreater", "assertLessEqual"),
    ("assertLess", "assertGreaterEqual"), ("assertRegex", "assertNotRegex"),
    ("assertAlmostEqual", "assertNotAlmostEqual"), ("assertIsInstance", "assertNotIsInstance"),
    ("assertContains", "assertNotContains"), ("assertHTMLEqual", "assertHTMLNotEqual"),
    ("assertXMLEqual", "assertXMLNotEqual"), ("assertInHTML", "assertNotInHTML"),
)  # fmt: skip
_OPPOSITES = {
    **dict(_PAIRS),
    **{right: left for left, right in _PAIRS},
    **dict.fromkeys(
        ("assertListEqual", "assertDictEqual", "assertSetEqual", "assertTupleEqual",
         "assertSequenceEqual", "assertMultiLineEqual"), "assertNotEqual",
    ),
}  # fmt: skip
_EQUALITIES = re.compile(
    r"assert(?!Less|Greater)\w*(?:Equal|_equal|_allclose|_almost_equal|called_with|once_with|_any_call)s?"
)
_NEGATED = re.compile(r"[nN]ot_?|Not[A-Z]")
_SIGNS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Lt: ("<", ">="), ast.GtE: (">=", "<"),
    ast.Gt: (">", "<="), ast.LtE: ("<=", ">"), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
}  # fmt: skip
_WRAPPERS = frozenset(("approx", "array", "Decimal", "Fraction", "frozenset", "set", "tuple",
                       "list", "Series", "Index", "Path", "S", "Integer", "Rational"))  # fmt: skip
"""Calls whose value follows from what is written in them."""
_RAISES = re.compile(
    r"(?:assertRaises\w*|\braises|assertWarns\w*|\bwarns)\(\s*(?P<kind>[A-Za-z_][\w.]*)\s*[,)]"
)
_TEXT_OF_RAISES = re.compile(
    r"(?:assertRaises(?:Regex|Message)\(\s*[\w.]+\s*,|\bmatch\s*=)\s*r?(?P<text>([\"'])[^\"'\\\n]*\w[^\"'\\\n]*\2)"
)
_ERRORS = (IndexError, ZeroDivisionError, AttributeError, OverflowError)
"""Hardly a base of somebody's own error."""
_COMMON_ERRORS = (*_ERRORS, KeyError, TypeError, ValueError, RuntimeError)


def python_changes(text: str, random: Random) -> list[Change]:
    """What makes each expectation of a test wrong; empty where none is recognised."""
    changes = list[Change]()
    lines = text.splitlines(keepends=True)
    start, at = 0, 0
    while at < len(lines):
        size, found = 1, _raised(lines[at], random)
        if _BEGIN.match(lines[at].strip()):
            size, found = _statement_change(lines[at : at + _MAX_LINES], random)
        if found is not None:
            changes.append(found.moved(start))
        start += sum(map(len, lines[at : at + size]))
        at += size
    return changes


def _statement_change(lines: list[str], random: Random) -> tuple[int, Change | None]:
    """Number of lines of the statement that begins here, and its change."""
    indent = len(lines[0]) - len(lines[0].lstrip())
    for size in range(1, len(lines) + 1):
        source = "".join(lines[:size])
        try:
            tree = ast.parse(source[indent:])
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        change = _Statement(source[indent:]).change(tree.body[0], random)
        raised = _raised(source, random) if change is None else None
        return size, raised if change is None else change.moved(indent)
    return 1, None


def _raised(line: str, random: Random) -> Change | None:
    if match := _TEXT_OF_RAISES.search(line):
        return Change(*match.span("text"), other_value(match["text"], random))
    if match := _RAISES.search(line):
        return Change(*match.span("kind"), _other_error(match["kind"], random))
    return None


def _other_error(name: str, random: Random) -> str:
    """An error that the named one is not."""
    kind = getattr(builtins, name, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        return random.choice(_ERRORS).__name__
    unlike = [one for one in _COMMON_ERRORS if not (issubclass(one, kind) or issubclass(kind, one))]
    return random.choice(unlike).__name__ if unlike else "SystemExit"


class _Statement:
    """One statement, and where its parts stand in its text."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._lines = source.splitlines(keepends=True)

    def change(self, statement: ast.stmt, random: Random) -> Change | None:
        if isinstance(statement, ast.Assert):
            return self._of_truth(statement.test, random)
        value = statement.value if isinstance(statement, ast.Expr) else None
        call = value.value if isinstance(value, ast.Await) else value
        return self._of_call(call, random) if isinstance(call, ast.Call) else None

    def _of_truth(self, test: ast.expr, random: Random) -> Change:
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return self._of_truth(test.values[-1], random)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            start, end = self._span(test)
            inner = self._span(test.operand)
            return Change(start, end, f"({self._source[slice(*inner)]})")
        if isinstance(test, ast.Compare):
            if isinstance(test.ops[-1], ast.Eq):
                sides = [test.comparators[-1], *([test.left] if len(test.ops) == 1 else [])]
                for side in random.sample(sides, len(sides)):
                    if (found := self._other_value(side, random)) is not None:
                        return found
            return self._of_sign(test)
        start, end = self._span(test)
        return Change(start, end, f"(not ({self._source[start:end]}))")

    def _of_sign(self, test: ast.Compare) -> Change:
        left = test.comparators[-2] if len(test.comparators) > 1 else test.left
        start, end = self._span(left)[1], self._span(test.comparators[-1])[0]
        sign, opposite = _SIGNS[type(test.ops[-1])]
        pattern = r"\s+".join(map(re.escape, sign.split()))
        between = re.search(pattern, self._source[start:end])
        if between is None:
            whole = self._span(test)
            return Change(*whole, f"(not ({self._source[slice(*whole)]}))")
        return Change(start + between.start(), start + between.end(), opposite)

    def _of_call(self, call: ast.Call, random: Random) -> Change | None:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        name = call.func.id if isinstance(call.func, ast.Name) else name
        if _EQUALITIES.fullmatch(name) and not _NEGATED.search(name):
            for side in random.sample(call.args[:2], len(call.args[:2])):
                if (found := self._other_value(side, random)) is not None:
                    return found
        if name not in _OPPOSITES:
            return None
        end = self._span(call.func)[1]
        return Change(end - len(name), end, _OPPOSITES[name])

    def _other_value(self, node: ast.expr, random: Random) -> Change | None:
        """Another literal in what is written out; None for what is computed."""
        leaves = list[ast.Constant]()
        if not _is_written(node, leaves.append):
            return None
        usable = [leaf for leaf in leaves if self._literal(leaf) is not None]
        if usable:
            leaf = random.choice(usable)
            return Change(*self._span(leaf), other_value(self._literal(leaf) or "", random))
        empty = self._source[slice(*self._span(node))]
        return Change(*self._span(node), f"[{random.randint(0, 9)}]") if empty == "[]" else None

    def _literal(self, leaf: ast.Constant) -> str | None:
        """As it is written, when it is a plain text, number or truth."""
        text = self._source[slice(*self._span(leaf))]
        if isinstance(leaf.value, bool):
            return text
        if isinstance(leaf.value, int | float):
            return text if re.fullmatch(r"\d+(\.\d+)?", text) else None
        if isinstance(leaf.value, str):
            return text if re.fullmatch(r"\"[^\"\n]*\"|'[^'\n]*'", text) else None
        return None

    def _span(self, node: ast.expr) -> tuple[int, int]:
        return (
            self._offset(node.lineno, node.col_offset),
            self._offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset),
        )

    def _offset(self, line: int, column: int) -> int:
        """`ast` counts bytes of UTF-8."""
        encoded = self._lines[line - 1].encode(errors="surrogatepass")[:column]
        return self._starts[line - 1] + len(encoded.decode(errors="surrogatepass"))


def _is_written(node: ast.expr, leaf: Callable[[ast.Constant], object]) -> bool:
    """Whether an expression is its own value; tells its constants."""
    if isinstance(node, ast.Constant):
        leaf(node)
        return True
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return _all_written(node.elts, leaf)
    if isinstance(node, ast.Dict):
        return None not in node.keys and _all_written(
            [part for part in (*node.keys, *node.values) if part is not None], leaf
        )
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = node.func.id if isinstance(node.func, ast.Name) else name
        return name in _WRAPPERS and _all_written(node.args[:1], leaf)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
        parts = list[ast.Constant]()
        written = _is_written(node.left, parts.append) and _is_written(node.right, parts.append)
        for part in parts:
            leaf(part)
        return written and all(part.value for part in parts)  # nothing times 5 is nothing times 6
    return isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)


def _all_written(nodes: list[ast.expr], leaf: Callable[[ast.Constant], object]) -> bool:
    """A list of values and names: one value that changes makes it another list."""
    return all(
        _is_written(node, leaf) or isinstance(node, ast.Name | ast.Attribute) for node in nodes
    )
