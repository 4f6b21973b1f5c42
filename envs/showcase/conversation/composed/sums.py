"""Sums in what is said: "12 * 15 = 150 + 30 = 180" says nothing but 180.

Only a chain of which every part comes to the same known number is read so: what a guess is made
from stays a number among others.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection
from types import MappingProxyType

_OPERATORS = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
    }
)
_SIGNS = str.maketrans(
    {"\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u2212": "-", "\u2013": "-", "\u20ac": " "}
)
_MARKS = re.compile(r"\*\*|\\(?:text|[()\[\]])|\beuros?\b|\bEUR\b|[${}]", re.IGNORECASE)
_TIMES = re.compile(r"(?<=\d)( ?)x(?= ?[\d(])|\\times|\\cdot")
_RUN = re.compile(r"[\d.()+\-*/= ]+")


def results_for(text: str, values: Collection[float]) -> str:
    """The text with each chain of sums that gives one of these numbers replaced by this number."""
    plain = _TIMES.sub(" * ", _MARKS.sub(" ", text).translate(_SIGNS))
    return _RUN.sub(lambda run: _result(run.group(), values), plain)


def _result(run: str, values: Collection[float]) -> str:
    parts = [_value(part) for part in run.rstrip(". ").split("=")]
    value = parts[0]
    if len(parts) < 2 or value not in values or any(part != value for part in parts):
        return run
    return f" {value:g} "


def _value(text: str) -> float | None:
    """Value of a sum; None where the text is none."""
    try:
        return _worked_out(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return None


def _worked_out(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.BinOp):
        work: Callable[[float, float], float] | None = _OPERATORS.get(type(node.op))
        if work is not None:
            return work(_worked_out(node.left), _worked_out(node.right))
    raise ValueError(f"got {ast.dump(node)}, expected a sum")
