"""Families about a spreadsheet: cells, rows, formulas, sorting, and looking items up."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from clawrl_gym.envs.draw import STEMS, WORDS, Draw
from clawrl_gym.envs.gui.task import Step
from clawrl_gym.envs.showcase.gui.apps.sheet import DOWN, HOST, UP, Sheets, SheetsWorld, StoredSheet
from clawrl_gym.envs.showcase.gui.apps.sheet_formula import cell_name
from clawrl_gym.envs.showcase.gui.families.family import (
    Application,
    Family,
    TaskContent,
    Turns,
    answer,
    done,
    give_up,
    link,
    press,
    select,
    write,
)

SITE = Application(HOST, Sheets)

NAMES = ("Stock", "Market", "Sales", "Garden", "Kitchen", "Camp", "Party", "Workshop")
HEADERS = ("boxes", "days", "cups", "cards", "coins", "balls", "hats", "keys")


def draw_world(draw: Draw, *sizes: int) -> SheetsWorld:
    """A sheet for each size: that many items, with two numbers each. No item is in two."""
    items = iter(draw.some(STEMS, sum(sizes)))
    sheets: list[StoredSheet] = []
    for name, size in zip(draw.some(NAMES, len(sizes)), sizes, strict=True):
        first, second = (draw.some(range(10, 100), size) for _ in range(2))
        rows = [["item", *draw.some(HEADERS, 2)]]
        rows += [[next(items), str(a), str(b)] for a, b in zip(first, second, strict=True)]
        sheets.append({"name": name, "rows": rows, "locked": []})
    return {"sheets": sheets}


def rows_of(world: SheetsWorld, sheet: int = 0) -> list[list[str]]:
    """The rows of a sheet, names of the columns first."""
    return world["sheets"][sheet]["rows"]


def written(world: SheetsWorld, cells: Mapping[str, str], sheet: int = 0) -> SheetsWorld:
    """The world with these cells written."""
    after = copy.deepcopy(world)
    for name, content in cells.items():
        rows_of(after, sheet)[int(name[1:]) - 1][ord(name[0]) - ord("A")] = content
    return after


def with_rows(world: SheetsWorld, rows: list[list[str]], sheet: int = 0) -> SheetsWorld:
    """The world with these rows in a sheet."""
    after = copy.deepcopy(world)
    after["sheets"][sheet]["rows"] = rows
    return after


def set_cell(draw: Draw) -> TaskContent:
    """A number or a word into a cell that is named."""
    world = draw_world(draw, 3)
    column, row = draw.below(3), draw.between(2, 4)
    cell, now = cell_name(column, row), rows_of(world)[row - 1][column]
    value = draw.pick(WORDS) if column == 0 else _number(draw, now)
    phrasing = draw.pick(
        ("Put {v} into {c}.", "Write {v} into cell {c}.", "Set {c} to {v}.", "{c} should be {v}.")
    )
    key, instruction = f"{cell}/{value}", phrasing.format(c=cell, v=value)
    return SITE.task(
        key, instruction, world, _entered(cell, value), after=written(world, {cell: value})
    )


def look_up(draw: Draw) -> TaskContent:
    """A number where a row and a column meet."""
    world = draw_world(draw, draw.between(3, 4))
    column, row = draw.between(1, 2), draw.between(2, 4)
    item, header = _names(world, column, row)
    phrasing = draw.pick(
        ("What is the number of {h} of {t}?", "Tell me how many {h} the {t} has.",
         "Which number is in the column {h} of {t}?")
    )  # fmt: skip
    value = rows_of(world)[row - 1][column]
    key, instruction = f"{item}/{header}", phrasing.format(h=header, t=item)
    return SITE.task(key, instruction, world, (answer(value),), answer=value)


def correct(draw: Draw) -> TaskContent:
    """A number that is wrong: the cell has to be found."""
    world = draw_world(draw, 3)
    column, row = draw.between(1, 2), draw.between(2, 4)
    item, header = _names(world, column, row)
    value = _number(draw, rows_of(world)[row - 1][column])
    key, instruction = (
        f"{item}/{header}/{value}",
        _change_phrasing(draw).format(t=item, h=header, v=value),
    )
    cell = cell_name(column, row)
    return SITE.task(
        key, instruction, world, _entered(cell, value), after=written(world, {cell: value})
    )


def add_row(draw: Draw) -> TaskContent:
    """One more item, at the end."""
    world = draw_world(draw, draw.between(2, 3))
    rows = rows_of(world)
    item = draw.pick([stem for stem in STEMS if stem not in {row[0] for row in rows}])
    cells = [item, *(str(value) for value in draw.some(range(10, 100), 2))]
    phrasing = draw.pick(
        ("Add a row: {c}.", "Add the new row {c}.", "The last row should be {c}: add it.")
    )
    key, instruction = "/".join(cells), phrasing.format(c=", ".join(cells))
    turns: Turns = ((link("New row"),), (*_row_cells(len(rows) + 1, cells), press("Save")), done())
    return SITE.task(key, instruction, world, turns, after=with_rows(world, [*rows, cells]))


def remove(draw: Draw) -> TaskContent:
    """A item that goes."""
    world = draw_world(draw, 3)
    rows, row = rows_of(world), draw.between(2, 4)
    item = rows[row - 1][0]
    phrasing = draw.pick(
        ("Delete the row of {t}.", "Take the row {t} out.", "The {t} is no more: delete its row.")
    )
    turns: Turns = ((link(str(row)),), (press("Delete row"),), done())
    left = [*rows[: row - 1], *rows[row:]]
    return SITE.task(item, phrasing.format(t=item), world, turns, after=with_rows(world, left))


def formula(draw: Draw) -> TaskContent:
    """Two cells that are added, subtracted or multiplied in a third one."""
    world = draw_world(draw, 3)
    first, second, cell = (cell_name(*place) for place in draw.some(_number_cells(3), 3))
    operation, sign = draw.pick((("{a} plus {b}", "+"), ("{a} minus {b}", "-"), ("{a} * {b}", "*")))
    phrasing = draw.pick(
        ("Write a formula into {c}: {f}.", "{c} should be {f}, as a formula.",
         "Put {f} into {c} as a formula.")
    )  # fmt: skip
    content = f"={first}{sign}{second}"
    key = f"{cell}{content}"
    instruction = phrasing.format(c=cell, f=operation.format(a=first, b=second))
    after = written(world, {cell: content})
    return SITE.task(key, instruction, world, _entered(cell, content), after=after)


def total(draw: Draw) -> TaskContent:
    """A row of sums."""
    world = draw_world(draw, draw.between(6, 9))
    rows, name = rows_of(world), draw.pick(WORDS)
    cells = [name, *(f"=SUM({column}2:{column}{len(rows)})" for column in "BC")]
    phrasing = draw.pick(
        ("Add a row {n} with the sums of the columns B and C, as formulas.",
         "At the end, make a row {n}. In B and C it has the sum of the column: use formulas.")
    )  # fmt: skip
    turns: Turns = ((link("New row"),), (*_row_cells(len(rows) + 1, cells), press("Save")), done())
    key, instruction = name, phrasing.format(n=name)
    return SITE.task(key, instruction, world, turns, after=with_rows(world, [*rows, cells]))


def sort(draw: Draw) -> TaskContent:
    """Rows in order of a column, and then a cell of the first one."""
    world = draw_world(draw, draw.between(5, 8))
    rows, place = rows_of(world), draw.between(1, 2)
    order, largest = draw.pick(((UP, False), (DOWN, True)))
    ordered = sorted(rows[1:], key=lambda row: int(row[place]), reverse=largest)
    value = _number(draw, ordered[0][3 - place])
    cell, column = cell_name(3 - place, 2), cell_name(place, 1)[0]
    phrasing = draw.pick(
        ("Sort the rows by {h}, {o}. Then put {v} into {c}.",
         "Put the rows in order of {h}, {o}, and then write {v} into {c}.")
    )  # fmt: skip
    turns: Turns = (
        (link("Sort"),),
        (select("Column", column), select("Order", order), press("Sort rows")),
        *_entered(cell, value),
    )
    header = rows[0][place]
    key, instruction = (
        f"{header}/{order}/{value}/{cell}",
        phrasing.format(h=header, o=order, v=value, c=cell),
    )
    after = written(with_rows(world, [rows[0], *ordered]), {cell: value})
    return SITE.task(key, instruction, world, turns, after=after)


def most(draw: Draw) -> TaskContent:
    """The item with the largest or the smallest number, in another sheet."""
    world = draw_world(draw, 4, draw.between(6, 9))
    rows, place = rows_of(world, 1), draw.between(1, 2)
    word, extreme = draw.pick((("most", max), ("least", min)))
    item = extreme(rows[1:], key=lambda row: int(row[place]))[0]
    name, header = world["sheets"][1]["name"], rows[0][place]
    phrasing = draw.pick(
        ("Which item in {s} has the {w} {h}?", "What in the sheet {s} has the {w} {h}?")
    )
    key, instruction = f"{name}/{word}/{header}", phrasing.format(s=name, w=word, h=header)
    return SITE.task(key, instruction, world, ((link(name),), answer(item)), answer=item)


def count(draw: Draw) -> TaskContent:
    """Count the rows above a number."""
    world = draw_world(draw, 4, draw.between(6, 9))
    rows, place, limit = rows_of(world, 1), draw.between(1, 2), draw.between(20, 80)
    above = sum(int(row[place]) > limit for row in rows[1:])
    name, header = world["sheets"][1]["name"], rows[0][place]
    phrasing = draw.pick(
        ("How many items in {s} have more than {n} {h}?",
         "Count the rows of {s} with more than {n} {h}.")
    )  # fmt: skip
    key, instruction = f"{name}/{limit}/{header}", phrasing.format(s=name, n=limit, h=header)
    return SITE.task(key, instruction, world, ((link(name),), answer(above)), answer=str(above))


def copy_over(draw: Draw) -> TaskContent:
    """A number of one sheet that another one needs."""
    world = draw_world(draw, 4, draw.between(5, 8))
    here, there = (sheet["name"] for sheet in world["sheets"])
    source = rows_of(world, 1)
    column, row = draw.between(1, 2), draw.between(2, len(source))
    item, header = _names(world, column, row, sheet=1)
    value = source[row - 1][column]
    cells = [
        (place, line)
        for place, line in _number_cells(4)
        if rows_of(world)[line - 1][place] != value
    ]
    cell = cell_name(*draw.pick(cells))
    phrasing = draw.pick(
        ("Put the {h} of {t} from {s} into {c} of {m}.",
         "Look up the {h} of {t} in {s} and write it into {c} of {m}.")
    )  # fmt: skip
    instruction = phrasing.format(h=header, t=item, s=there, c=cell, m=here)
    turns: Turns = ((link(there),), (link(here),), *_entered(cell, value))
    after = written(world, {cell: value})
    return SITE.task(f"{header}/{item}/{there}/{cell}", instruction, world, turns, after=after)


def change(draw: Draw) -> TaskContent:
    """A number in another sheet; sometimes its row is not there, or its cell is locked."""
    world = draw_world(draw, 3, 5)
    name, rows = world["sheets"][1]["name"], rows_of(world, 1)
    column, row = draw.between(1, 2), draw.between(2, 6)
    item, header = _names(world, column, row, sheet=1)
    value, cell = _number(draw, rows[row - 1][column]), cell_name(column, row)
    key, instruction = (
        f"{name}/{item}/{header}/{value}",
        f"In {name}: {_change_phrasing(draw).format(t=item, h=header, v=value)}",
    )
    entered = _entered(cell, value)
    case = draw.pick(("there", "there", "locked", "missing"))
    if case == "there":
        after = written(world, {cell: value}, sheet=1)
        return SITE.task(key, instruction, world, ((link(name),), *entered), after=after)
    if case == "locked":
        world["sheets"][1]["locked"] = [cell]
        turns: Turns = ((link(name),), entered[0], give_up("It is locked."))
    else:
        del rows[row - 1]
        turns = ((link(name),), give_up(f"There is no {item}."))
    return SITE.task(key, instruction, world, turns, feasible=False)


def _entered(cell: str, content: str) -> Turns:
    """A cell is written, and that is all."""
    return ((write("Cell", cell), write("Content", content), press("Enter")), done())


def _row_cells(row: int, cells: list[str]) -> tuple[Step, ...]:
    return tuple(write(cell_name(place, row), content) for place, content in enumerate(cells))


def _names(world: SheetsWorld, column: int, row: int, sheet: int = 0) -> tuple[str, str]:
    """Names of the row and the column."""
    rows = rows_of(world, sheet)
    return rows[row - 1][0], rows[0][column]


def _number_cells(items: int) -> list[tuple[int, int]]:
    return [(column, row) for column in (1, 2) for row in range(2, items + 2)]


def _change_phrasing(draw: Draw) -> str:
    return draw.pick(
        ("The {h} of {t} should be {v}.", "Change the {h} of {t} to {v}.",
         "Set the {h} of {t} to {v}.", "The {t} has {v} {h} now.")
    )  # fmt: skip


def _number(draw: Draw, now: str) -> str:
    return draw.pick([str(value) for value in range(10, 100) if str(value) != now])


SHEET = (
    Family("sheet_change", change, may_be_infeasible=True),
    Family("sheet_copy", copy_over),
    Family("sheet_correct", correct, easy=True),
    Family("sheet_count", count),
    Family("sheet_formula", formula, easy=True),
    Family("sheet_look", look_up, easy=True),
    Family("sheet_most", most),
    Family("sheet_remove", remove, easy=True),
    Family("sheet_row", add_row, easy=True),
    Family("sheet_set", set_cell, easy=True),
    Family("sheet_sort", sort),
    Family("sheet_total", total),
)
