"""The report says what each user brought, what the guards refused and what came back."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from clawrl_gym.core.metrics import REFUSED, RETURNED_TO
from clawrl_gym.core.types import Group, Sample, TaskRef, Turn, Verdict
from clawrl_gym.store import SessionRow, Store, UpdateRow
from clawrl_gym.store.allowance_file import Taken, write_taken
from clawrl_gym.ui.report import write_report
from tests.support.fake_serving import make_serving
from tests.ui.test_report import Page


class Writer:
    """Turns with feedback, and updates that learn of them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.number = 0

    async def praised(self, user: str, version: int = 0) -> Sample:
        self.number += 1
        name = f"praised-{self.number}"
        session, now_s = f"{user}/{name}" if user else name, time.time()
        await self.store.add_session(SessionRow(session, None, None, "train", "live", now_s))
        turn = Turn(
            session, 0, "main", [1, 2], [3, 4], [-0.5, -0.5], [version] * 2, "stop",
            [{"role": "user", "content": "Hello"}], {"role": "assistant", "content": "Hi"}, now_s,
        )  # fmt: skip
        turn_id = await self.store.add_turn(turn)
        await self.store.add_verdict(Verdict(turn_id, "feedback", 1, 1.0, {}, now_s))
        sample = Sample(
            session, self.number, [1, 2, 3, 4], [False, False, True, True], [0.0] * 4,
            [-1, -1, version, version], [0.0, 0.0, 1.0, 1.0], 1.0, turn_id=turn_id,
            signal="feedback",
        )  # fmt: skip
        group = Group(self.number, TaskRef(None, 0, "train"), [], version)
        (stored,) = await self.store.add_group(group, [sample])
        return stored

    async def update(self, version: int, samples: list[Sample], **metrics: float) -> None:
        ids = tuple(sample.group_id for sample in samples)
        named = {name.replace("__", "/"): value for name, value in metrics.items()}
        row = UpdateRow(
            version, tokens=1, duration_s=0.1, groups=len(ids), metrics=named, group_ids=ids
        )
        await self.store.add_update(row, [sample.id or 0 for sample in samples], f"c/{version}")


async def filled(folder: Path) -> None:
    store = await asyncio.to_thread(Store.open, folder)
    writer = Writer(store)
    try:
        own = [await writer.praised("") for _ in range(3)]
        first, bad = await writer.praised("anna"), await writer.praised("anna")
        await writer.praised("anna")
        await writer.update(1, [*own, first])
        await writer.update(
            2, [bad], **{REFUSED: 1.0, f"{REFUSED}/canary": 1.0, "guard/canary": 0.3125}
        )
        await writer.update(3, [], **{RETURNED_TO: 0.0})
    finally:
        await store.close()


def test_users_refused_versions_and_ways_back_are_told(tmp_path: Path) -> None:
    folder = make_serving(tmp_path / "serve", "++-?")
    asyncio.run(filled(folder))
    taken = Taken()
    taken.refused["feedback_per_day", "anna"] = 4
    taken.refused["feedback_per_minute", "anna"] = 2
    taken.refused["new_sessions_per_day", "anna"] = 50
    taken.refused["feedback_per_day", "eve"] = 9
    write_taken(folder, taken)
    words = Page(write_report(folder).read_text()).words
    assert "the owner 7 3 0 3 75 % 0 0" in words
    assert "anna 3 3 6 1 25 % 1 1" in words
    assert "eve 0 0 9 0 0 % 0 0" in words
    assert "canary 0.312" in words
    assert "Versions that a guard refused" in words
    assert "Versions that came back" in words


def test_a_service_of_one_person_where_nothing_was_refused_has_no_such_section(
    tmp_path: Path,
) -> None:
    html = write_report(make_serving(tmp_path / "serve", "++-?")).read_text()
    assert 'id="trust"' not in html


async def test_samples_of_a_refused_update_are_not_praised_ones(tmp_path: Path) -> None:
    await filled(tmp_path)
    store = await asyncio.to_thread(Store.open, tmp_path)
    try:
        users = [sample.session_id.partition("/")[0] for sample in await store.praised_samples(99)]
        assert sorted(users)[0] == "anna"
        assert users.count("anna") == 1
        assert len(users) == 4
        assert len(await store.praised_samples(1)) == 0, "the newest praise waits"
        judged = await store.judged_turns(2)
        assert [turn.session_id.partition("/")[0] for turn in judged] == ["anna", "anna"]
        assert [turn.verdict.id for turn in judged] == [5, 6]
    finally:
        await store.close()
