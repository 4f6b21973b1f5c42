"""Small wrong changes of Python code: each of one place in one function.

Only the text of that place changes; comments, layout and all the rest of a file stay as they are.
What is no behaviour is left alone: annotations, decorators, docstrings, log lines, messages.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from clawrl_gym.envs.twins.python import name_of_call, span_of
from clawrl_gym.envs.twins.text import Change, applied, other_value

Function = ast.FunctionDef | ast.AsyncFunctionDef
_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"), ast.In: ("in", "not in"), ast.NotIn: (r"not\s+in", "in"),
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"), ast.Sub: ("-", "+"), ast.Mult: (r"\*", "+"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "/"), ast.Mod: ("%", "//"), ast.Pow: (r"\*\*", "*"),
    ast.BitAnd: ("&", "|"), ast.BitOr: (r"\|", "&"), ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}  # fmt: skip
_PAIRS = (
    ("min", "max"), ("any", "all"), ("lower", "upper"), ("startswith", "endswith"),
    ("lstrip", "rstrip"), ("floor", "ceil"), ("ljust", "rjust"), ("find", "rfind"),
    ("split", "rsplit"), ("issubset", "issuperset"), ("union", "intersection"),
)  # fmt: skip
_OTHER_NAMES = {**dict(_PAIRS), **{right: left for left, right in _PAIRS}}
_TALK = frozenset(("print", "log", "logger", "logging", "_log", "_logger", "LOG", "warnings"))
"""Calls on these tell somebody something."""
NOTHING_RETURNED = "nothing returned"
_GUARDS = ("TYPE_CHECKING", "typing.TYPE_CHECKING", "__name__ == '__main__'")
_LONGEST_TEXT = 40
_NAMES_OF_BITS = 10


@dataclass(frozen=True, slots=True)
class Mutation:
    """One wrong change of one file."""

    path: str
    function: str
    """Qualified name of the function or method that it is in; of nested ones the outermost."""
    kind: str
    """Kind of change, in a word or two."""
    change: Change

    @property
    def place(self) -> str:
        """The function with its file: what a split keeps together."""
        return f"{self.path}::{self.function}"

    @property
    def name(self) -> str:
        """The same for the same change of the same text."""
        change = self.change
        content = f"{self.path}\0{change.start}\0{change.end}\0{change.text}"
        return hashlib.sha256(content.encode(errors="replace")).hexdigest()[:_NAMES_OF_BITS]

    def applied(self, text: str) -> str | None:
        """The file with the change; None for one that means the same, or means nothing."""
        changed = applied(text, [self.change])
        try:
            same = ast.dump(ast.parse(changed)) == ast.dump(ast.parse(text))
        except (SyntaxError, ValueError, RecursionError):
            return None
        return None if same else changed


def mutations_of(path: str, text: str) -> list[Mutation]:
    """Every change of one file that is worth trying. Raises SyntaxError for what is no Python."""
    return [
        Mutation(path, name, kind, change)
        for name, function in _functions(ast.parse(text).body)
        for kind, change in _changes_of(text, function)
    ]


def _functions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Function]]:
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield f"{prefix}{statement.name}", statement
            case ast.ClassDef():
                yield from _functions(statement.body, f"{prefix}{statement.name}.")
            case ast.If() | ast.Try() if not _is_guard(statement):
                yield from _functions(statement.body, prefix)
                yield from _functions(statement.orelse, prefix)


def _is_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test) in _GUARDS


def _changes_of(text: str, function: Function) -> list[tuple[str, Change]]:
    collector = _Collector(text)
    collector.visit(function)
    return list(dict.fromkeys(collector.changes))


class _Collector(ast.NodeVisitor):
    """Collects the changes of a function, each with its kind."""

    def __init__(self, text: str) -> None:
        self.changes: list[tuple[str, Change]] = []
        self._text = text

    def _add(self, kind: str, node: ast.expr | ast.stmt, replacement: str) -> None:
        self.changes.append((kind, Change(*span_of(self._text, node), replacement)))

    def _code(self, node: ast.expr) -> str:
        start, end = span_of(self._text, node)
        return self._text[start:end]

    def _add_between(
        self, kind: str, left: ast.expr, right: ast.expr, operator: tuple[str, str]
    ) -> None:
        """Another operator; brackets and comments beside it stay."""
        start, end = span_of(self._text, left)[1], span_of(self._text, right)[0]
        pattern, replacement = operator
        if match := re.search(pattern, self._text[start:end]):
            change = Change(start + match.start(), start + match.end(), replacement)
            self.changes.append((kind, change))

    def visit_FunctionDef(self, node: Function) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add("deleted line", node, "pass")
        if operator := _ARITHMETIC.get(type(node.op)):
            self._add_between("operator", node.target, node.value, operator)
        self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._add("deleted line", node, "pass")
        self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) or _is_talk(node.value):
            return
        if isinstance(node.value, ast.Call | ast.Await):
            self._add("deleted line", node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add("deleted line", node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add("jump", node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._add("jump", node, "continue")

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave assertions alone: they are the code's own claims."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A message's words; positions in it are not those of the file."""

    def visit_If(self, node: ast.If) -> None:
        if _is_guard(node):
            return
        self._add("condition", node.test, f"not ({self._code(node.test)})")
        self._add("removed branch", node.test, "False")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._add("condition", node.test, f"not ({self._code(node.test)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = (node.left, *node.comparators)
        for operator, left, right in zip(node.ops, sides, node.comparators, strict=False):
            self._add_between("comparison", left, right, _COMPARISONS[type(operator)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        operator = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._add_between("condition", left, right, operator)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add("condition", node, f"({self._code(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        operator = _ARITHMETIC.get(type(node.op))
        if operator is not None and not any(map(_is_text, (node.left, node.right))):
            self._add_between("operator", node.left, node.right, operator)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value, code = node.value, self._code(node)
        if isinstance(value, bool):
            self._add("constant", node, str(not value))
        elif isinstance(value, int):
            for other in (value + 1, value - 1):
                self._add("off by one", node, str(other) if other >= 0 else f"({other})")
        elif isinstance(value, float):
            self._add("constant", node, repr(2 * value + 1))
        elif isinstance(value, str) and value and _is_plain_text(code):
            self._add("constant", node, other_value(code, Random(len(code))))

    def visit_Call(self, node: ast.Call) -> None:
        if _is_talk(node):
            return
        for left, right in zip(node.args, node.args[1:], strict=False):
            self._swap("swapped arguments", left, right)
        name = name_of_call(node)
        if name in _OTHER_NAMES:
            end = span_of(self._text, node.func)[1]
            self.changes.append(
                ("another function", Change(end - len(name), end, _OTHER_NAMES[name]))
            )
        if name == "len":
            self._add("off by one", node, f"({self._code(node)} - 1)")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        value = node.value
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            return
        self._add(NOTHING_RETURNED, value, "None")
        if isinstance(value, ast.Tuple):
            for left, right in zip(value.elts, value.elts[1:], strict=False):
                self._swap("swapped values", left, right)
        self.visit(value)

    def _swap(self, kind: str, left: ast.expr, right: ast.expr) -> None:
        """Two neighbours in each other's place; what stands between them stays."""
        if ast.Starred in (type(left), type(right)):
            return
        (start, between), (after, end) = span_of(self._text, left), span_of(self._text, right)
        if self._text[start:between] != self._text[after:end]:
            swapped = self._text[after:end] + self._text[between:after] + self._text[start:between]
            self.changes.append((kind, Change(start, end, swapped)))


def _is_talk(node: ast.expr) -> bool:
    """Whether it is a call that only tells somebody something."""
    if not isinstance(node, ast.Call):
        return False
    root: ast.expr = node.func
    while isinstance(root, ast.Attribute | ast.Call):
        if isinstance(root, ast.Attribute) and root.attr in _TALK:
            return True
        root = root.value if isinstance(root, ast.Attribute) else root.func
    return isinstance(root, ast.Name) and root.id in _TALK


def _is_text(node: ast.expr) -> bool:
    """Whether it is text: `-` between texts fails at once, wherever it stands."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _is_plain_text(code: str) -> bool:
    """One short literal between single quotation marks, with no prefix."""
    return code[0] in "\"'" and len(code) <= _LONGEST_TEXT and code.count(code[0]) == 2
