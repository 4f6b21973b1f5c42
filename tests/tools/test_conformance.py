"""The exchange files: right by finite differences, passed by our trainer, and able to fail."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tools.conformance import make, ours, with_trl
from tools.conformance.exchange import CASES, Case, Result, compare, load_case, load_cases
from tools.conformance.reference import expected_of

ALL = load_cases()
EXPRESSED = [case for case in ALL if case.name not in ours.CANNOT]


def named(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", EXPRESSED, ids=named)
def test_our_trainer_computes_what_the_file_expects(case: Case) -> None:
    result = ours.run(case)
    assert compare(case, result) == []
    assert result.loss is not None
    assert result.gradient_norm is not None


def test_cases_that_our_trainer_cannot_express_really_differ() -> None:
    """Else the list of exceptions would hide a case that passes."""
    for name in ours.CANNOT:
        assert compare(load_case(name), ours.run(load_case(name))), name


def test_the_files_are_what_the_reference_makes() -> None:
    made = {case.name: make.as_json(case) for case in make.cases()}
    stored = {path.stem: path.read_text(encoding="utf-8") for path in CASES.glob("*.json")}
    assert made.keys() == stored.keys()
    for name, text in made.items():
        fresh, kept = (json.loads(each) for each in (text, stored[name]))
        assert fresh.pop("expected").keys() == kept["expected"].keys()
        expected = expected_of(load_case(name))
        assert compare(load_case(name), Result(**expected), rtol=1e-9) == []
        kept.pop("expected")
        assert fresh == kept


@pytest.mark.parametrize(
    "case", [case for case in ALL if case.settings["surrogate"] != "cispo"], ids=named
)
def test_the_gradient_is_the_slope_of_the_loss(case: Case) -> None:
    """Central differences; where the proximal policy is the current one it stays where it is.

    The loss of cispo moves with a ratio that gives no gradient: automatic differentiation of our
    own trainer is what its file is compared with.
    """
    table = case.weights["current"]
    fixed = {"proximal": table, "reference": table, **case.weights}
    step = 1e-6
    slopes = np.zeros_like(table)
    for place in np.ndindex(*table.shape):
        losses = []
        for sign in (1, -1):
            moved = table.copy()
            moved[place] += sign * step
            losses.append(expected_of(replace(case, weights={**fixed, "current": moved}))["loss"])
        slopes[place] = (losses[0] - losses[1]) / (2 * step)
    assert np.linalg.norm(slopes) == pytest.approx(case.expected["gradient_norm"], rel=1e-4)


def test_a_wrong_result_is_named_by_its_field_and_place() -> None:
    case = load_case("four_versions")
    right = ours.run(case)
    assert right.importance is not None
    ones = [[None if one is None else 1.0 for one in row] for row in right.importance]
    (line,) = compare(case, replace(right, importance=ones))
    assert line.startswith("importance: [0] [2] got 1, expected ")
    assert compare(case, replace(right, loss=0.0))[0].startswith("loss: got 0, expected ")
    assert compare(case, replace(right, trained=[[True]]))[0].startswith("trained: got 1 entries")


def test_a_trainer_that_ignores_versions_or_failures_fails() -> None:
    versions = load_case("four_versions")
    blind = replace(versions, settings={**versions.settings, "importance_cap": None})
    assert compare(versions, ours.run(blind))
    failed = load_case("environment_failure")
    as_zero = [replace(one, reward=one.reward or 0.0) for one in failed.episodes]
    assert compare(failed, ours.run(replace(failed, episodes=as_zero)))


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text('{"format": "rl-exchange/0"}')
    with pytest.raises(ValueError, match="expected 'rl-exchange/1'"):
        load_case(path)


def test_the_reader_needs_numpy_alone(tmp_path: Path) -> None:
    """A copy of the folder, without this project."""
    shutil.copytree(CASES, tmp_path / "kit" / "cases")
    shutil.copy(CASES.parent / "exchange.py", tmp_path / "kit")
    program = (
        "import sys; from kit.exchange import load_cases; print(len(load_cases())); "
        "print({name.partition('.')[0] for name in sys.modules} & {'torch', 'clawrl_gym'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True,
        timeout=60, env={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.split("\n")[:2] == [str(len(ALL)), "set()"]


@pytest.mark.filterwarnings("ignore")  # of trl and of what it imports
def test_trl_passes_the_cases_that_the_page_says_it_passes(tmp_path: Path) -> None:
    trainer = with_trl.make_trainer(str(tmp_path), 4)
    found = {
        case.name: with_trl.differences(case, trainer)
        for case in ALL
        if case.name not in with_trl.CANNOT
    }
    assert {name for name, lines in found.items() if lines} == set(with_trl.DIFFERS)
