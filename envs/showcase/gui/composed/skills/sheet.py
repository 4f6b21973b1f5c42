"""Skills with cells and rows of a sheet."""

from __future__ import annotations

from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.gui.apps.sheet import DOWN, HOST, StoredSheet
from clawrl_gym.envs.showcase.gui.apps.sheet_formula import cell_name
from clawrl_gym.envs.showcase.gui.composed.desk import Desk
from clawrl_gym.envs.showcase.gui.composed.skill import Args, Kind, Refused, Skill, Value
from clawrl_gym.envs.showcase.gui.composed.ways import to_sheet
from clawrl_gym.envs.showcase.gui.families.family import Turns, link, press, select, write


def sheet_of(desk: Desk, name: Value) -> StoredSheet:
    return next(one for one in desk.sheet["sheets"] if one["name"] == name)


def place(desk: Desk, cell: Value) -> tuple[StoredSheet, int, int]:
    """The sheet of a cell, or of a row, its row and its column, from 0. Raises Refused."""
    name, item, *column = str(cell).split("/")
    sheet = sheet_of(desk, name)
    items = [row[0] for row in sheet["rows"]]
    if item not in items:
        raise Refused
    return sheet, items.index(item), sheet["rows"][0].index(column[0]) if column else 0


def name_of(desk: Desk, cell: Value) -> str:
    """A cell as its sheet numbers it."""
    _, row, column = place(desk, cell)
    return cell_name(column, row + 1)


def _written(desk: Desk, args: Args) -> None:
    sheet, row, column = place(desk, args["cell"])
    if cell_name(column, row + 1) in sheet["locked"]:
        raise Refused
    sheet["rows"][row][column] = str(args["number"])


def _added(desk: Desk, args: Args) -> None:
    cells = [str(args["word"]), str(args["number"]), str(args["second"])]
    rows = sheet_of(desk, args["sheet"])["rows"]
    if cells[0] in [row[0] for row in rows]:
        raise Refused
    rows.append(cells)


def _movable(sheet: StoredSheet) -> StoredSheet:
    if sheet["locked"]:
        raise Refused
    return sheet


def _deleted(desk: Desk, args: Args) -> None:
    sheet, row, _ = place(desk, args["row"])
    del _movable(sheet)["rows"][row]


def _sorted(desk: Desk, args: Args) -> None:
    sheet = _movable(sheet_of(desk, args["sheet"]))
    head, *rows = sheet["rows"]
    column = head.index(str(args["column"]))
    rows.sort(key=lambda row: float(row[column]), reverse=args["direction"] == DOWN)
    sheet["rows"] = [head, *rows]


def enter(desk: Desk, args: Args) -> Turns:
    """A number into a cell."""
    content = write("Content", str(args["number"]))
    cell = write("Cell", name_of(desk, args["cell"]))
    return (*to_sheet(str(args["cell"]).split("/")[0]), (cell, content, press("Enter")))


def _add(desk: Desk, args: Args) -> Turns:
    row = len(sheet_of(desk, args["sheet"])["rows"]) + 1
    contents = (args["word"], args["number"], args["second"])
    cells = [write(cell_name(column, row), str(one)) for column, one in enumerate(contents)]
    return (*to_sheet(str(args["sheet"])), (link("New row"),), (*cells, press("Save")))


def _delete(desk: Desk, args: Args) -> Turns:
    sheet, row, _ = place(desk, args["row"])
    way = (*to_sheet(sheet["name"]), (link(str(row + 1), near=sheet["rows"][row][0]),))
    return (*way, (press("Delete row"),))


def _sort(desk: Desk, args: Args) -> Turns:
    head = sheet_of(desk, args["sheet"])["rows"][0]
    letter = cell_name(head.index(str(args["column"])), 1)[0]
    form = (select("Column", letter), select("Order", str(args["direction"])), press("Sort rows"))
    return (*to_sheet(str(args["sheet"])), (link("Sort"),), form)


SHEET = (
    Skill(
        "set_cell", HOST, {"cell": Kind.CELL, "number": Kind.NUMBER},
        Phrasings(
            (
                "set {cell} to {number}", "change {cell} to {number}",
                "write {number} as {cell}", "correct {cell}: it should be {number}",
            ),
            ("let {cell} be {number}", "have {cell} read {number}"),
        ),
        _written, enter, settles=True,
    ),
    Skill(
        "add_row", HOST,
        {"sheet": Kind.SHEET, "word": Kind.WORD, "number": Kind.NUMBER, "second": Kind.NUMBER},
        Phrasings(
            (
                "add a row to {sheet} at its end: {word}, {number}, {second}",
                "append the row {word}, {number}, {second} to {sheet}",
                "put a new last row into {sheet}: {word}, {number}, {second}",
                "enter {word}, {number}, {second} as a new row of {sheet}",
            ),
            (
                "let {sheet} end with the new row {word}, {number}, {second}",
                "extend {sheet} by the row {word}, {number}, {second}",
            ),
        ),
        _added, _add,
    ),
    Skill(
        "delete_row", HOST, {"row": Kind.ROW},
        Phrasings(
            (
                "delete the row of {row}", "remove the row of {row}",
                "take the row of {row} out", "drop the whole row of {row}",
            ),
            ("let the row of {row} go", "strike the row of {row}"),
        ),
        _deleted, _delete,
    ),
    Skill(
        "sort_sheet", HOST,
        {"sheet": Kind.SHEET, "column": Kind.COLUMN, "direction": Kind.DIRECTION},
        Phrasings(
            (
                "sort {sheet} by {column}, {direction}",
                "put the rows of {sheet} in the order of {column}, {direction}",
                "order the rows of {sheet} by {column}, with the {direction}",
                "arrange {sheet} by {column}: {direction}",
            ),
            (
                "have {sheet} sorted by {column}, {direction}",
                "let the rows of {sheet} follow {column}, {direction}",
            ),
        ),
        _sorted, _sort, settles=True,
    ),
)  # fmt: skip
