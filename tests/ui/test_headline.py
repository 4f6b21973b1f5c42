"""What the first lines of a report claim, and what they warn of."""

import json
from pathlib import Path

import pytest

from clawrl_gym.core.metrics import HELDOUT_FILE, heldout_values
from clawrl_gym.trainers.no_gradient import CAUSES, REMEDIES
from clawrl_gym.ui.headline import headline
from clawrl_gym.ui.run_data import RunData, read_run
from tests.support.fake_run import make_run


def measured(folder: Path, *evaluations: tuple[int, dict[str, bool]]) -> RunData:
    """A finished run whose held-out evaluations solved these tasks."""
    make_run(folder, steps=2, heldout=False, store=False)
    rows = [
        {"step": step, "time_s": 1.0 + step} | heldout_values(sum(solved.values()), len(solved))
        for step, solved in evaluations
    ]
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    lines = [json.dumps({"step": step, "solved": solved}) + "\n" for step, solved in evaluations]
    (folder / HELDOUT_FILE).write_text("".join(lines))
    return read_run(folder)


def tasks(count: int, solved: int, first: int = 0) -> dict[str, bool]:
    return {f"t{at}": at - first < solved for at in range(first, first + count)}


def test_a_difference_is_claimed_where_the_paired_interval_leaves_out_zero(tmp_path: Path) -> None:
    line = headline(measured(tmp_path, (0, tasks(100, 20)), (2, tasks(100, 60))))
    assert line.change.startswith("+40 points (+")
    assert not line.may_be_chance
    assert "distinguishable" not in line.verdict


@pytest.mark.parametrize(
    ("n", "before", "after"), [(5, 3, 2), (5, 5, 4), (20, 10, 11), (60, 21, 22), (1, 0, 1)]
)
def test_no_difference_is_claimed_within_the_interval(
    tmp_path: Path, n: int, before: int, after: int
) -> None:
    line = headline(measured(tmp_path, (0, tasks(n, before)), (2, tasks(n, after))))
    assert line.may_be_chance
    assert "not distinguishable" in line.verdict


def test_evaluations_of_other_tasks_are_not_compared(tmp_path: Path) -> None:
    line = headline(measured(tmp_path, (0, tasks(180, 61)), (2, tasks(60, 26, first=200))))
    assert line.change == ""
    assert "no task in common" in line.verdict


def test_a_smaller_evaluation_is_compared_on_its_own_tasks(tmp_path: Path) -> None:
    line = headline(measured(tmp_path, (0, tasks(180, 61)), (2, tasks(60, 60))))
    assert line.may_be_chance
    assert "the 60 tasks that both evaluations measured" in line.verdict


def test_a_run_of_an_earlier_version_is_not_compared(tmp_path: Path) -> None:
    run = measured(tmp_path, (0, tasks(100, 20)), (2, tasks(100, 60)))
    (run.folder / HELDOUT_FILE).unlink()
    line = headline(read_run(run.folder))
    assert line.change == ""
    assert "their tasks were not recorded" in line.verdict


@pytest.mark.parametrize("cause", CAUSES)
def test_updates_without_a_gradient_are_the_first_thing_a_report_says(
    tmp_path: Path, cause: str
) -> None:
    make_run(tmp_path, steps=2, heldout=False, store=False)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        row = {"step": 2, "learner/no_gradient": 1.0, f"no_gradient/{cause}": 1.0}
        file.write(json.dumps(row) + "\n")
    first, remedy = headline(read_run(tmp_path)).warnings
    assert first == f"1 of 2 updates had no gradient: {CAUSES[cause]} (1)."  # type: ignore[index]
    assert remedy.lower().startswith(REMEDIES[cause][:20].lower())  # type: ignore[index]


def test_a_run_with_gradients_has_no_warning(tmp_path: Path) -> None:
    assert headline(read_run(make_run(tmp_path, store=False))).warnings == ()
