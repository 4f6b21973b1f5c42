"""The matrix of a bench: intervals, what is paired, what is said of it, and its picture.

`python -m tests.comparison.test_bench_matrix` writes the golden matrices anew; look at
what changed before it is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from clawrl_gym.comparison.matrix import (
    against_table,
    budget_sentence,
    cells_of,
    columns_of,
    findings,
    matrix_of,
    matrix_table,
    paired,
)
from clawrl_gym.comparison.measurement import is_measured, make_room
from clawrl_gym.comparison.picture import matrix_svg
from clawrl_gym.comparison.plan import CONTROL_MARK
from clawrl_gym.comparison.results import RecipeResult, RunResult
from clawrl_gym.comparison.scores import Measured, Scores
from clawrl_gym.comparison.tables import ResultTable, data_of, tables_of
from clawrl_gym.config import EvaluateConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.intervals import mean_difference, student_t


def solved(count: int, of: int = 40) -> Scores:
    """A success for each of the first tasks."""
    return {f"t{task}": float(task < count) for task in range(of)}


def measured(**by_env: Scores) -> Measured:
    scores = {f"{env} success": own for env, own in by_env.items()}
    values = {name: sum(own.values()) / len(own) for name, own in scores.items()}
    return Measured(values, scores)


def recipe(name: str, *afters: Measured, env: str = "terminal", steps: int = 10) -> RecipeResult:
    before = measured(terminal=solved(10), toolcall=solved(20))
    runs = [RunResult(seed, {}, {}, 0, after, 1000) for seed, after in enumerate(afters)]
    walls = [60.0 for _ in afters]
    return RecipeResult(name, env, 4, 32, steps, runs, walls, {}, len(afters), before)


GOOD = recipe("good", *[measured(terminal=solved(30), toolcall=solved(20))] * 3)
BAD = recipe("bad", *[measured(terminal=solved(9), toolcall=solved(4))] * 3)


@pytest.mark.parametrize(
    ("degrees", "quantile"),  # from tables of Student's t
    [(1, 12.7062), (2, 4.3027), (19, 2.0930), (21, 2.0796), (40, 2.0211), (119, 1.9801)],
)
def test_quantiles_of_students_t(degrees: int, quantile: float) -> None:
    assert student_t(degrees) == pytest.approx(quantile, abs=5e-4)


def test_one_seeds_interval_is_of_its_tasks() -> None:
    """8 of 40 worse: squares 8 * 0.8² + 32 * 0.2² = 6.4, and 1; / 41 / 40; root times 2.0211."""
    change = mean_difference([[-1.0] * 8 + [0.0] * 32])
    assert change is not None
    assert (change.mean, change.seeds, change.tasks) == (-0.2, 1, 40)
    assert change.high - change.mean == pytest.approx(2.0211 * (7.4 / 41 / 40) ** 0.5, abs=1e-4)
    assert change.is_clear


def test_where_nothing_changed_the_interval_is_as_wide_as_so_few_tasks_allow() -> None:
    few, many = mean_difference([[0.0] * 5]), mean_difference([[0.0] * 500])
    assert few is not None
    assert many is not None
    assert few.high == pytest.approx(2.5706 / 30**0.5, abs=1e-4)  # 1 / (6 * 5)
    assert many.high == pytest.approx(1.9647 / (501 * 500) ** 0.5, abs=1e-5)
    assert not few.is_clear


def test_seeds_that_lie_apart_widen_the_interval_by_students_t() -> None:
    """Two seeds of all and of none of 10 tasks: mean squares of seeds 5, of the rest 0."""
    change = mean_difference([[1.0] * 10, [0.0] * 10])
    assert change is not None
    tasks = 2.2281**2 * (2 * 1 / 11) / 20
    seeds = 12.7062**2 * 5 / 20
    assert change.high - 0.5 == pytest.approx((tasks + seeds) ** 0.5, abs=1e-3)


def test_what_seeds_vary_by_their_tasks_alone_does_not_count_twice() -> None:
    """Means are equal: seeds add nothing, whatever their single tasks did."""
    change = mean_difference([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]])
    assert change is not None
    assert change.high - 0.5 == pytest.approx(2.7764 * (2 * 1 / 5 / 8) ** 0.5, abs=1e-4)


def test_pairs_are_of_the_same_seed_and_of_tasks_that_both_measured() -> None:
    ours = {0: {"a": 1.0, "b": 1.0, "lost": 1.0}, 1: {"a": 1.0, "b": 0.0}, 2: {"a": 1.0}}
    theirs = {0: {"a": 0.0, "b": 1.0}, 1: {"a": 0.0, "b": 0.0, "more": 1.0}}
    change = paired(ours, theirs)
    assert change is not None
    assert (change.mean, change.seeds, change.tasks) == (0.5, 2, 2)
    assert paired(ours, {}) is None
    assert paired({0: {"a": 1.0}}, {0: {"b": 1.0}}) is None


def test_every_recipe_has_a_cell_for_every_environment() -> None:
    (terminal, toolcall), (worse, forgotten) = matrix_of([GOOD, BAD])
    assert (terminal.before, terminal.after, terminal.is_own) == (0.25, 0.75, True)
    assert terminal.change is not None
    assert terminal.change.mean == 0.5
    assert terminal.against_first is None
    assert not toolcall.is_own
    assert worse.against_first is not None
    assert worse.against_first.mean == pytest.approx(-0.525)
    assert forgotten.change is not None
    assert forgotten.change.is_clear


def test_scores_that_say_more_stand_beside_success() -> None:
    scores = {f"conversation {name}": solved(3) for name in ("success", "correct")}
    chats = Measured({}, {**scores, "conversation liked": solved(3)})
    assert columns_of([recipe("one", chats)]) == [
        "terminal success",
        "toolcall success",
        "conversation liked",
        "conversation correct",
        "conversation success",
    ]


def test_the_sentences_say_what_is_clear_and_what_is_not() -> None:
    gain, loss, against, budget = findings([GOOD, BAD])
    assert gain == (
        "good gained +0.50 (+0.33 to +0.67) on terminal success and is not distinguishable from "
        "before on toolcall success."
    )
    assert loss.startswith("bad lost 0.40 (")
    assert "not distinguishable from before on terminal success" in loss
    assert against.startswith("bad, less good: -0.5")
    assert against.endswith("on toolcall success.")
    assert budget == "Budgets are equal: 320 training episodes a run."


def test_a_loss_of_right_answers_is_said_first() -> None:
    scores = {"conversation liked": solved(30), "conversation correct": solved(20)}
    costly = recipe("costly", Measured({"conversation correct": 0.5}, scores))
    before = {**scores, "conversation correct": solved(38)}
    costly = replace(costly, before=Measured({"conversation correct": 0.95}, before))
    assert findings([costly])[0].startswith(
        "RIGHT ANSWERS FELL by costly: 0.95 to 0.50, -0.45 (-0.61 to -0.29), on conversation c"
    )
    level = replace(costly, before=Measured({"conversation correct": 0.5}, scores))
    assert not any("FELL" in sentence for sentence in findings([level]))


def test_one_seed_is_said_to_be_one() -> None:
    sentences = findings([recipe("good", GOOD.runs[0].after)])
    assert any(sentence.startswith("One seed:") for sentence in sentences)


def test_nothing_measured_is_no_finding() -> None:
    empty = replace(GOOD, runs=[], before=Measured())
    assert findings([empty]) == ["Nothing is measured before and after yet."]
    assert matrix_svg([empty]) == ""
    assert matrix_table([empty]).rows == [["good", "-", "320", "-", "1:00"]]


def test_unequal_budgets_get_a_word() -> None:
    more = recipe("more", steps=100)
    assert budget_sentence([GOOD, more]).startswith("Budgets are NOT equal: 320 to 3,200 training")
    assert "about 320" not in budget_sentence([GOOD, GOOD])
    assert "about 330" in budget_sentence([GOOD, replace(GOOD, episodes_per_update=33)])


def test_the_table_has_n_and_costs() -> None:
    table = matrix_table([GOOD, BAD])
    assert table.columns[-4:] == ["n", "episodes", "tokens", "time"]
    assert table.rows[0][-4:] == ["40 by 3", "320", "1,000", "1:00"]
    assert table.rows[0][2].startswith("0.50 → 0.50, ≈ +0.00 (")


def test_the_picture_colours_what_is_clear_alone() -> None:
    svg = str(matrix_svg([GOOD, replace(BAD, name="<bad>")]))
    assert svg.count('class="gain"') == 1
    assert svg.count('class="loss"') == 1
    assert svg.count('class="own"') == 2
    assert "&lt;bad&gt;" in svg
    assert not re.search(r"url\(|@import", svg)


def test_what_was_measured_otherwise_makes_room_and_what_was_begun_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "terminal"
    config = compose("evaluate", [f"run.dir={folder}"], EvaluateConfig)
    make_room(config)
    (folder / "episodes.jsonl").write_text("begun\n")
    assert not is_measured(config)
    make_room(config)
    assert (folder / "episodes.jsonl").read_text() == "begun\n"
    (folder / "evaluation.json").write_text("{}")
    assert is_measured(config)
    other = compose("evaluate", [f"run.dir={folder}", "env.max_turns=3"], EvaluateConfig)
    assert not is_measured(other)
    make_room(other)
    assert [path.name for path in folder.iterdir()] == ["measured_with.json"]


GOLDEN = Path(__file__).parents[1] / "fixtures" / "golden" / "matrix.json"
NARROW = recipe("narrow", measured(terminal=solved(11)), env="toolcall")
EVEN = recipe("even", *[measured(terminal=solved(10), toolcall=solved(20))] * 2, steps=11)
TALKER = replace(
    recipe("talks<b>", *[measured(terminal=solved(40))] * 2, env="conversation+terminal"),
    before=Measured({"conversation correct": 0.25}, {"conversation correct": {"a": 0.0, "b": 0.5}}),
    failures={"talks seed 2": "exit code 1"},
    planned=3,
    runs=[
        RunResult(
            seed,
            {"conversation+terminal success": {0: 0.25, 4: 0.5, 8: 0.75 + seed / 8}},
            {"conversation+terminal success": {step: step / 8 for step in range(8)}},
            seed,
            Measured(
                {"conversation correct": 0.75},
                {"conversation correct": {"a": 1.0, "b": 0.5 * seed}},
            ),
        )
        for seed in range(2)
    ],
)
UNMEASURED = replace(recipe("open"), before=Measured({}, {}), planned=2)
ALMOST = replace(NARROW, episodes_per_update=33, steps=10)
MATRICES: dict[str, Sequence[RecipeResult]] = {
    "clear": [GOOD, BAD],
    "level": [EVEN, NARROW],
    "one": [NARROW],
    "almost even": [NARROW, ALMOST],
    "other measures": [TALKER, GOOD],
    "unmeasured": [UNMEASURED, replace(GOOD, name=f"good{CONTROL_MARK}random_hints")],
    "nothing": [UNMEASURED],
}


def said(results: Sequence[RecipeResult]) -> dict[str, object]:
    """All that is drawn, written and told of results."""
    tables: list[ResultTable | None] = [
        matrix_table(results), against_table(results), *tables_of(results, 0.7)
    ]  # fmt: skip
    return {
        "picture": str(matrix_svg(results)).partition("</style>")[2].split("/><"),
        "tables": [table and table.markdown().splitlines() for table in tables],
        "findings": findings(results),
        "cells": [rounded(cell) for cell in cells_of(results)],
        "data": [rounded(data) for data in data_of(results, 0.7)],
    }


def rounded(content: object) -> str:
    """Other machines add up otherwise in the last digits."""
    return re.sub(r"-?\d+\.\d{7,}", lambda match: f"{float(match[0]):.6f}", str(content))


@pytest.mark.parametrize("name", MATRICES)
def test_a_matrix_is_drawn_written_and_told_as_it_was(name: str) -> None:
    golden = json.loads(GOLDEN.read_text("utf-8"))[name]
    now = said(MATRICES[name])
    for part, content in now.items():
        assert content == golden[part], part


if __name__ == "__main__":
    contents = {name: said(results) for name, results in MATRICES.items()}
    GOLDEN.write_text(json.dumps(contents, indent=0) + "\n", "utf-8")
