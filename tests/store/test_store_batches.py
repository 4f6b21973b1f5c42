"""No sample is lost between its acceptance and its batch, and every past batch can be rebuilt."""

from __future__ import annotations

from pathlib import Path

from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.types import Sample
from clawrl_gym.store import Store
from tests.store.test_store import make_group, make_sample, make_turn, make_verdict, update, user
from tests.store.test_store_delete import fill, session

BATCH = 16


async def test_defect_s7_samples_that_no_batch_took_wait_for_the_next(tmp_path: Path) -> None:
    """S7: the reference keeps the first 16 of what it drained and drops the rest.

    Here 40 make 16, 16, 8, also when the process ends after each batch.
    """
    store = Store.open(tmp_path)
    for number in range(40):
        await store.add_group(make_group(number), [make_sample(number)])
    await store.close()
    sizes, trained = [], []
    for version in range(1, 5):
        store = Store.open(tmp_path)
        groups = (await store.untrained_groups())[:BATCH]
        batch = [sample.id or 0 for group in groups for sample in group.samples]
        if batch:
            await store.add_update(update(version, len(groups)), batch, f"checkpoints/{version}")
            sizes.append(len(batch))
        trained += batch
        await store.close()
    assert sizes == [16, 16, 8]
    assert trained == sorted(set(trained))
    assert len(trained) == 40


async def test_defect_s8_training_and_restarts_truncate_nothing(tmp_path: Path) -> None:
    """S8: the reference empties its logs at each training step and at each start."""
    logs = [tmp_path / "conversations.jsonl", tmp_path / "evaluations.jsonl"]
    batches: list[list[Sample]] = []
    lines = [0, 0]
    for version in range(1, 4):
        store = Store.open(tmp_path)
        await store.rollback_to_checkpoint()
        assert [len(read_json_lines(path)) for path in logs] == lines
        await fill(store, f"talk-{version}", 2)
        groups = await store.untrained_groups()
        batch = [sample for group in groups for sample in group.samples]
        ids = [sample.id or 0 for sample in batch]
        await store.add_update(update(version, len(groups)), ids, f"checkpoints/{version}")
        batches.append(batch)
        await store.close()
        now = [len(read_json_lines(path)) for path in logs]
        assert now == [lines[0] + 4, lines[1] + 3]
        lines = now
    store = Store.open(tmp_path)
    rebuilt = [await store.samples_of_update(version) for version in range(1, 4)]
    assert rebuilt == batches
    for batch in rebuilt:
        for sample in batch:
            turn = await store.turn(sample.turn_id or 0)
            assert turn is not None
            assert turn.session_id == sample.session_id
    await store.close()


async def test_what_people_said_of_turns_is_in_the_log_for_good(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(session("alice"))
    turn_id = await store.add_turn(make_turn(session_id="alice"))
    correction = {"text": "Please say it shorter."}
    await store.add_verdict(make_verdict(turn_id, -1, "feedback", detail=correction))
    await store.add_next_state(turn_id, [user("ok")])
    await store.close()
    await Store.open(tmp_path).close()
    (line,) = read_json_lines(tmp_path / "evaluations.jsonl")
    assert (line["turn_id"], line["kind"], line["detail"]) == (turn_id, "feedback", correction)
