from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from clawrl_gym.comparison.page import COLOURS, colour, write_page
from clawrl_gym.comparison.results import (
    RecipeResult,
    RunResult,
    SeedPoint,
    points_of,
    smooth,
)
from clawrl_gym.comparison.scores import heldout_scores
from clawrl_gym.comparison.tables import data_of, tables_of
from clawrl_gym.config import BenchConfig
from clawrl_gym.core.errors import ClawError
from clawrl_gym.core.provenance import Start
from clawrl_gym.ui import pages
from tests.ui.test_report import Page

MAIN = "conversation liked"
ELSEWHERE = "terminal success"
START: Start = {
    "command": "python -m clawrl_gym.bench",
    "machine": {"cpu": "Test CPU", "cores": 2, "gpus": []},
    "commit": None,
}


def recipe(name: str, *lasts: float, env: str = "conversation") -> RecipeResult:
    """A recipe whose runs, seed by seed, end at these values after 16 updates."""
    runs = [
        RunResult(
            seed,
            {MAIN: {0: 0.25, 8: 0.5, 16: last}, ELSEWHERE: {0: 0.5, 16: 0.25}},
            {MAIN: {step: last * step / 16 for step in range(1, 17)}},
        )
        for seed, last in enumerate(lasts)
    ]
    return RecipeResult(name, env, 3, 3, 16, runs, [60.0 for _ in lasts], {}, planned=len(lasts))


def test_measures_have_the_name_of_their_environment_and_no_counts_or_families() -> None:
    row = {
        "step": 0,
        "heldout/success": 0.5,
        "heldout/success/files": 0.1,
        "heldout/n": 120,
        "heldout/lost": 2,
        "heldout/last_version": 7,
        "heldout/pass@8": 0.8,
        "heldout/low": 0.4,
        "heldout/high": 0.6,
        "heldout/personalization": 0.2,
        "heldout/broken": None,
        "env/shop/heldout/success": 0.4,
        "env/other/heldout/success": 0.1,
        "train/success": 0.3,
    }
    assert heldout_scores(row, "conversation", {"shop": "toolcall"}) == {
        "conversation success": 0.5,
        "conversation personalization": 0.2,
        "conversation pass@8": 0.8,
        "toolcall success": 0.4,
    }


def test_seeds_are_put_together_only_where_all_were_measured() -> None:
    assert points_of([{0: 1.0, 8: 2.0}, {0: 3.0, 4: 9.0}]) == [SeedPoint(0, (1.0, 3.0))]
    assert points_of([]) == []


def test_a_smoothed_value_looks_back_and_never_forward() -> None:
    assert smooth({1: 0.0, 2: 1.0, 5: 5.0}, 2) == {1: 0.0, 2: 0.5, 5: 3.0}


def test_the_target_is_reached_by_the_mean_of_the_seeds() -> None:
    assert recipe("one", 1.0, 0.5).reached(0.8) is None
    assert recipe("one", 1.0, 0.75).reached(0.8) == 16
    assert recipe("one", 1.0).reached(0.2) == 0


def test_differences_are_between_runs_of_the_same_seed() -> None:
    first, second = recipe("first", 0.5, 0.25), recipe("second", 0.75, 1.0)
    assert second.less(first) == (0.25, 0.75)
    without_0 = replace(first, runs=first.runs[1:])
    assert second.less(without_0) == (0.75,)
    assert second.less(replace(first, runs=[])) == ()


def test_tables_say_before_and_after_and_the_way_there() -> None:
    before_after, way = tables_of([recipe("first", 0.5), recipe("second", 0.75, 1.0)], 0.8)
    assert before_after.columns == [
        "recipe",
        "runs",
        "updates",
        MAIN,
        ELSEWHERE,
        "lost",
        "wall time",
    ]
    assert before_after.rows[1] == [
        "second",
        "2 of 2",
        "16",
        "0.25 → 0.88 (0.75 to 1.00)",
        "0.50 → 0.25 (0.25 to 0.25)",
        "0",
        "1:00",
    ]
    assert way.columns[1:] == ["at 0", "at 8", "at 16", "first at 0.8", "last, less first"]
    assert way.rows[0] == ["first", "0.25", "0.50", "0.50", "never", "-"]
    assert way.rows[1][4:] == ["16 updates, 48 problems", "+0.25"]


def test_recipes_of_different_environments_are_not_subtracted() -> None:
    terminal = recipe("general", 0.5, env="terminal")
    tables = tables_of([recipe("personal", 0.5), terminal], 0.8)
    assert [table.title for table in tables[1:]] == [MAIN, ELSEWHERE]


def test_without_a_finished_run_there_is_still_a_table_and_a_page(tmp_path: Path) -> None:
    failed = replace(
        recipe("failed"), planned=1, failures={"failed seed 0": "exit code 1: <b>no</b>"}
    )
    tables = tables_of([failed], 0.8)
    assert [table.rows for table in tables] == [[["failed", "0 of 1", "16", "0", "-"]]]
    page = tmp_path / "bench.html"
    write_page(page, BenchConfig(experiment=("failed",)), [failed], tables, START)
    assert "exit code 1: <b>no</b>" in Page(page.read_text()).words
    assert data_of([failed], 0.8)[0]["heldout"] == {}


def test_a_table_stays_whole_in_markdown() -> None:
    (table, *_) = tables_of([recipe("a|b", 0.5)], 0.8)
    lines = table.markdown().splitlines()[2:]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {8}


def test_the_page_draws_every_measure_and_stands_alone(tmp_path: Path) -> None:
    results = [recipe("first", 0.5, 0.75), recipe("second", 0.75, 1.0)]
    path = tmp_path / "bench.html"
    config = BenchConfig(experiment=("first", "second"), overrides=("learner.lr=0.1",))
    write_page(path, config, results, tables_of(results, 0.8), START)
    text = path.read_text()
    page = Page(text)
    assert text.count("<figure") == 3  # two measures held out, one in training
    assert "learner.lr=0.1" in page.words
    assert "2 recipes, 4 runs done." in text
    write_page(path, config, [recipe("first", 0.5)], tables_of(results, 0.8), START)
    assert "1 recipe, 1 run done." in path.read_text()
    assert {load.split("/")[0] for load in page.loads} == {"href=first", "href=second"}
    assert not re.search(r"url\(|@import|https?://", text)


def test_every_recipe_of_a_page_has_its_own_colour_and_dashes() -> None:
    template = (pages.FOLDER / "series.css").read_text()
    for index in range(COLOURS):
        assert f".s-{colour(index)}{{--c:#" in template
        assert index == 0 or f"svg .s-{colour(index)}.line.dashed{{stroke-dasharray" in template


def test_a_page_that_cannot_be_written_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "bench.html").mkdir()
    with pytest.raises(ClawError, match="cannot write"):
        write_page(tmp_path / "bench.html", BenchConfig(experiment=("x",)), [], [], START)
