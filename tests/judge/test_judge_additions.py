"""More work is no complaint, nor is a praise of what is not there; what was left out is one."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from clawrl_gym.judge.signals.speech import Speech
from tests.support.answers import LANGUAGES
from tests.support.fakes_judge import RulesAlone, shipped_rules

LISTS = yaml.safe_load(
    (Path(__file__).parents[1] / "fixtures" / "additions.yaml").read_text("utf-8")
)


@pytest.fixture(scope="module")
def rules_alone() -> Speech:
    return Speech(shipped_rules(), likeness=RulesAlone)


@pytest.fixture(scope="module")
def both() -> Speech:
    return Speech(shipped_rules())


def blamed(reader: Speech, code: str, kind: str) -> tuple[list[str], list[str]]:
    """Lines that are -1, and the others."""
    lines = LISTS[code][kind].splitlines()
    values = {line: reader.find(line, "12345", "Here you are.").value for line in lines}
    return (
        [line for line, value in values.items() if value == -1],
        [line for line, value in values.items() if value != -1],
    )


@pytest.mark.parametrize("code", LANGUAGES)
def test_no_rule_takes_more_work_for_a_complaint(rules_alone: Speech, code: str) -> None:
    assert blamed(rules_alone, code, "extends")[0] == []


@pytest.mark.parametrize("code", LANGUAGES)
def test_no_rule_takes_praise_of_what_is_not_there_for_a_complaint(
    rules_alone: Speech, code: str
) -> None:
    assert blamed(rules_alone, code, "faultless")[0] == []


@pytest.mark.parametrize("code", LANGUAGES)
def test_what_was_left_out_is_a_complaint(both: Speech, code: str) -> None:
    seen, missed = blamed(both, code, "left_out")
    assert len(missed) <= 2, missed
    assert len(seen) >= 4
