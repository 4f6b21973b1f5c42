"""Generated page tasks and their pages are what they were: weights were trained on them."""

from __future__ import annotations

import json

import pytest

from clawrl_gym.envs.showcase.gui.families import FAMILIES
from tests.gui.gui_golden import FILE, hash_of, pages_of_family, task_contents

GOLDEN = json.loads(FILE.read_text())


def test_every_family_is_in_the_file() -> None:
    assert set(GOLDEN["tasks"]) == set(GOLDEN["pages"]) == set(FAMILIES)


def test_easy_families_are_those_that_they_were() -> None:
    assert {family for family, kind in FAMILIES.items() if kind.easy} == set(GOLDEN["easy"])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tasks_of_a_family_are_what_they_were(family: str) -> None:
    assert hash_of(task_contents(family)) == GOLDEN["tasks"][family]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_pages_of_a_family_are_what_they_were(family: str) -> None:
    assert hash_of(pages_of_family(family)) == GOLDEN["pages"][family]
