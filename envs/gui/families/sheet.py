"""Families about a spreadsheet: cells, rows, formulas, sorting, and looking things up."""

from __future__ import annotations

from clawrl_gym.envs.draw import STEMS, WORDS, Draw
from clawrl_gym.envs.gui.apps.sheet import DOWN, UP
from clawrl_gym.envs.gui.apps.sheet_formula import cell_name
from clawrl_gym.envs.gui.families.family import (
    Family,
    TaskDraft,
    Turns,
    answer,
    done,
    give_up,
    link,
    press,
    select,
    write,
)
from clawrl_gym.envs.gui.families.sheet_world import (
    World,
    draw_world,
    rows_of,
    task_draft,
    with_rows,
    written,
)
from clawrl_gym.envs.gui.task import Step


def set_cell(draw: Draw) -> TaskDraft:
    """A number or a word into a cell that is named."""
    world = draw_world(draw, 3)
    column, row = draw.below(3), draw.between(2, 4)
    cell, now = cell_name(column, row), rows_of(world)[row - 1][column]
    value = draw.pick(WORDS) if column == 0 else _number(draw, now)
    asked = draw.pick(
        ("Put {v} into {c}.", "Write {v} into cell {c}.", "Set {c} to {v}.", "{c} should be {v}.")
    )
    told = f"{cell}/{value}", asked.format(c=cell, v=value)
    return task_draft(world, told, _entered(cell, value), after=written(world, {cell: value}))


def look_up(draw: Draw) -> TaskDraft:
    """A number where a row and a column meet."""
    world = draw_world(draw, draw.between(3, 4))
    column, row = draw.between(1, 2), draw.between(2, 4)
    thing, header = _names(world, column, row)
    asked = draw.pick(
        ("What is the number of {h} of {t}?", "Tell me how many {h} the {t} has.",
         "Which number is in the column {h} of {t}?")
    )  # fmt: skip
    value = rows_of(world)[row - 1][column]
    told = f"{thing}/{header}", asked.format(h=header, t=thing)
    return task_draft(world, told, (answer(value),), answer=value)


def correct(draw: Draw) -> TaskDraft:
    """A number that is wrong: the cell has to be found."""
    world = draw_world(draw, 3)
    column, row = draw.between(1, 2), draw.between(2, 4)
    thing, header = _names(world, column, row)
    value = _number(draw, rows_of(world)[row - 1][column])
    told = f"{thing}/{header}/{value}", _change_asked(draw).format(t=thing, h=header, v=value)
    cell = cell_name(column, row)
    return task_draft(world, told, _entered(cell, value), after=written(world, {cell: value}))


def add_row(draw: Draw) -> TaskDraft:
    """One more thing, at the end."""
    world = draw_world(draw, draw.between(2, 3))
    rows = rows_of(world)
    thing = draw.pick([it for it in STEMS if it not in {row[0] for row in rows}])
    cells = [thing, *(str(value) for value in draw.some(range(10, 100), 2))]
    asked = draw.pick(
        ("Add a row: {c}.", "Add the new row {c}.", "The last row should be {c}: add it.")
    )
    told = "/".join(cells), asked.format(c=", ".join(cells))
    turns: Turns = ((link("New row"),), (*_row_cells(len(rows) + 1, cells), press("Save")), done())
    return task_draft(world, told, turns, after=with_rows(world, [*rows, cells]))


def remove(draw: Draw) -> TaskDraft:
    """A thing that goes."""
    world = draw_world(draw, 3)
    rows, row = rows_of(world), draw.between(2, 4)
    thing = rows[row - 1][0]
    asked = draw.pick(
        ("Delete the row of {t}.", "Take the row {t} out.", "The {t} is no more: delete its row.")
    )
    turns: Turns = ((link(str(row)),), (press("Delete row"),), done())
    left = [*rows[: row - 1], *rows[row:]]
    return task_draft(world, (thing, asked.format(t=thing)), turns, after=with_rows(world, left))


