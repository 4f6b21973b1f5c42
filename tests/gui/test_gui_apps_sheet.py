"""The spreadsheet: cells, formulas, rows, what it refuses, and its tasks."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from clawrl_gym.envs.gui.grading import InfeasibleGrader
from clawrl_gym.envs.gui.site import Request
from clawrl_gym.envs.gui.task import Step
from clawrl_gym.envs.showcase.gui.apps.sheet import MAX_ROWS, Sheets, SheetsWorld
from clawrl_gym.envs.showcase.gui.apps.sheet_formula import FormulaError, SheetValues, show_cell
from clawrl_gym.envs.showcase.gui.families.family import done, give_up, link, press, select, write
from clawrl_gym.envs.showcase.gui.families.sheet import SHEET
from clawrl_gym.envs.showcase.gui.generated import make_task, task_ids
from tests.support.gui_sites import get, paper_env, post, reward_of, solution_of, state_of, text_of

EACH = 8
"""Tasks looked at of each family and split."""
ROWS = [["item", "cups", "days"], ["kettle", "12", "30"], ["lemon", "7", "45"], ["", "", ""]]


def world(rows: list[list[str]] | None = None, locked: tuple[str, ...] = ()) -> SheetsWorld:
    first: Any = {"name": "Stock", "rows": copy.deepcopy(rows or ROWS), "locked": list(locked)}
    return {"sheets": [first, {"name": "Camp", "rows": [["item"], ["tiger"]], "locked": []}]}


def rows_of(site: Sheets) -> list[list[str]]:
    rows: list[list[str]] = state_of(site)["Stock"]["rows"]
    return rows


def value(formula: str, *cells: str) -> str:
    """What A2 shows with this formula, below a row with these cells."""
    worked = SheetValues([list(cells), [formula, *[""] * (len(cells) - 1)]])
    return show_cell(worked.values["A2"])


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("=A1+B1", "15"),
        ("=a1 - b1 * 2", "6"),
        ("=(A1-B1)*2", "18"),
        ("=-A1+-2*-B1", "-6"),
        ("=A1/B1/2", "2"),
        ("=1/4", "0.25"),
        ("=-D1", "0"),
        ("=SUM(A1:C1)", "15"),
        ("=SUM(A1, B1, 1+1)", "17"),
        ("=COUNT(A1:D1)", "2"),
        ("=AVERAGE(A1:B1)", "7.5"),
        ("=MIN(A1:B1)+MAX(A1:B1)", "15"),
        ("=D1+1", "1"),
        ("=C1*2", "#VALUE!"),
        ("=A1/D1", "#DIV/0!"),
        ("=AVERAGE(C1:D1)", "#DIV/0!"),
        ("=SUM(A1/0)", "#DIV/0!"),
        ("=999999999999999*10", "#NUM!"),
    ],
)
def test_formulas_are_worked_out_as_in_any_spreadsheet(formula: str, expected: str) -> None:
    assert value(formula, "12", "3", "word", "") == expected


@pytest.mark.parametrize(
    ("formula", "why"),
    [
        ("=", "ends too early"),
        ("=A1+", "ends too early"),
        ("=A2", "refers to itself"),
        ("=SUM(A1:B2)", "refers to itself"),
        ("=Z9", "no cell 'Z9'"),
        ("=A0", "expected a cell"),
        ("=A100", "expected a cell"),
        ("=A1:B1", "end before ':'"),
        ("=SUM(B1:A1)", "top left"),
        ("=SUM(A1:", "ends too early"),
        ("=SUM(A1", "closing bracket"),
        ("=(A1", "expected '\\)'"),
        ("=A1 B1", "end before 'B1'"),
        ("=NOSUCH(A1)", "expected one of SUM"),
        ("=__import__('os')", "no place for"),
        ("=A1;B1", "no place for"),
        ("=1" + "0" * 40, "should end before"),
        ("=" + "(" * 90, "too many brackets"),
        ("=" + "-" * 90 + "1", "too many brackets"),
        ("=" + "SUM(" * 24 + "1", "closing bracket"),
    ],
)
def test_what_is_no_formula_is_refused_in_words(formula: str, why: str) -> None:
    with pytest.raises(FormulaError, match=why):
        value(formula, "12", "3")


def test_formulas_that_refer_to_each_other_in_a_circle_or_a_long_chain_are_refused() -> None:
    with pytest.raises(FormulaError, match="refers to itself"):
        SheetValues([["=B1", "=C1", "=A1+1"]])
    with pytest.raises(FormulaError, match="too long a chain"):
        SheetValues([[f"=A{row + 1}"] for row in range(1, 40)] + [["1"]])
    chain = SheetValues([["1"]] + [[f"=A{row}+1"] for row in range(1, 40)])
    assert show_cell(chain.values["A40"]) == "40"


def test_a_cell_is_entered_and_nothing_else_changes() -> None:
    site = Sheets(world())
    before = state_of(site)
    response = post(site, "/stock/cell", cell=" b3 ", content="<b>'7'</b>")
    assert (response.status, response.headers["location"]) == (303, "/stock")
    before["Stock"]["rows"][2][1] = "<b>'7'</b>"
    assert site.state() == before
    shown_page = get(site, "/stock").body
    assert isinstance(shown_page, str)
    assert "<b>" not in shown_page


def test_a_formula_counts_by_what_it_gives_and_reads() -> None:
    one, alternative, typed = (Sheets(world()) for _ in range(3))
    post(one, "/stock/cell", cell="B4", content="=B2+B3")
    post(alternative, "/stock/cell", cell="B4", content="=sum( b2:b3 )")
    post(typed, "/stock/cell", cell="B4", content="19")
    assert one.state() == alternative.state() != typed.state()
    assert rows_of(one) == rows_of(typed)


def test_rows_are_added_rewritten_sorted_and_deleted() -> None:
    site = Sheets(world(ROWS[:3]))
    assert post(site, "/stock/new", A4="pencil", B4="100", C4="").status == 303
    assert rows_of(site)[3] == ["pencil", "100", ""]
    assert post(site, "/stock/sort", column="B", order="largest first").status == 303
    assert [row[0] for row in rows_of(site)] == ["item", "pencil", "kettle", "lemon"]
    assert post(site, "/stock/3", A3="kettle", B3="1", C3="2").status == 303
    assert post(site, "/stock/delete", row="2").status == 303
    assert rows_of(site) == [ROWS[0], ["kettle", "1", "2"], ROWS[2]]


def test_locked_cells_stay_whichever_way_they_are_written() -> None:
    site = Sheets(world(locked=("B2",)))
    response = post(site, "/stock/cell", cell="B2", content="1")
    assert response.status == 400
    assert "B2 is locked" in text_of(response)
    assert "B2: 12 (locked)" in text_of(get(site, "/stock/2"))
    assert post(site, "/stock/2", A2="kettle", B2="1", C2="30").status == 303
    assert site.state() == Sheets(world()).state()
    for path, form in (
        ("sort", {"column": "B", "order": "largest first"}),
        ("delete", {"row": "2"}),
    ):
        assert post(site, f"/stock/{path}", **form).status == 400
    assert site.state() == Sheets(world()).state()


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("cell", {}),
        ("cell", {"cell": "B2"}),
        ("cell", {"cell": "", "content": "1"}),
        ("cell", {"cell": "Z1", "content": "1"}),
        ("cell", {"cell": "B9", "content": "1"}),
        ("cell", {"cell": "B" + "9" * 10_000, "content": "1"}),
        ("cell", {"cell": "'\"><script>", "content": "1"}),
        ("cell", {"cell": "B2", "content": "=B2"}),
        ("cell", {"cell": "B2", "content": "=1" + "0" * 10_000}),
        ("cell", {"cell": "B2", "content": "9" * 10_000}),
        ("cell", {"cell": "B2", "content": "two\nlines"}),
        ("new", {"A5": "x"}),
        ("new", {"A5": "", "B5": "", "C5": ""}),
        ("sort", {"column": "D", "order": "largest first"}),
        ("sort", {"column": "B", "order": "any"}),
        ("delete", {"row": "1"}),
        ("delete", {"row": "9"}),
        ("2", {"A2": "x"}),
        ("9", {"A9": "x", "B9": "", "C9": ""}),
    ],
)
def test_a_form_that_is_wrong_is_refused_in_words_and_changes_nothing(
    path: str, form: dict[str, str]
) -> None:
    site = Sheets(world())
    response = post(site, f"/stock/{path}", **form)
    assert response.status == 400
    assert "Sorry" in text_of(response)
    assert site.state() == Sheets(world()).state()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/stock/nowhere", 404),
        ("GET", "/stock/9", 400),
        ("GET", "/stock/²", 404),
        ("POST", "/", 405),
        ("POST", "/stock", 404),
        ("POST", "/stock/nowhere", 404),
        ("DELETE", "/stock", 405),
    ],
)
def test_strange_requests_are_answered_in_words(method: str, path: str, status: int) -> None:
    site = Sheets(world())
    response = site.handle(Request(method, path, form={"cell": "B2", "content": "1"}))
    assert response.status == status
    assert "Sorry" in text_of(response)
    assert site.state() == Sheets(world()).state()


def test_a_sheet_does_not_grow_without_end() -> None:
    site = Sheets(world([["item"]]))
    for row in range(2, MAX_ROWS + 1):
        assert post(site, "/stock/new", **{f"A{row}": "x"}).status == 303
    assert post(site, "/stock/new", **{f"A{MAX_ROWS + 1}": "x"}).status == 400


def test_rows_stay_where_formulas_read_them() -> None:
    site = Sheets(world())
    post(site, "/stock/cell", cell="B4", content="=B2+B3")
    before = state_of(site)
    assert post(site, "/stock/delete", row="2").status == 400
    assert post(site, "/stock/sort", column="B", order="largest first").status == 400
    assert site.state() == before


@pytest.mark.parametrize("family", [family.name for family in SHEET])
def test_the_oracle_solves_what_doing_nothing_does_not(family: str) -> None:
    env = paper_env()
    for split in ("train", "heldout"):
        for task_id in task_ids(split, (family,))[:EACH]:
            assert reward_of(env, task_id) == 1.0, (task_id, env.report)
            assert reward_of(env, task_id, [done()]) == 0.0, task_id


def test_a_number_where_a_formula_is_asked_for_earns_nothing() -> None:
    env = paper_env()
    for task_id in task_ids("train", ("sheet_formula",))[:EACH]:
        (cell, content, enter), ending = solution_of(task_id)
        formula = content.text.removeprefix("=")
        swapped = Step("type", content.locator, text=f"={formula}+0")
        assert reward_of(env, task_id, [(cell, swapped, enter), ending]) == 1.0
        after = make_task(task_id).grader.expected["sheet"]  # type: ignore[attr-defined]
        (sheet,) = after.values()
        number = sheet["rows"][int(cell.text[1:]) - 1]["ABC".index(cell.text[0])]
        typed = Step("type", content.locator, text=number)
        assert reward_of(env, task_id, [(cell, typed, enter), ending]) == 0.0


def test_the_wrong_row_or_order_earns_nothing() -> None:
    env = paper_env()
    for task_id in task_ids("train", ("sheet_remove",))[:EACH]:
        (row,), *rest = solution_of(task_id)
        assert row.locator
        alternative = "2" if row.locator.name != "2" else "3"
        assert reward_of(env, task_id, [(link(alternative),), *rest]) == 0.0
    for task_id in task_ids("train", ("sheet_sort",))[:EACH]:
        first, (column, order, sort), *rest = solution_of(task_id)
        alternative = "largest first" if order.text == "smallest first" else "smallest first"
        assert (
            reward_of(env, task_id, [first, (column, select("Order", alternative), sort), *rest])
            == 0.0
        )
        assert reward_of(env, task_id, rest) == 0.0


def test_a_second_cell_besides_earns_nothing() -> None:
    env = paper_env()
    for task_id in task_ids("train", ("sheet_set", "sheet_correct"))[:EACH]:
        entered, ending = solution_of(task_id)
        besides = (write("Cell", "A1"), write("Content", "x"), press("Enter"))
        assert reward_of(env, task_id, [entered, besides, ending]) == 0.0


def test_cells_are_changed_locked_or_missing_by_looking_alone() -> None:
    env = paper_env()
    kinds = [
        isinstance(make_task(task_id).grader, InfeasibleGrader)
        for task_id in task_ids("train", ("sheet_change",))[:100]
    ]
    assert 25 < sum(kinds) < 75
    for task_id in task_ids("heldout", ("sheet_change",))[:20]:
        infeasible = isinstance(make_task(task_id).grader, InfeasibleGrader)
        reward = reward_of(env, task_id, [give_up("no")])
        assert reward == 1.0 if infeasible else reward < 0


def test_easy_tasks_are_short() -> None:
    env = paper_env()
    for family in SHEET:
        for task_id in task_ids("train", (family.name,))[: EACH if family.easy else 0]:
            observation, _ = env.reset(options={"task": task_id})
            assert len(observation) <= 480, task_id
            assert len(solution_of(task_id)) <= 3
            assert len(observation) - len(env.task.instruction) <= 332
