"""A calculator: one expression in, one number out. It knows arithmetic and nothing else."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping

from clawrl_gym.core.types import Json, Tool
from clawrl_gym.envs.toolcall.task import ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolContext, ToolFailure, tool

MAX_CHARS = 500
MAX_DEPTH = 64
MAX_BITS = 10_000
"""Most bits of an intermediate whole number."""
_MAX_DIGITS = 300
_MAX_WHOLE = 1e15
"""Largest number: beyond it a float's digits are not all its own."""

Number = int | float

_OPERATORS: Mapping[type[ast.operator], Callable[[Number, Number], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def _round(value: Number, digits: Number = 0) -> Number:
    """`round` itself would work out ten to the power of the digits, however many."""
    if not isinstance(digits, int) or abs(digits) > _MAX_DIGITS:
        raise ToolFailure(f"expected at most {_MAX_DIGITS} digits to round to")
    return round(value, digits) if digits else round(value)


_FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "abs": abs, "round": _round, "min": min, "max": max, "sqrt": math.sqrt, "floor": math.floor,
    "ceil": math.ceil, "exp": math.exp, "log": math.log, "log2": math.log2, "log10": math.log10,
    "sin": math.sin, "cos": math.cos, "tan": math.tan, "gcd": math.gcd,
}  # fmt: skip
_CONSTANTS: Mapping[str, float] = {"pi": math.pi, "e": math.e}
_SIGNS = str.maketrans({"×": "*", "÷": "/", "−": "-"})  # noqa: RUF001
CALCULATE = tool(
    "calculate", "Work out an expression such as (3 + 4) * 2", {"expression": {"type": "string"}}
)


def make(task: ToolTask, context: ToolContext) -> Calculator:
    return Calculator()


class Calculator:
    """A `Toolset` without a state."""

    def tools(self) -> list[Tool]:
        return [CALCULATE]

    def call(self, name: str, arguments: Json, timeout_s: float) -> str:
        return calculate(str(arguments["expression"]))

    def state(self) -> object:
        return None

    def close(self) -> None:
        pass


def calculate(expression: str) -> str:
    """The value as text. Raises ToolFailure for what is not arithmetic, or too large."""
    if len(expression) > MAX_CHARS:
        raise ToolFailure(f"the expression is too long: at most {MAX_CHARS} characters")
    text = expression.translate(_SIGNS).replace("^", "**").strip()
    try:
        tree = ast.parse(text, mode="eval")
        return _text(_value(tree.body, 0))
    except (SyntaxError, MemoryError, RecursionError):
        raise ToolFailure("this is not an expression; expected one such as (3 + 4) * 2") from None
    except ZeroDivisionError:
        raise ToolFailure("division by zero") from None
    except (OverflowError, ValueError, TypeError) as error:
        raise ToolFailure(str(error)) from None


def _value(node: ast.expr, depth: int) -> Number:
    if depth > MAX_DEPTH:
        raise ToolFailure(f"the expression is nested too deeply: at most {MAX_DEPTH} levels")
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _bounded(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, depth + 1)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, depth + 1)
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _OPERATORS:
            base, exponent = _value(left, depth + 1), _value(right, depth + 1)
            if isinstance(op, ast.Pow):
                _check_power(base, exponent)
            return _bounded(_OPERATORS[type(op)](base, exponent))
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*(_value(arg, depth + 1) for arg in args)))
    functions = ", ".join(_FUNCTIONS)
    raise ToolFailure(f"expected numbers, + - * / // % **, brackets, pi, e and {functions}")


def _check_power(base: Number, exponent: Number) -> None:
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and abs(exponent) * int(base).bit_length() > MAX_BITS:
        raise ToolFailure("the number is too large")


def _bounded(value: object) -> Number:
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise ToolFailure("the number is too large")
        return value
    if not isinstance(value, float) or not math.isfinite(value):
        raise ToolFailure("the result is no real number")
    return value


def _text(value: Number) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < _MAX_WHOLE:
        value = int(value)
    return str(value) if isinstance(value, int) else format(value, ".12g")