def formula(draw: Draw) -> TaskDraft:
    """Two cells that are added, subtracted or multiplied in a third one."""
    world = draw_world(draw, 3)
    one, other, cell = (cell_name(*it) for it in draw.some(_number_cells(3), 3))
    told, sign = draw.pick((("{a} plus {b}", "+"), ("{a} minus {b}", "-"), ("{a} * {b}", "*")))
    asked = draw.pick(
        ("Write a formula into {c}: {f}.", "{c} should be {f}, as a formula.",
         "Put {f} into {c} as a formula.")
    )  # fmt: skip
    content = f"={one}{sign}{other}"
    key = f"{cell}{content}"
    instruction = asked.format(c=cell, f=told.format(a=one, b=other))
    after = written(world, {cell: content})
    return task_draft(world, (key, instruction), _entered(cell, content), after=after)


def total(draw: Draw) -> TaskDraft:
    """A row of sums."""
    world = draw_world(draw, draw.between(6, 9))
    rows, name = rows_of(world), draw.pick(WORDS)
    cells = [name, *(f"=SUM({column}2:{column}{len(rows)})" for column in "BC")]
    asked = draw.pick(
        ("Add a row {n} with the sums of the columns B and C, as formulas.",
         "At the end, make a row {n}. In B and C it has the sum of the column: use formulas.")
    )  # fmt: skip
    turns: Turns = ((link("New row"),), (*_row_cells(len(rows) + 1, cells), press("Save")), done())
    told = name, asked.format(n=name)
    return task_draft(world, told, turns, after=with_rows(world, [*rows, cells]))


def sort(draw: Draw) -> TaskDraft:
    """Rows in order of a column, and then a cell of the first one."""
    world = draw_world(draw, draw.between(5, 8))
    rows, place = rows_of(world), draw.between(1, 2)
    order, largest = draw.pick(((UP, False), (DOWN, True)))
    ordered = sorted(rows[1:], key=lambda row: int(row[place]), reverse=largest)
    value = _number(draw, ordered[0][3 - place])
    cell, column = cell_name(3 - place, 2), cell_name(place, 1)[0]
    asked = draw.pick(
        ("Sort the rows by {h}, {o}. Then put {v} into {c}.",
         "Put the rows in order of {h}, {o}, and then write {v} into {c}.")
    )  # fmt: skip
    turns: Turns = (
        (link("Sort"),),
        (select("Column", column), select("Order", order), press("Sort rows")),
        *_entered(cell, value),
    )
    header = rows[0][place]
    told = f"{header}/{order}/{value}/{cell}", asked.format(h=header, o=order, v=value, c=cell)
    after = written(with_rows(world, [rows[0], *ordered]), {cell: value})
    return task_draft(world, told, turns, after=after)


def most(draw: Draw) -> TaskDraft:
    """The thing with the largest or the smallest number, in another sheet."""
    world = draw_world(draw, 4, draw.between(6, 9))
    rows, place = rows_of(world, 1), draw.between(1, 2)
    word, chosen = draw.pick((("most", max), ("least", min)))
    thing = chosen(rows[1:], key=lambda row: int(row[place]))[0]
    name, header = world["sheets"][1]["name"], rows[0][place]
    asked = draw.pick(
        ("Which item in {s} has the {w} {h}?", "What in the sheet {s} has the {w} {h}?")
    )
    told = f"{name}/{word}/{header}", asked.format(s=name, w=word, h=header)
    return task_draft(world, told, ((link(name),), answer(thing)), answer=thing)


