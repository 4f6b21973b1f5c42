"""Expectations of tests and checks in Python, by their syntax, and changes that break them."""

from __future__ import annotations

import ast
import builtins
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from clawrl_gym.envs.twins.text import Change, Expectation, other_value

EXITS = frozenset(("exit", "quit", "_exit", "SystemExit"))
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
EQUALITIES = re.compile(
    r"assert(?!Less|Greater)\w*(?:Equal|_equal|_allclose|_almost_equal|called_with|once_with|_any_call)s?"
)
NEGATED = re.compile(r"[nN]ot_?|Not[A-Z]")
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


@dataclass(frozen=True, slots=True)
class Expectations:
    """Finds what statements expect, and how to expect something else."""

    source: str
    random: Random
    called: frozenset[str] = frozenset()
    """Functions that are run whenever what defines them is."""

    def within(self, body: Iterable[ast.stmt], is_sure: bool = True) -> Iterator[Expectation]:
        """Expectations in these statements; sure ones are met whenever the statements are."""
        for statement in body:
            for change in self._changes(statement):
                yield Expectation(change, is_sure)
            for inner, is_sure_there in self._bodies(statement):
                yield from self.within(inner, is_sure and is_sure_there)
            is_sure = is_sure and not may_leave(statement)

    def _bodies(self, statement: ast.stmt) -> Iterator[tuple[list[ast.stmt], bool]]:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield statement.body, statement.name in self.called
            case ast.ClassDef():
                yield statement.body, True
            case ast.With() | ast.AsyncWith():
                yield statement.body, self.raised(statement) is None
            case ast.Try():
                yield statement.body, all(fails(handler.body) for handler in statement.handlers)
                yield statement.finalbody, True
            case ast.If() if "__name__" in ast.unparse(statement.test):
                yield statement.body, True
            case ast.If() | ast.For() | ast.AsyncFor() | ast.While():
                yield statement.body, False
                yield statement.orelse, False

    def _changes(self, statement: ast.stmt) -> Iterator[Change]:
        match statement:
            case ast.Assert():
                yield from self.of_truth(statement.test)
            case (
                ast.Expr(value=ast.Call() as call)
                | ast.Expr(value=ast.Await(value=ast.Call() as call))
            ):
                yield from self._of_call(call)
            case ast.With() | ast.AsyncWith():
                if (raised := self.raised(statement)) is not None:
                    yield raised
            case ast.If() if fails(statement.body):
                yield from self.of_guard(statement.test)

    def raised(self, statement: ast.With | ast.AsyncWith) -> Change | None:
        start = span_of(self.source, statement.items[0].context_expr)[0]
        end = span_of(self.source, statement.items[-1].context_expr)[1]
        return self.other_raised(start, end)

    def other_raised(self, start: int, end: int) -> Change | None:
        """Another error, or another text of it."""
        text = self.source[start:end]
        if match := _TEXT_OF_RAISES.search(text):
            return Change(*match.span("text"), other_value(match["text"], self.random)).moved(start)
        if match := _RAISES.search(text):
            other = _other_error(match["kind"], self.random)
            return Change(*match.span("kind"), other).moved(start)
        return None

    def of_truth(self, test: ast.expr) -> Iterator[Change]:
        """Each makes a condition false that is true."""
        match test:
            case ast.BoolOp(op=ast.And()):
                for value in test.values:
                    yield from self.of_truth(value)
            case ast.UnaryOp(op=ast.Not()):
                start, end = span_of(self.source, test)
                yield Change(
                    start, end, f"({self.source[slice(*span_of(self.source, test.operand))]})"
                )
            case ast.Compare():
                yield self.other_side(test, ast.Eq) or self._opposite(test)
            case _:
                yield self.negated(test)

    def of_guard(self, test: ast.expr) -> Iterator[Change]:
        """Each makes a condition true that is false."""
        match test:
            case ast.BoolOp(op=ast.Or()):
                for value in test.values:
                    yield from self.of_guard(value)
            case ast.Compare() if len(test.ops) == 1:
                yield self.other_side(test, ast.NotEq) or self._opposite(test)
            case _:
                yield self.negated(test)

    def negated(self, test: ast.expr) -> Change:
        start, end = span_of(self.source, test)
        return Change(start, end, f"(not ({self.source[start:end]}))")

    def other_side(self, test: ast.Compare, sign: type[ast.cmpop]) -> Change | None:
        """Another literal on a side of the last sign."""
        if not isinstance(test.ops[-1], sign):
            return None
        sides = [test.comparators[-1], *([test.left] if len(test.ops) == 1 else [])]
        return self.first_other(self.random.sample(sides, len(sides)))

    def _opposite(self, test: ast.Compare) -> Change:
        """The last sign in the opposite sense."""
        left = test.comparators[-2] if len(test.comparators) > 1 else test.left
        start, end = span_of(self.source, left)[1], span_of(self.source, test.comparators[-1])[0]
        sign, opposite = _SIGNS[type(test.ops[-1])]
        pattern = r"\s+".join(map(re.escape, sign.split()))
        between = re.search(pattern, self.source[start:end])
        if between is None:
            return self.negated(test)
        return Change(start + between.start(), start + between.end(), opposite)

    def _of_call(self, call: ast.Call) -> Iterator[Change]:
        name = name_of_call(call)
        sides = call.args[:2]
        if EQUALITIES.fullmatch(name) and not NEGATED.search(name):
            change = self.first_other(self.random.sample(sides, len(sides)))
            if change is not None:
                yield change
                return
        if name in _OPPOSITES:
            end = span_of(self.source, call.func)[1]
            yield Change(end - len(name), end, _OPPOSITES[name])
        elif (raised := self.other_raised(*span_of(self.source, call))) is not None:
            yield raised

    def first_other(self, nodes: Iterable[ast.expr]) -> Change | None:
        return next((change for node in nodes if (change := self._other_value(node))), None)

    def _other_value(self, node: ast.expr) -> Change | None:
        """Another literal in what is written out; None for what is computed."""
        leaves = list[ast.Constant]()
        if not _is_written(node, leaves.append):
            return None
        usable = [leaf for leaf in leaves if self._literal(leaf) is not None]
        if usable:
            leaf = self.random.choice(usable)
            other = other_value(self._literal(leaf) or "", self.random)
            return Change(*span_of(self.source, leaf), other)
        span = span_of(self.source, node)
        is_empty = self.source[slice(*span)] == "[]"
        return Change(*span, f"[{self.random.randint(0, 9)}]") if is_empty else None

    def _literal(self, leaf: ast.Constant) -> str | None:
        """Source of a plain text, number or truth."""
        text = self.source[slice(*span_of(self.source, leaf))]
        if isinstance(leaf.value, bool):
            return text
        if isinstance(leaf.value, int | float):
            return text if re.fullmatch(r"\d+(\.\d+)?", text) else None
        if isinstance(leaf.value, str):
            return text if re.fullmatch(r"\"[^\"\n]*\"|'[^'\n]*'", text) else None
        return None


