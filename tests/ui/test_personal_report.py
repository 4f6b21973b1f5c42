"""A report shows liked first replies beside right ones, and says first what they cost."""

import json
from pathlib import Path

import pytest

from clawrl_gym.comparison.teacher_probe import ProbeRow, write_probe
from clawrl_gym.ui.headline import headline
from clawrl_gym.ui.personal import first_replies, teacher_probe
from clawrl_gym.ui.report import write_report
from clawrl_gym.ui.run_data import RunData, read_run
from tests.support.fake_run import make_run


def measured(folder: Path, correct: float, where: str = "") -> RunData:
    """A finished run after which so many first answers are right; 80 % were before."""
    make_run(folder, steps=2, heldout=False, store=False)
    rows = [
        {
            "step": step,
            "heldout/success": 0.5,
            "heldout/n": 20,
            f"{where}heldout/success": 0.9,
            f"{where}heldout/liked": liked,
            f"{where}heldout/correct": right,
        }
        for step, liked, right in ((0, 0.1, 0.8), (2, 0.7, correct))
    ]
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return read_run(folder)


@pytest.mark.parametrize("where", ["", "env/talk/"])
def test_what_was_gained_stands_beside_what_it_cost(tmp_path: Path, where: str) -> None:
    before, after = first_replies(measured(tmp_path, 0.6, where))
    assert (before.when, before.liked, before.correct, before.satisfied) == (
        "before", "10 %", "80 %", "90 %",
    )  # fmt: skip
    assert (after.when, after.liked, after.correct) == ("after 2 updates", "70 %", "60 %")


@pytest.mark.parametrize(("correct", "is_warned"), [(0.74, True), (0.76, False), (0.9, False)])
def test_a_loss_of_right_answers_is_said_first(
    tmp_path: Path, correct: float, is_warned: bool
) -> None:
    warnings = headline(measured(tmp_path, correct)).warnings
    assert bool(warnings and warnings[0].startswith("Right first answers")) == is_warned


def test_a_run_without_wishes_has_no_such_row(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path, store=False))
    assert first_replies(run) == []
    assert "personal" not in write_report(run.folder).read_text()


def test_the_page_has_the_teacher_probe_or_says_how_to_get_it(tmp_path: Path) -> None:
    run = measured(tmp_path, 0.6)
    assert "clawrl_gym.teacher_probe" in write_report(run.folder).read_text()
    write_probe(run.folder, [ProbeRow("random words", 120, 0.25, 0.2, 0.3, 0.9)])
    page = write_report(run.folder).read_text()
    assert "random words" in page
    assert "0.25 (0.20 to 0.30)" in page
    assert "Right first answers on held-out tasks fell from 80 % to 60 %" in page


def test_a_probe_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    for text in ("{", "3", '[{"hint": "x"}]'):
        (tmp_path / "teacher_probe.json").write_text(text)
        assert teacher_probe(tmp_path) == []
