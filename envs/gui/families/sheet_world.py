"""Draws spreadsheets: a first row of names, then a row for each thing."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from clawrl_gym.envs.draw import STEMS, Draw
from clawrl_gym.envs.gui.apps.sheet import HOST, Sheets
from clawrl_gym.envs.gui.families.family import Served, TaskDraft, Turns

World = dict[str, Any]

NAMES = ("Stock", "Market", "Sales", "Garden", "Kitchen", "Camp", "Party", "Workshop")
HEADERS = ("boxes", "days", "cups", "cards", "coins", "balls", "hats", "keys")


def draw_world(draw: Draw, *sizes: int) -> World:
    """A sheet for each number: so many things, with two numbers each. No thing is in two."""
    things = iter(draw.some(STEMS, sum(sizes)))
    sheets = []
    for name, size in zip(draw.some(NAMES, len(sizes)), sizes, strict=True):
        first, second = (draw.some(range(10, 100), size) for _ in range(2))
        rows = [["item", *draw.some(HEADERS, 2)]]
        rows += [[next(things), str(a), str(b)] for a, b in zip(first, second, strict=True)]
        sheets.append({"name": name, "rows": rows, "locked": []})
    return {"sheets": sheets}


def rows_of(world: World, sheet: int = 0) -> list[list[str]]:
    """The rows of a sheet, names of the columns first."""
    rows: list[list[str]] = world["sheets"][sheet]["rows"]
    return rows


def written(world: World, cells: Mapping[str, str], sheet: int = 0) -> World:
    """The world with these cells written."""
    after = copy.deepcopy(world)
    for name, content in cells.items():
        rows_of(after, sheet)[int(name[1:]) - 1][ord(name[0]) - ord("A")] = content
    return after


def with_rows(world: World, rows: list[list[str]], sheet: int = 0) -> World:
    """The world with these rows in a sheet."""
    after = copy.deepcopy(world)
    after["sheets"][sheet]["rows"] = rows
    return after


def task_draft(
    world: World,
    told: tuple[str, str],
    turns: Turns,
    *,
    after: World | None = None,
    answer: str | None = None,
    feasible: bool = True,
) -> TaskDraft:
    """A draft of key and instruction that begins at the first sheet."""
    return TaskDraft(
        key=told[0],
        instruction=told[1],
        start=f"http://{HOST}/",
        sites={HOST: Served(Sheets, world)},
        solution=turns,
        after={HOST: after} if after is not None else {},
        answer=answer,
        feasible=feasible,
    )