def of_function(text: str, random: Random) -> list[Expectation]:
    """Expectations of a test function, given as it stands in its file."""
    lead = "if 1:\n" if text[:1].isspace() else ""
    try:
        tree = ast.parse(lead + text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    body = tree.body[0].body if lead and isinstance(tree.body[0], ast.If) else tree.body
    names = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    found = Expectations(lead + text, random, frozenset(names[:1])).within(body)
    return [replace(one, change=one.change.moved(-len(lead))) for one in found]


def fails(body: Sequence[ast.stmt]) -> bool:
    """Whether statements end in a failure: an error, or an exit that says so."""
    last = body[-1]
    if isinstance(last, ast.Raise):
        error = last.exc
        return not (isinstance(error, ast.Name) and error.id == "SystemExit") and not (
            isinstance(error, ast.Call) and name_of_call(error) in EXITS and not _is_failure(error)
        )
    call = last.value if isinstance(last, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    return name_of_call(call) == "fail" or (name_of_call(call) in EXITS and _is_failure(call))


def may_leave(statement: ast.stmt) -> bool:
    """Whether what follows may never be met, and all be well."""
    nodes = list(ast.walk(statement))
    is_function = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return any(
        (isinstance(node, ast.Return) and not is_function)
        or (isinstance(node, ast.Raise) and not fails([node]))
        or (isinstance(node, ast.Call) and name_of_call(node) == "skip")
        or (isinstance(node, ast.Call) and name_of_call(node) in EXITS and not _is_failure(node))
        for node in nodes
    )


def _is_failure(call: ast.Call) -> bool:
    """Certainly: what is computed may say that all is well."""
    argument = call.args[0] if call.args else None
    return isinstance(argument, ast.JoinedStr) or (
        isinstance(argument, ast.Constant) and bool(argument.value)
    )


def _other_error(name: str, random: Random) -> str:
    """An error that the named one is not."""
    kind = getattr(builtins, name, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        return random.choice(_ERRORS).__name__
    unlike = [one for one in _COMMON_ERRORS if not (issubclass(one, kind) or issubclass(kind, one))]
    return random.choice(unlike).__name__ if unlike else "SystemExit"


def name_of_call(call: ast.Call) -> str:
    """Name of the called function, without its owner; may be empty."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


@functools.lru_cache(maxsize=8)
def _lines_of(source: str) -> tuple[list[str], list[int]]:
    """Lines by their numbers, from 1, and where each starts."""
    lines = ["", *source.split("\n")]
    starts = [0, 0]
    for line in lines[1:]:
        starts.append(starts[-1] + len(line) + 1)
    return lines, starts


def span_of(source: str, node: ast.expr | ast.stmt) -> tuple[int, int]:
    """Place of an expression or statement in its source."""
    lines, starts = _lines_of(source)

    def offset(line: int, column: int) -> int:  # `ast` counts bytes of UTF-8
        encoded = lines[line].encode(errors="surrogatepass")[:column]
        return starts[line] + len(encoded.decode(errors="surrogatepass"))

    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return offset(node.lineno, node.col_offset), offset(end_line, end_column)


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
        return name_of_call(node) in _WRAPPERS and _all_written(node.args[:1], leaf)
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
