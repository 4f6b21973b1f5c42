"""A spreadsheet: sheets of rows and columns, cells with formulas, rows added, sorted and removed.

Row 1 holds the names of the columns. Sheets with formulas keep their rows as they stand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TypedDict

from clawrl_gym.envs.gui.site import Request, Response
from clawrl_gym.envs.showcase.gui.apps.serving import (
    Handler,
    RequestRefused,
    filled,
    no_such_page,
    optional,
    page,
    see_other,
    serve,
    whole,
)
from clawrl_gym.envs.showcase.gui.apps.sheet_formula import (
    MAX_CHARS,
    CellValue,
    FormulaError,
    SheetValues,
    cell_name,
    show_cell,
)

HOST = "sheet"
TITLE = "Sheets"
MAX_ROWS = 40
UP, DOWN = "smallest first", "largest first"


class StoredSheet(TypedDict):
    """The fields of `Grid`."""

    name: str
    rows: list[list[str]]
    locked: list[str]


class SheetsWorld(TypedDict):
    """Stored state; the first sheet is the start page."""

    sheets: list[StoredSheet]


@dataclass(slots=True)
class Grid:
    """One sheet; all rows have as many cells as the first."""

    name: str
    rows: list[list[str]]
    """Text that was written into the cells."""
    locked: list[str]
    """Names of locked cells."""

    @property
    def path(self) -> str:
        return f"/{self.name.lower()}"

    @property
    def columns(self) -> list[str]:
        """A, B, and so on."""
        return [cell_name(place, 1)[0] for place in range(len(self.rows[0]))]


class Sheets:
    """The site."""

    def __init__(self, world: SheetsWorld) -> None:
        self._grids = [Grid(**stored) for stored in world["sheets"]]
        self._evaluations = {grid.name: SheetValues(grid.rows) for grid in self._grids}
        self._menu = tuple((grid.name, grid.path) for grid in self._grids)
        self._pages: dict[str, Handler] = {"": partial(self._grid_page, self._grids[0])}
        self._changes: dict[str, Handler] = {}
        for grid in self._grids:
            name = grid.path.removeprefix("/")
            self._pages[name] = partial(self._grid_page, grid)
            self._changes[name] = partial(self._change, grid)

    def handle(self, request: Request) -> Response:
        return serve(request, self._pages, self._changes, TITLE, self._menu)

    def state(self) -> object:
        """Values of the cells, and the cells that each formula reads: =A1+A2 is =SUM(A1:A2)."""
        return {
            grid.name: {
                "rows": self._shown_rows(grid),
                "reads": dict(sorted(self._evaluations[grid.name].reads.items())),
            }
            for grid in self._grids
        }

    def _shown_rows(self, grid: Grid) -> list[list[str]]:
        values = self._evaluations[grid.name].values
        return [
            [show_cell(values[cell_name(place, row)]) for place in range(len(cells))]
            for row, cells in enumerate(grid.rows, start=1)
        ]

    def _grid_page(self, grid: Grid, request: Request, rest: str) -> Response:
        if rest == "new":
            return self._row_page(grid, "New row", "new", [""] * len(grid.columns))
        if rest == "sort":
            return page("sheet/sort", "Sort", self._menu, grid=grid, orders=(UP, DOWN))
        if rest:
            row = _row(grid, rest)
            return self._row_page(grid, f"Row {row}", str(row), grid.rows[row - 1])
        return page("sheet/grid", grid.name, self._menu, grid=grid, rows=self._shown_rows(grid))

    def _row_page(self, grid: Grid, title: str, action: str, contents: list[str]) -> Response:
        number = len(grid.rows) + 1 if action == "new" else int(action)
        cells = {cell_name(place, number): content for place, content in enumerate(contents)}
        return page("sheet/row", title, self._menu, grid=grid, action=action, cells=cells)

    def _change(self, grid: Grid, request: Request, rest: str) -> Response:
        actions = {
            "cell": self._enter,
            "new": self._add,
            "sort": self._sort,
            "delete": self._remove,
        }
        if rest in actions:
            self._store(grid, actions[rest](grid, request))
        else:
            row = _row(grid, rest)
            self._store(grid, self._rewritten(grid, request, row, grid.rows[row - 1]))
        return see_other(grid.path)

    def _store(self, grid: Grid, rows: list[list[str]]) -> None:
        """Stores the rows, if everything in them can be worked out."""
        try:
            evaluation = SheetValues(rows)
        except FormulaError as error:
            raise RequestRefused(f"Nothing was changed: {error}.") from None
        grid.rows, self._evaluations[grid.name] = rows, evaluation

    def _enter(self, grid: Grid, request: Request) -> list[list[str]]:
        name = filled(request, "cell", "The cell").upper()
        if not re.fullmatch(r"[A-Z][1-9][0-9]?", name):
            raise RequestRefused(f"Got the cell {name[:10]}, expected one such as B2.")
        column, row = ord(name[0]) - ord("A"), int(name[1:])
        if column >= len(grid.columns) or row > len(grid.rows):
            raise RequestRefused(f"There is no cell {name} in this sheet.")
        _check_free(grid, name)
        if "content" not in request.form:
            raise RequestRefused("The form is not whole.")
        rows = [list(cells) for cells in grid.rows]
        rows[row - 1][column] = _content(request, "content")
        return rows

    def _rewritten(
        self, grid: Grid, request: Request, row: int, cells: list[str]
    ) -> list[list[str]]:
        names = [cell_name(place, row) for place in range(len(cells))]
        free = [name for name in names if name not in grid.locked]
        if not set(free) <= set(request.form):
            raise RequestRefused("The form is not whole.")
        contents = [
            _content(request, name) if name in free else content
            for name, content in zip(names, cells, strict=True)
        ]
        return [*grid.rows[: row - 1], contents, *grid.rows[row:]]

    def _add(self, grid: Grid, request: Request) -> list[list[str]]:
        if len(grid.rows) >= MAX_ROWS:
            raise RequestRefused(f"A sheet has at most {MAX_ROWS} rows.")
        rows = self._rewritten(grid, request, len(grid.rows) + 1, [""] * len(grid.columns))
        if not any(rows[-1]):
            raise RequestRefused("The new row is empty.")
        return rows

    def _sort(self, grid: Grid, request: Request) -> list[list[str]]:
        column = filled(request, "column", "The column")
        order = filled(request, "order", "The order")
        if column not in grid.columns or order not in (UP, DOWN):
            raise RequestRefused(f"Choose a column and the order: {UP} or {DOWN}.")
        self._check_movable(grid)
        values, place = self._evaluations[grid.name].values, grid.columns.index(column)
        keys = [values[cell_name(place, row)] for row in range(2, len(grid.rows) + 1)]
        rows = sorted(zip(keys, grid.rows[1:], strict=True), key=_rank, reverse=order == DOWN)
        return [grid.rows[0], *(cells for _, cells in rows)]

    def _remove(self, grid: Grid, request: Request) -> list[list[str]]:
        row = _row(grid, filled(request, "row", "The row"))
        if row == 1:
            raise RequestRefused("The first row holds the names of the columns: it stays.")
        self._check_movable(grid)
        return [*grid.rows[: row - 1], *grid.rows[row:]]

    def _check_movable(self, grid: Grid) -> None:
        if self._evaluations[grid.name].reads or grid.locked:
            raise RequestRefused("Rows cannot move in a sheet with formulas or locked cells.")


def _row(grid: Grid, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise no_such_page()
    return whole(text, "The row", 1, len(grid.rows))


def _check_free(grid: Grid, name: str) -> None:
    if name in grid.locked:
        raise RequestRefused(f"{name} is locked: it cannot be changed.")


def _content(request: Request, name: str) -> str:
    content = optional(request, name)
    if len(content) > MAX_CHARS or "\n" in content:
        raise RequestRefused(f"A cell holds one line of at most {MAX_CHARS} characters.")
    return content


def _rank(keyed: tuple[CellValue, list[str]]) -> tuple[bool, float, str]:
    """Numbers stand before words."""
    value = keyed[0]
    return (True, 0.0, value.casefold()) if isinstance(value, str) else (False, value, "")
