"""The collector judges a whole group's turns at once, and stamps outcomes and verdicts together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.config import JudgeConfig, RolloutConfig
from clawrl_gym.judge.rules import RuleJudge
from clawrl_gym.rollout.collector import Collector
from clawrl_gym.store import Store
from clawrl_gym.trainers.grpo import Grpo
from clawrl_gym.types import INTERRUPTED, Episode, Group, StopReason, TaskRef
from tests.fakes_judge import (
    ScriptedJudge,
    a_turn,
    live_session,
    reply,
    shipped_rules,
    stored,
    user,
)

TASK = TaskRef("t", 0, "train")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store.open(tmp_path)
    yield store
    await store.close()


async def played(
    store: Store, name: str, reward: float | None, *shown: str, **changes: Any
) -> Episode:
    """An episode whose turns came back with these texts."""
    await live_session(store, name, source="rollout")
    ids = [1]
    for index, text in enumerate(shown):
        turn = a_turn(name, index, prompt_ids_T=list(ids), **changes)
        await stored(store, turn, user(text))
        ids += [4, 5, 9]
    reason = StopReason.TERMINATED if reward is not None else StopReason.ENV_ERROR
    return Episode(name, 0, TASK, reason, reward, len(shown))


def collector(store: Store, judge: Any = None, people: bool = False, **config: Any) -> Collector:
    return Collector(
        RolloutConfig(groups=1, **config), store, Grpo(normalize_std=False), lambda groups: None,
        judge, JudgeConfig(concurrency=3), people,
    )  # fmt: skip


async def collected(collector: Collector, *episodes: Episode, number: int = 0) -> list[list[float]]:
    """Advantages of the group's samples."""
    await collector.add(Group(number, TASK, list(episodes), version=0))
    async with asyncio.timeout(5):
        batch = await collector.batch(number, 0)
    return [sample.advantages_T for sample in batch.samples]


async def test_verdicts_are_stored_and_added_to_their_turns(store: Store) -> None:
    good = await played(store, "a", 1.0, "fine", "fine")
    bad = await played(store, "b", 0.0, "failed", "fine")
    judge = ScriptedJudge(lambda text: -1 if text == "failed" else 1)
    whole = collector(store, judge)
    assert await collected(whole, good, bad) == [
        [0.0, 1.5, 1.5, 0.0, 0.5, 0.5],
        [0.0, -1.5, -1.5, 0.0, -0.5, -0.5],
    ]
    values = [v.value for n in "ab" for said in (await store.verdicts_of(n)).values() for v in said]
    assert values == [1, 1, -1, 1]
    assert whole.counters["verdicts/positive"] == 3
    assert whole.counters["verdicts/negative"] == 1


async def test_a_group_is_judged_concurrently_within_the_bound(store: Store) -> None:
    judge = ScriptedJudge()
    judge.go.clear()
    episodes = [await played(store, name, float(name == "a"), "x", "y", "z") for name in "abc"]
    adding = asyncio.create_task(collector(store, judge).add(Group(0, TASK, episodes, 0)))
    await judge.asked(3)
    judge.go.set()
    await adding
    assert (judge.most_asking, len(judge.cases)) == (3, 9)


async def test_without_a_judge_nothing_is_judged(store: Store) -> None:
    episodes = [await played(store, name, float(name == "a"), "x") for name in "ab"]
    assert await collected(collector(store), *episodes) == [[0.0, 0.5, 0.5], [0.0, -0.5, -0.5]]
    assert await store.verdicts_of("a") == {}


async def test_a_failing_judge_leaves_the_outcome_alone(store: Store) -> None:
    episodes = [await played(store, name, float(name == "a"), "x") for name in "ab"]
    judge = ScriptedJudge(lambda text: RuntimeError("down"))
    assert await collected(collector(store, judge), *episodes) == [
        [0.0, 0.5, 0.5], [0.0, -0.5, -0.5],
    ]  # fmt: skip
    (said,) = (await store.verdicts_of("a")).values()
    assert said[0].value is None


async def test_infrastructure_failures_and_interrupted_turns_are_not_judged(store: Store) -> None:
    judge = ScriptedJudge()
    good, bad = [await played(store, name, float(name == "a"), "x") for name in "ab"]
    failed = await played(store, "c", None, "x")
    broken = await played(store, "d", 0.5, "x", finish_reason=INTERRUPTED)
    samples = await collected(collector(store, judge), good, bad, failed, broken)
    assert len(samples) == 2
    assert len(judge.cases) == 2
    assert await store.verdicts_of("c") == await store.verdicts_of("d") == {}


async def test_what_a_terminal_shows_is_no_persons_word_and_a_persons_word_is_no_result(
    store: Store,
) -> None:
    rules = RuleJudge(shipped_rules())
    command = reply("```bash\nmake\n```")
    texts = {"a": "thanks\n(exit code 2)", "b": "that's wrong"}
    for number, (people, expected) in enumerate(((False, [-1, 1]), (True, [1, -1]))):
        episodes = [
            await played(store, f"{name}{number}", float(name == "a"), text, reply=command)
            for name, text in texts.items()
        ]
        await collected(collector(store, rules, people), *episodes, number=number)
        said = [await store.verdicts_of(episode.session_id) for episode in episodes]
        assert [v.value for of in said for (v,) in of.values()] == expected


async def test_a_group_of_failures_is_dropped_and_its_place_given_back(store: Store) -> None:
    dropped: list[int] = []
    whole = Collector(RolloutConfig(groups=1), store, Grpo(), dropped.append)
    episodes = [await played(store, "a", 1.0, "x"), await played(store, "b", None, "x")]
    await whole.add(Group(0, TASK, episodes, 0))
    assert dropped == [1]
    assert whole.counters == {"groups/dropped_failed": 1}
    assert whole.ready_groups == 0


async def test_a_restored_group_comes_first(store: Store) -> None:
    episodes = [await played(store, name, float(name == "a"), "x") for name in "ab"]
    await collected(collector(store), *episodes, number=5)
    resumed = collector(store)
    resumed.restore([group.samples for group in await store.untrained_groups()])
    assert resumed.ready_groups == 1
    batch = await resumed.batch(0, 0)
    assert [(s.session_id, s.group_id) for s in batch.samples] == [("a", 5), ("b", 5)]
