"""A worker that was given up and is not dead: nothing of what it still does counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from clawrl_gym.core.errors import PolicyError
from clawrl_gym.core.types import Episode, StopReason, TaskRef
from clawrl_gym.rollout.episodes.chat import GatewayChat, PolicyAddress
from clawrl_gym.rollout.episodes.episode import EpisodeSpec
from tests.support.gateway_rig import HELLO, Bench

SPEC = EpisodeSpec("g000003-1-0-abc", 3, TaskRef("t", 0, "train"), max_turns=3, timeout_s=5.0)
LOST = Episode(SPEC.session_id, 3, SPEC.task, StopReason.ENV_ERROR, None, 0, error="it is silent")
ENDED = Episode(SPEC.session_id, 3, SPEC.task, StopReason.TERMINATED, 1.0, 1)


@asynccontextmanager
async def worker_and_driver(
    tmp_path: Path,
) -> AsyncIterator[tuple[Bench, GatewayChat, GatewayChat]]:
    """A gateway, and what both say to it."""
    bench = Bench(tmp_path)
    await bench.start()
    address = PolicyAddress(bench.url, bench.gateway.key, "tiny")
    worker, driver = (GatewayChat(address, 5.0, limit=4) for _ in range(2))
    yield bench, worker, driver
    await worker.close()
    await driver.close()
    await bench.stop()


@pytest.mark.parametrize("begun", [True, False], ids=["after a turn", "before its first turn"])
async def test_its_turns_are_refused_and_its_end_comes_too_late(
    tmp_path: Path, begun: bool
) -> None:
    async with worker_and_driver(tmp_path) as (bench, worker, driver):
        if begun:
            await worker.reply(SPEC, HELLO, [])
        await driver.end(SPEC, LOST, None)
        with pytest.raises(PolicyError, match="409"):
            await worker.reply(SPEC, HELLO, [])
        await worker.end(SPEC, ENDED, None)
        row = await bench.store.session(SPEC.session_id)
        assert row is not None
        assert (row.source, row.group_id, row.task_id) == ("rollout", 3, "t")
        assert (row.reward, row.stop_reason, row.error) == (None, "env_error", "it is silent")
        assert len(await bench.store.turns_of(SPEC.session_id)) == int(begun)


async def test_a_turn_that_is_under_way_when_it_is_given_up_is_not_recorded(tmp_path: Path) -> None:
    async with worker_and_driver(tmp_path) as (bench, worker, driver):
        with bench.gateway.hold_requests():
            late = asyncio.create_task(worker.reply(SPEC, HELLO, []))
            while not bench.gateway.stats.inside:  # noqa: ASYNC110 (nothing else says so)
                await asyncio.sleep(0)
            await driver.end(SPEC, LOST, None)
        with pytest.raises(PolicyError, match="409"):
            await late
        assert await bench.store.turns_of(SPEC.session_id) == []
