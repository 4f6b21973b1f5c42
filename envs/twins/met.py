"""Statements of a program that every passing run reaches, as far as its text alone tells.

Functions that are called, loops over what is written out, `with` and `try` whose errors are
failures: whatever stands there is met. Of anything else it is not known.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from clawrl_gym.envs.twins.python import EXITS, fails, may_leave, name_of_call

_SAME_LENGTH = frozenset(("enumerate", "sorted", "reversed", "list", "tuple", "zip"))
_VIEWS = frozenset(("items", "keys", "values"))
_QUIET = frozenset(("suppress", "raises", "assertRaises", "assertRaisesRegex", "warns"))
_UNIT_TESTS = frozenset(("unittest.main", "main"))


@dataclass(frozen=True, slots=True)
class Met:
    """A statement that every passing run comes to."""

    statement: ast.stmt
    loops: tuple[ast.For, ...] = ()
    """Around it, from outside in, each over entries that are written out."""
    is_once: bool = True
    """Met once for each round of the loops; not so in a function that is called from two places."""


class Walk:
    """Goes through a program; the functions that it finds called are met the next time."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        nodes = list(ast.walk(tree))
        names = [node for node in nodes if isinstance(node, ast.Name)]
        self._loaded = Counter(one.id for one in names if isinstance(one.ctx, ast.Load))
        stored = Counter(one.id for one in names if not isinstance(one.ctx, ast.Load))
        self._written = {
            target.id: statement.value
            for statement in tree.body
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Name) and stored[target.id] == 1
        }
        self._defined = Counter(node.name for node in nodes if isinstance(node, ast.FunctionDef))
        self._runs_tests = any(
            isinstance(node, ast.Call) and ast.unparse(node.func) in _UNIT_TESTS for node in nodes
        )
        self.called: dict[str, Met] = {}
        """Functions by name, each with the statement that calls it."""

    def met(self) -> list[Met]:
        """Statements that every passing run of the program reaches."""
        while True:
            before = len(self.called)
            found = list(self._within(self._tree.body, Met(ast.Pass()), True))
            if len(self.called) == before:
                return found

    def _within(self, body: Sequence[ast.stmt], around: Met, met: bool) -> Iterator[Met]:
        for statement in body:
            here = replace(around, statement=statement)
            if met:
                for name in _surely_called(statement):
                    self.called.setdefault(name, here)
                yield here
                for inner, inside in self._bodies(here):
                    yield from self._within(inner, inside, True)
            met = met and not may_leave(statement) and not _may_jump(statement)

    def _bodies(self, here: Met) -> Iterator[tuple[list[ast.stmt], Met]]:
        """Bodies of a statement, with what is met in each."""
        match here.statement:
            case ast.FunctionDef() as function:
                if (called := self._call_of(function)) is not None:
                    yield function.body, called
            case ast.ClassDef(body=body):
                yield body, here
            case ast.With() as block:
                names = {name_of_call(one.context_expr) for one in block.items
                         if isinstance(one.context_expr, ast.Call)}  # fmt: skip
                if not names & _QUIET:
                    yield block.body, here
            case ast.Try() as block:
                if all(fails(handler.body) for handler in block.handlers):
                    yield block.body, here
                    yield block.orelse, here
                yield block.finalbody, here
            case ast.If(test=test, body=body) if "__name__" in ast.unparse(test):
                yield body, here
            case ast.For() as loop if self.entries(loop.iter):
                yield loop.body, replace(here, loops=(*here.loops, loop))

    def _call_of(self, function: ast.FunctionDef) -> Met | None:
        """The statement by which a function is met; None where it may not be."""
        is_plain = not function.decorator_list and self._defined[function.name] == 1
        if not is_plain or any(
            isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(function)
        ):
            return None
        if self._runs_tests and function.name.startswith("test"):
            return Met(function)
        call = self.called.get(function.name)
        is_once = self._loaded[function.name] == 1
        return None if call is None else replace(call, is_once=call.is_once and is_once)

    def entries(self, iterated: ast.expr) -> int:
        """Number of entries that are written out; 0 where it is unknown."""
        match iterated:
            case ast.List(elts=elts) | ast.Tuple(elts=elts):
                return 0 if any(isinstance(one, ast.Starred) for one in elts) else len(elts)
            case ast.Dict(keys=keys):
                return 0 if None in keys else len(keys)
            case ast.Constant(value=str() as text):
                return len(text)
            case ast.Name(id=name) if name in self._written:
                return self.entries(self._written[name])
            case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int() as count)]):
                return max(count, 0)
            case ast.Call(func=ast.Name(id=name), args=args) if name in _SAME_LENGTH and args:
                return min(map(self.entries, args))
            case ast.Call(func=ast.Attribute(value=value, attr=attr), args=[]) if attr in _VIEWS:
                return self.entries(value)
        return 0


def _surely_called(statement: ast.stmt) -> Iterator[str]:
    """Names of functions that a statement calls whenever it is met."""
    match statement:
        case ast.Expr(value=value) | ast.Assign(value=value) | ast.Return(value=value):
            calls = [value]
            if isinstance(value, ast.Call) and name_of_call(value) in EXITS:
                calls += value.args
            for call in calls:
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                    yield call.func.id


def _may_jump(statement: ast.stmt) -> bool:
    """Whether what follows in a loop may be passed over."""
    return isinstance(statement, ast.If | ast.Try | ast.With | ast.Match) and any(
        isinstance(node, ast.Continue | ast.Break) for node in ast.walk(statement)
    )
