"""What a teacher thought of turns is in the log of evaluations, and goes with their session."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.types import DistilledTurn
from clawrl_gym.store import Store
from clawrl_gym.store.deletion import Deletion, digest_of, line_filter
from tests.store.test_store import make_group, make_sample
from tests.store.test_store_delete import files_with, fill, session

LOG = "evaluations.jsonl"


def distilled_turn(sample_id: int, turn_id: int | None = None, *gaps: float) -> DistilledTurn:
    return DistilledTurn(sample_id, turn_id, 1, [5, 6, 7], list(gaps or (0.25, -1.0, 0.0)))


async def waiting_ids(store: Store) -> list[int]:
    return [sample.id or 0 for sample in await store.untrained_samples()]


async def test_the_log_tells_what_the_teacher_thought(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    (turn_id,) = await fill(store, "alice", 1)
    await store.add_group(make_group(90), [replace(make_sample(90), session_id="rollout")])
    first, second = await waiting_ids(store)
    before = len(read_json_lines(tmp_path / LOG))
    strange = distilled_turn(second, None, math.nan, -math.inf, 1 / 3)
    await store.add_distilled_turns(
        3, [distilled_turn(first, turn_id), strange, distilled_turn(99)]
    )
    await store.add_distilled_turns(4, [])
    await store.close()
    lines: list[dict[str, Any]] = read_json_lines(tmp_path / LOG)
    one, two = lines[before:]
    assert one.pop("time_s") > 1e9
    assert one == {
        "schema": 2, "type": "taught", "id": first, "session_id": "alice", "turn_id": turn_id,
        "version": 3, "prompt": 1, "ids": [5, 6, 7], "gaps": [0.25, -1.0, 0.0],
    }  # fmt: skip
    assert (two["session_id"], two["turn_id"]) == ("rollout", None)
    assert two["gaps"] == [None, None, 0.3333]
    await Store.open(tmp_path).close()
    assert len(read_json_lines(tmp_path / LOG)) == before + 2


async def test_it_goes_with_its_session(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    alice = await fill(store, "alice", 2)
    bob = await fill(store, "bob", 1)
    ids = await waiting_ids(store)
    lines = [distilled_turn(i, turn_id) for i, turn_id in zip(ids, [*alice, *bob], strict=True)]
    await store.add_distilled_turns(1, [*lines, distilled_turn(ids[0])])
    assert await store.delete_session("alice")
    assert files_with(tmp_path, "alice") == []
    left = [line for line in read_json_lines(tmp_path / LOG) if line["type"] == "taught"]
    assert [(line["id"], line["session_id"]) for line in left] == [(ids[2], "bob")]
    await store.add_distilled_turns(2, lines)  # the learner knows nothing of the deletion
    assert files_with(tmp_path, "alice") == []
    assert await store.add_session(session("alice"))
    await store.add_samples([replace(make_sample(91), session_id="alice")])
    new = (await store.samples_of_session("alice"))[0].id or 0
    await store.add_distilled_turns(3, [distilled_turn(new)])
    assert [line["id"] for line in read_json_lines(tmp_path / LOG)][-1] == new
    await store.close()


async def test_a_run_that_is_not_recorded_logs_none(tmp_path: Path) -> None:
    store = Store.open(tmp_path, record=False)
    await fill(store, "alice", 1)
    await store.add_distilled_turns(1, [distilled_turn((await waiting_ids(store))[0])])
    await store.close()
    assert files_with(tmp_path, "taught") == []


@pytest.mark.parametrize(
    ("line", "stays"),
    [
        ('{"schema": 2, "type": "taught", "id": 3, "session_id": "a", "turn_id": null, '
         '"time_s": 7.0}', False),
        ('{"schema": 2, "type": "taught", "id": 9, "session_id": "a", "turn_id": 2, '
         '"time_s": 7.0}', False),
        ('{"schema": 2, "type": "taught", "id": 3, "session_id": "a", "turn_id": null, '
         '"time_s": 7.5}', True),
        ('{"schema": 2, "type": "taught", "id": 3, "session_id": "b", "turn_id": null, '
         '"time_s": 7.0}', True),
        ('{"schema": 2, "type": "taught", "id": 3, "session_id": "a", "turn_', False),
    ],
)  # fmt: skip
def test_lines_of_deleted_sessions_are_told_apart(line: str, stays: bool) -> None:
    keep = line_filter([Deletion(digest_of("a"), last_turn_id=5, asked_s=7.0)])
    assert keep(line.encode()) is stays
