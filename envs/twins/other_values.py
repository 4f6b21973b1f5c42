"""Other values in the place of those that a program expects, written out or computed.

What is computed is changed in a way for each kind of value: one of them fits, and the others raise.
Either is a failure for a right value, while one that is equal to anything of its kind passes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from clawrl_gym.envs.twins.python import (
    EQUALITIES,
    NEGATED,
    Expectations,
    fails,
    name_of_call,
    span_of,
)
from clawrl_gym.envs.twins.text import Change
from clawrl_gym.envs.twins.trust import tells_by_truth

Asked = Iterator[tuple[ast.expr, Change]]
"""Deciding expressions, each with a change after which it decides otherwise."""


class OtherValues:
    """Finds decisions in statements that are met, and other values for them."""

    def __init__(self, expectations: Expectations) -> None:
        self._expectations = expectations
        self._source = expectations.source
        self._random = expectations.random

    def of_statement(self, statement: ast.stmt) -> Asked:
        match statement:
            case ast.Assert():
                yield from self.of_truth(statement.test)
            case ast.If() if fails(statement.body):
                yield from self.of_guard(statement.test)
            case ast.Expr(value=ast.Call() as call):
                yield from self._of_call(call)
            case ast.With():
                context = statement.items[0].context_expr
                raised = self._expectations.raised(statement)
                if isinstance(context, ast.Call) and raised is not None:
                    yield context, raised

    def of_truth(self, test: ast.expr) -> Asked:
        """Values for a condition that holds."""
        match test:
            case ast.BoolOp(op=ast.And()):
                for value in test.values:
                    yield from self.of_truth(value)
            case ast.UnaryOp(op=ast.Not()) if not isinstance(test.operand, ast.BoolOp):
                yield from self.of_guard(test.operand)
            case ast.Compare(ops=[ast.Eq()]):
                yield from self._of_equality(test, ast.Eq)
            case _ if tells_by_truth(test):
                yield test, self._expectations.negated(test)

    def of_guard(self, test: ast.expr) -> Asked:
        """Values for a condition that does not hold."""
        match test:
            case ast.BoolOp(op=ast.Or()):
                for value in test.values:
                    yield from self.of_guard(value)
            case ast.UnaryOp(op=ast.Not()) if not isinstance(test.operand, ast.BoolOp):
                yield from self.of_truth(test.operand)
            case ast.Compare(ops=[ast.NotEq()]):
                yield from self._of_equality(test, ast.NotEq)
            case _ if tells_by_truth(test):
                yield test, self._expectations.negated(test)

    def _of_equality(self, test: ast.Compare, sign: type[ast.cmpop]) -> Asked:
        written = self._expectations.other_side(test, sign)
        if written is not None:
            yield test, written
            return
        for change in self._computed((test.left, *test.comparators)):
            yield test, change

    def _of_call(self, call: ast.Call) -> Asked:
        name, sides = name_of_call(call), call.args[:2]
        if name == "assertTrue" and sides:
            yield from self._held(call, self.of_truth(sides[0]))
        elif name == "assertFalse" and sides:
            yield from self._held(call, self.of_guard(sides[0]))
        elif EQUALITIES.fullmatch(name) and not NEGATED.search(name) and len(sides) == 2:
            written = self._expectations.first_other(self._random.sample(sides, len(sides)))
            for change in [written] if written is not None else self._computed(sides):
                yield call, change
        elif (raised := self._expectations.other_raised(*span_of(self._source, call))) is not None:
            yield call, raised

    def _held(self, call: ast.Call, asked: Asked) -> Asked:
        """The condition of a call, and with it the call."""
        for node, change in asked:
            yield node, change
            yield call, change

    def _computed(self, sides: Iterable[ast.expr]) -> Iterator[Change]:
        """Another value of each kind that a side may be of. What is got from the policy's code by
        a call is no expectation, unless there is nothing else."""
        sides = list(sides)
        expected = [side for side in sides if not _is_given(side)]
        for side in expected or sides:
            start, end = span_of(self._source, side)
            for form in _forms_of(side):
                yield Change(start, end, form.format(self._source[start:end], **self._pieces()))

    def _pieces(self) -> dict[str, object]:
        return {
            "number": 2 * self._random.randint(50, 500) + 1,
            "bit": self._random.choice((1, 2, 3)),
            "letter": self._random.choice("aeiou"),
        }


_FORMS: Mapping[str, tuple[str, ...]] = {
    "number": ("(-({0}) - {number})", "(({0}) ^ {bit})"),
    "text": ("(({0}) + '{letter}')",),
    "list": ("(({0}) + [{bit}])",),
    "tuple": ("(*({0}), {bit})", "(({0}), {bit})"),
    "dict": ("{{**({0}), {number}: {bit}}}",),
    "set": ("{{*({0}), {number}}}",),
    "truth": ("(not ({0}))",),
}
"""Expressions by kind, which a value of it never equals. For another kind they raise, or differ."""
_KINDS: Mapping[str, str] = {
    "sorted": "list", "list": "list", "dict": "dict", "set": "set", "frozenset": "set",
    "tuple": "tuple", "len": "number", "sum": "number", "int": "number", "float": "number",
    "abs": "number", "str": "text", "repr": "text", "join": "text", "upper": "text",
    "lower": "text", "strip": "text", "replace": "text", "format": "text", "bool": "truth",
    "isinstance": "truth", "startswith": "truth", "endswith": "truth", "isdigit": "truth",
}  # fmt: skip


def _is_given(side: ast.expr) -> bool:
    """Whether it is a call of what a scope holds: `scope["add"](2, 3)`."""
    return isinstance(side, ast.Call) and isinstance(side.func, ast.Subscript)


def _forms_of(side: ast.expr) -> Iterable[str]:
    kinds: tuple[str, ...]
    match side:
        case ast.BinOp(op=ast.Sub() | ast.Div() | ast.FloorDiv() | ast.Pow()):
            kinds = ("number", "set")
        case ast.JoinedStr():
            kinds = ("text",)
        case ast.ListComp() | ast.List():
            kinds = ("list",)
        case ast.DictComp() | ast.Dict():
            kinds = ("dict",)
        case ast.SetComp() | ast.Set():
            kinds = ("set",)
        case ast.Tuple():
            kinds = ("tuple",)
        case ast.Compare() | ast.UnaryOp(op=ast.Not()):
            kinds = ("truth",)
        case ast.Call() if name_of_call(side) in _KINDS:
            kinds = (_KINDS[name_of_call(side)],)
        case _:
            kinds = tuple(_FORMS)
    return [form for kind in kinds for form in _FORMS[kind]]
