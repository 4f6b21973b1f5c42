"""`bench compare A B`, on evaluations that were written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawrl_gym.bench import main
from clawrl_gym.comparison.compare import compare
from clawrl_gym.core.errors import ConfigError


def recipe(folder: Path, *solved: int, env: str = "terminal", tasks: int = 20) -> Path:
    """A recipe whose runs, seed by seed, solve so many of the first tasks."""
    for seed, count in enumerate(solved):
        episodes = [
            {"task": {"id": f"t{n}", "seed": n}, "reward": float(n < count), "scores": {}}
            for n in range(tasks)
        ]
        place = folder / f"seed{seed}-measured" / env
        place.mkdir(parents=True)
        text = json.dumps({"metrics": {}, "episodes": episodes})
        (place / "evaluation.json").write_text(text)
    return folder


def test_two_recipes_are_paired_by_seed_and_task(tmp_path: Path) -> None:
    first = recipe(tmp_path / "first", 4, 4)
    second = recipe(tmp_path / "second", 14, 14, 14)
    table = compare(first, second)
    assert table.columns == ["recipe", "terminal success", "terminal reward", "n"]
    # t of 20 is 2.0860; squares 10 * 0.5² + 10 * 0.5² and 1, by 21 and 20: half 0.249
    difference = "+0.50 (+0.25 to +0.75)"
    assert table.rows == [["second", difference, difference, "20 by 2"]]


def test_two_benches_are_compared_by_the_recipes_that_both_have(tmp_path: Path) -> None:
    for bench, count in (("a", 10), ("b", 10)):
        recipe(tmp_path / bench / "same", count)
        recipe(tmp_path / bench / f"only-{bench}", count)
    (row,) = compare(tmp_path / "a", tmp_path / "b").rows
    assert row[0] == "same"
    assert row[1].startswith("≈ +0.00 (-0.10")


def test_the_command_prints_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = recipe(tmp_path / "first", 4), recipe(tmp_path / "second", 14)
    assert main(["compare", str(first), str(second)]) == 0
    assert "+0.50" in capsys.readouterr().out


def test_what_cannot_be_compared_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = recipe(tmp_path / "bench" / "one", 4).parent
    other = recipe(tmp_path / "other" / "two", 4, env="gui").parent
    for folders, message in [
        ((bench, tmp_path / "nowhere"), "where there is no folder, expected the folder of a bench"),
        ((bench, bench / "one"), "one is a recipe's folder and the other is not"),
        ((bench, other), "expected a recipe that both have"),
        ((bench / "one", other / "two"), "no environment in common"),
    ]:
        with pytest.raises(ConfigError, match=message):
            compare(*folders)
    assert main(["compare", str(bench), str(other)]) == 2
    assert capsys.readouterr().err.startswith("error: got ")
    with pytest.raises(SystemExit, match="2"):
        main(["compare", "only-one"])
    (bench / "one" / "seed0-measured" / "terminal" / "evaluation.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot read"):
        compare(bench / "one", other / "two")
