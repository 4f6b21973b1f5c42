"""What conversations come to is what it was when their outcomes were written down.

Sessions, next states, stored bytes, segments and prompts with a hint: a change of any of them is a
change for the databases that people have.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.project import dialogue_cases as cases

EXPECTED: dict[str, Any] = json.loads((cases.FOLDER / cases.OUTCOMES).read_text())
DATABASE = cases.FOLDER / cases.DATABASE


def as_json(outcome: object) -> object:
    return json.loads(json.dumps(outcome))


def names_with(prefix: str) -> list[str]:
    return [name.removeprefix(prefix) for name in EXPECTED if name.startswith(prefix)]


@pytest.mark.parametrize("folder", names_with("recorded "))
async def test_recorded_requests_come_to_what_they_did(folder: str) -> None:
    outcome = await cases.recorded_conversation(folder)
    assert as_json(outcome) == EXPECTED[f"recorded {folder}"]


@pytest.mark.parametrize("seed", names_with("random "))
async def test_random_conversations_come_to_what_they_did(seed: str) -> None:
    outcome = await cases.random_conversation(int(seed))
    assert as_json(outcome) == EXPECTED[f"random {seed}"]


def test_differences_and_the_index_are_what_they_were() -> None:
    assert as_json(cases.small_cases()) == EXPECTED["small"]


def test_a_database_of_before_reads_the_same() -> None:
    assert as_json(cases.read_database(DATABASE)) == EXPECTED["database read"]


async def test_conversations_of_a_database_of_before_go_on_as_they_did() -> None:
    outcome = await cases.continued_database(DATABASE)
    assert as_json(outcome) == EXPECTED["database continued"]
