"""Formulas of the spreadsheet, such as =A1+B2 or =SUM(B2:B5): read and worked out, never run.

What is no formula at all is refused (`FormulaError`); what has no value (a division by zero, a
word times two) shows an error such as #DIV/0! in its cell, as spreadsheets do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

CellValue = float | str
"""A number, or what a cell says: text, or an error that begins with #."""

MAX_CHARS = 100
"""Most characters that are written into a cell."""
MAX_DEPTH = 32
"""Deepest nesting of brackets, and of formulas that read formulas."""
_MAX_NUMBER = 1e15
"""Largest number: beyond it a float's digits are not all its own."""
_TOKEN = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?|[A-Za-z]+[0-9]{0,3}|[-+*/():,])")
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_FUNCTIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "SUM": sum,
    "MIN": min,
    "MAX": max,
    "COUNT": len,
    "AVERAGE": lambda numbers: sum(numbers) / len(numbers),
}


class FormulaError(ValueError):
    """The text of a cell is no formula; says why."""


def show_cell(value: CellValue) -> str:
    """A value as its cell shows it."""
    return value if isinstance(value, str) else f"{value + 0.0:.12g}"  # never -0


def cell_name(column: int, row: int) -> str:
    """A1 for (0, 1)."""
    return f"{chr(ord('A') + column)}{row}"


class SheetValues:
    """The cells of one sheet with everything worked out, and which cells each formula reads.

    Raises FormulaError for what is no formula, or refers to itself.
    """

    def __init__(self, rows: Sequence[Sequence[str]]) -> None:
        self._contents = {
            cell_name(column, row): content
            for row, cells in enumerate(rows, start=1)
            for column, content in enumerate(cells)
        }
        self._open: list[str] = []
        self.values: dict[str, CellValue] = {}
        self.reads: dict[str, list[str]] = {}
        """Names of the cells that each formula reads, sorted."""
        for name in self._contents:
            self.value(name)

    def value(self, name: str) -> CellValue:
        """Value of a cell."""
        if name not in self._contents:
            raise FormulaError(f"there is no cell {name!r} in this sheet")
        if name not in self.values:
            self.values[name] = self._work_out(name, self._contents[name])
        return self.values[name]

    def _work_out(self, name: str, content: str) -> CellValue:
        if not content.startswith("="):
            return float(content) if _NUMBER.fullmatch(content) else content
        if name in self._open:
            raise FormulaError(f"the formula of {name} refers to itself")
        if len(self._open) >= MAX_DEPTH:
            raise FormulaError(f"the formula of {name} reads too long a chain of formulas")
        self._open.append(name)
        formula = _Formula(content[1:], self.value)
        value = formula.value()
        self._open.pop()
        self.reads[name] = sorted(formula.reads)
        return value


class _Formula:
    """One formula, read from left to right; multiplication binds closer than addition."""

    def __init__(self, text: str, value_of: Callable[[str], CellValue]) -> None:
        self._value_of = value_of
        self._depth = 0
        self.reads: set[str] = set()
        self._tokens: list[str] = []
        place, text = 0, text.rstrip()
        while place < len(text):
            token = _TOKEN.match(text, place)
            if token is None:
                raise FormulaError(f"in a formula there is no place for {text[place:][:10]!r}")
            self._tokens.append(token[1].upper())
            place = token.end()

    def value(self) -> CellValue:
        """A number, or an error that the cell shows."""
        value = self._sum()
        if self._tokens:
            raise FormulaError(f"the formula should end before {self._tokens[0]!r}")
        return value

    def _sum(self) -> CellValue:
        value = self._product()
        while self._next() in ("+", "-"):
            value = _apply(self._take(), value, self._product())
        return value

    def _product(self) -> CellValue:
        value = self._factor()
        while self._next() in ("*", "/"):
            value = _apply(self._take(), value, self._factor())
        return value

    def _factor(self) -> CellValue:
        token = self._take()
        if token == "-":
            return _apply("-", 0.0, self._deeper(self._factor))
        if token == "(":
            value = self._deeper(self._sum)
            self._expect(")")
            return value
        if token[0].isdigit():
            return float(token)
        if not token[0].isalpha():
            raise FormulaError(f"got {token!r}, expected a cell such as B2 or a number")
        return self._function(token) if self._next() == "(" else self._cell(token)

    def _deeper(self, read: Callable[[], CellValue]) -> CellValue:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise FormulaError("the formula has too many brackets")
        value = read()
        self._depth -= 1
        return value

    def _function(self, name: str) -> CellValue:
        function = _FUNCTIONS.get(name)
        if function is None:
            raise FormulaError(f"got {name}(), expected one of {', '.join(_FUNCTIONS)}")
        values: list[CellValue] = []
        while self._take() in ("(", ","):
            values += self._deeper_list()
            if self._next() not in (",", ")"):
                raise FormulaError("expected a comma or a closing bracket")
        failed = [value for value in values if isinstance(value, str) and value.startswith("#")]
        numbers = [value for value in values if isinstance(value, float)]
        if failed:
            return failed[0]
        if not numbers and name not in ("SUM", "COUNT"):
            return "#DIV/0!"
        return _bounded(float(function(numbers)))

    def _deeper_list(self) -> list[CellValue]:
        """One argument: a range of cells, or a value."""
        if self._tokens[1:2] != [":"]:
            return [self._deeper(self._sum)]
        first, _, last = self._take(), self._take(), self._take()
        (left, top), (right, bottom) = _place(first), _place(last)
        if left > right or top > bottom:
            raise FormulaError(f"the range {first}:{last} should go from top left to bottom right")
        return [
            self._cell(cell_name(column, row), empty="")
            for row in range(top, bottom + 1)
            for column in range(left, right + 1)
        ]

    def _cell(self, name: str, empty: CellValue = 0.0) -> CellValue:
        _place(name)
        self.reads.add(name)
        value = self._value_of(name)
        return empty if value == "" else value

    def _next(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def _take(self) -> str:
        if not self._tokens:
            raise FormulaError("the formula ends too early")
        return self._tokens.pop(0)

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise FormulaError(f"got {self._next()!r} in the formula, expected {token!r}")
        self._take()


def _place(name: str) -> tuple[int, int]:
    if not re.fullmatch(r"[A-Z][1-9][0-9]?", name):
        raise FormulaError(f"got {name!r}, expected a cell such as B2")
    return ord(name[0]) - ord("A"), int(name[1:])


def _apply(sign: str, left: CellValue, right: CellValue) -> CellValue:
    if isinstance(left, str) or isinstance(right, str):
        words = [value for value in (left, right) if isinstance(value, str)]
        return words[0] if words[0].startswith("#") else "#VALUE!"
    if sign == "/":
        return _bounded(left / right) if right else "#DIV/0!"
    return _bounded({"+": left + right, "-": left - right, "*": left * right}[sign])


def _bounded(number: float) -> CellValue:
    return number if abs(number) < _MAX_NUMBER else "#NUM!"