def count(draw: Draw) -> TaskDraft:
    """How many rows have more than so much."""
    world = draw_world(draw, 4, draw.between(6, 9))
    rows, place, limit = rows_of(world, 1), draw.between(1, 2), draw.between(20, 80)
    above = sum(int(row[place]) > limit for row in rows[1:])
    name, header = world["sheets"][1]["name"], rows[0][place]
    asked = draw.pick(
        ("How many items in {s} have more than {n} {h}?",
         "Count the rows of {s} with more than {n} {h}.")
    )  # fmt: skip
    told = f"{name}/{limit}/{header}", asked.format(s=name, n=limit, h=header)
    return task_draft(world, told, ((link(name),), answer(above)), answer=str(above))


def copy_over(draw: Draw) -> TaskDraft:
    """A number of one sheet that another one needs."""
    world = draw_world(draw, 4, draw.between(5, 8))
    here, there = (sheet["name"] for sheet in world["sheets"])
    source = rows_of(world, 1)
    column, row = draw.between(1, 2), draw.between(2, len(source))
    thing, header = _names(world, column, row, sheet=1)
    value = source[row - 1][column]
    cells = [
        (place, line)
        for place, line in _number_cells(4)
        if rows_of(world)[line - 1][place] != value
    ]
    cell = cell_name(*draw.pick(cells))
    asked = draw.pick(
        ("Put the {h} of {t} from {s} into {c} of {m}.",
         "Look up the {h} of {t} in {s} and write it into {c} of {m}.")
    )  # fmt: skip
    told = asked.format(h=header, t=thing, s=there, c=cell, m=here)
    turns: Turns = ((link(there),), (link(here),), *_entered(cell, value))
    after = written(world, {cell: value})
    return task_draft(world, (f"{header}/{thing}/{there}/{cell}", told), turns, after=after)


def change(draw: Draw) -> TaskDraft:
    """A number in another sheet; sometimes its row is not there, or its cell is locked."""
    world = draw_world(draw, 3, 5)
    name, rows = world["sheets"][1]["name"], rows_of(world, 1)
    column, row = draw.between(1, 2), draw.between(2, 6)
    thing, header = _names(world, column, row, sheet=1)
    value, cell = _number(draw, rows[row - 1][column]), cell_name(column, row)
    told = (
        f"{name}/{thing}/{header}/{value}",
        f"In {name}: {_change_asked(draw).format(t=thing, h=header, v=value)}",
    )
    entered = _entered(cell, value)
    fate = draw.pick(("there", "there", "locked", "missing"))
    if fate == "there":
        after = written(world, {cell: value}, sheet=1)
        return task_draft(world, told, ((link(name),), *entered), after=after)
    if fate == "locked":
        world["sheets"][1]["locked"] = [cell]
        turns: Turns = ((link(name),), entered[0], give_up("It is locked."))
    else:
        del rows[row - 1]
        turns = ((link(name),), give_up(f"There is no {thing}."))
    return task_draft(world, told, turns, feasible=False)


def _entered(cell: str, content: str) -> Turns:
    """A cell is written, and that is all."""
    return ((write("Cell", cell), write("Content", content), press("Enter")), done())


def _row_cells(row: int, cells: list[str]) -> tuple[Step, ...]:
    return tuple(write(cell_name(place, row), content) for place, content in enumerate(cells))


def _names(world: World, column: int, row: int, sheet: int = 0) -> tuple[str, str]:
    """How the row and the column are called."""
    rows = rows_of(world, sheet)
    return rows[row - 1][0], rows[0][column]


def _number_cells(things: int) -> list[tuple[int, int]]:
    return [(column, row) for column in (1, 2) for row in range(2, things + 2)]


def _change_asked(draw: Draw) -> str:
    return draw.pick(
        ("The {h} of {t} should be {v}.", "Change the {h} of {t} to {v}.",
         "Set the {h} of {t} to {v}.", "The {t} has {v} {h} now.")
    )  # fmt: skip


def _number(draw: Draw, now: str) -> str:
    return draw.pick([str(value) for value in range(10, 100) if str(value) != now])


SHEET = (
    Family("sheet_change", change),
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
