"""The collector judges a whole group's turns at once, and stamps outcomes and verdicts together."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.config import HintConfig, JudgeConfig, RolloutConfig
from clawrl_gym.core.errors import PolicyError
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import (
    INTERRUPTED,
    Comparison,
    Episode,
    Group,
    Message,
    Sample,
    StopReason,
    TaskRef,
    Verdict,
    VerdictKind,
)
from clawrl_gym.judge.comparison import GroupJudge
from clawrl_gym.judge.enhance import Enhancer
from clawrl_gym.judge.interface import Case
from clawrl_gym.judge.models.chat_models import Completion
from clawrl_gym.judge.rules import RuleJudge
from clawrl_gym.judge.verdicts import VerdictMaker
from clawrl_gym.rollout.collection.collector import UNTRAINABLE, Collector, Judging
from clawrl_gym.rollout.collection.control import Substitution
from clawrl_gym.rollout.collection.dispatcher import Dispatcher
from clawrl_gym.rollout.collection.mixture import Mixture
from clawrl_gym.rollout.collection.pool import EpisodeRunner, WorkerPool
from clawrl_gym.rollout.collection.task_sampler import TaskSampler
from clawrl_gym.rollout.episodes.episode import EpisodeLimits, EpisodeSpec
from clawrl_gym.store import Store
from clawrl_gym.trainers.algorithms.algorithm import Algorithm
from clawrl_gym.trainers.algorithms.binary import Binary
from clawrl_gym.trainers.algorithms.grpo import Grpo
from clawrl_gym.trainers.algorithms.hybrid import Hybrid
from clawrl_gym.trainers.algorithms.opd import Opd
from tests.support.fakes import FakePolicy, decode
from tests.support.fakes_judge import (
    ScriptedJudge,
    a_turn,
    live_session,
    reply,
    shipped_rules,
    stored,
    user,
    whole,
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


def judging(
    judge: Any, config: JudgeConfig, people: bool = False, enhancer: Enhancer | None = None
) -> dict[str, Judging]:
    if judge is None:
        return {}
    return {"": Judging(VerdictMaker(judge, config, not people, not people), enhancer)}


def collector(store: Store, judge: Any = None, people: bool = False, **config: Any) -> Collector:
    return Collector(
        RolloutConfig(groups=1, **config), store, Grpo(normalize_std=False), lambda groups: None,
        judging(judge, JudgeConfig(concurrency=3), people),
    )  # fmt: skip


async def collected(collector: Collector, *episodes: Episode, number: int = 0) -> list[list[float]]:
    """Advantages of the group's samples."""
    await collector.add(Group(number, TASK, list(episodes), version=0))
    async with asyncio.timeout(60):
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


async def test_an_episodes_untrainable_turns_make_no_sample_and_are_counted(store: Store) -> None:
    judge = ScriptedJudge()
    good, bad = [await played(store, name, float(name == "a"), "x") for name in "ab"]
    cold = await played(store, "c", 1.0, "x", "x", untrainable="temperature", temperature=0.0)
    whole = collector(store, judge)
    await whole.add(Group(0, TASK, [good, bad, cold], version=0))
    batch = await whole.batch(0, 0)
    assert {sample.session_id for sample in batch.samples} == {"a", "b"}
    assert len(judge.cases) == 2
    assert whole.counters[UNTRAINABLE] == 2


async def test_what_a_terminal_shows_is_no_persons_word_and_a_persons_word_is_no_result(
    store: Store,
) -> None:
    rules = RuleJudge(shipped_rules())
    command = reply("```bash\nmake\n```")
    texts = {"a": "thanks\n(exit code 2)", "b": "that's wrong"}
    for number, (people, expected) in enumerate(((False, [-1, 1]), (True, [None, -1]))):
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


async def test_a_resumed_run_stamps_what_would_have_come(store: Store) -> None:
    """The running mean of verdicts without fellows goes on where it stopped."""

    async def group_of(name: str) -> list[Episode]:
        return [await played(store, f"{name}0", 1.0, "fine", "fine"),
                await played(store, f"{name}1", 0.0, "fine")]  # fmt: skip

    lived = collector(store, ScriptedJudge(lambda text: 1))
    for number in range(3):
        await collected(lived, *(await group_of(f"first{number}")), number=number)
    resumed = collector(store, ScriptedJudge(lambda text: 1))
    resumed.restore([], await store.compared())
    later = [await collected(whole, *(await group_of(name)), number=number)
             for whole, name, number in ((lived, "a", 3), (resumed, "b", 4))]  # fmt: skip
    assert later[0] == later[1]
    fresh = collector(store, ScriptedJudge(lambda text: 1))
    assert await collected(fresh, *(await group_of("c")), number=5) != later[0]


async def test_a_restored_group_comes_first(store: Store) -> None:
    episodes = [await played(store, name, float(name == "a"), "x") for name in "ab"]
    await collected(collector(store), *episodes, number=5)
    resumed = collector(store)
    resumed.restore([group.samples for group in await store.untrained_groups()])
    assert resumed.ready_groups == 1
    batch = await resumed.batch(0, 0)
    assert [(s.session_id, s.group_id) for s in batch.samples] == [("a", 5), ("b", 5)]


# Hints.


class HintingJudge:
    """Abstains or not, with a hint for each turn that came back with `hint: WORDS`."""

    kind: VerdictKind = "model"

    async def judge(self, case: Case) -> Verdict:
        text = text_of(case.next_state[-1])
        hints = [text.removeprefix("hint: ")] if text.startswith("hint: ") else []
        value: Any = None if hints else -1
        return Verdict(case.turn_id, "model", value, value, {"hints": hints}, 0.0)


def hinted(store: Store, policy: FakePolicy, algorithm: Algorithm, **config: Any) -> Collector:
    enhancer = Enhancer(policy.render, HintConfig(form="!{hint}"), 10_000)
    return Collector(
        RolloutConfig(groups=1, **config), store, algorithm, lambda groups: None,
        judging(HintingJudge(), JudgeConfig(), enhancer=enhancer),
    )  # fmt: skip


async def taught(collector: Collector, *episodes: Episode) -> list[Sample]:
    await collector.add(Group(0, TASK, list(episodes), version=0))
    async with asyncio.timeout(60):
        return (await collector.batch(0, 0)).samples


async def test_turns_with_hints_become_lessons(store: Store) -> None:
    episodes = [
        await played(store, name, 0.0, text) for name, text in (("a", "hint: h"), ("b", "x"))
    ]
    whole = hinted(store, FakePolicy(), Hybrid(Binary(), Opd()))
    with_hint, without = await taught(whole, *episodes)
    assert (with_hint.session_id, with_hint.distill_T) == ("a", [0.0, 1.0, 1.0])
    (target,) = with_hint.distill_targets
    assert "plan my day!h" in decode(target.prompts[0])
    assert (without.session_id, without.distill_targets) == ("b", ())
    assert without.advantages_T == [0.0, -1.0, -1.0]
    assert whole.counters["hints/prompts"] == 1


async def test_an_algorithm_of_rewards_renders_nothing(store: Store) -> None:
    episodes = [await played(store, name, float(name == "a"), "hint: h") for name in "ab"]
    policy = FakePolicy()
    samples = await taught(hinted(store, policy, Grpo()), *episodes)
    assert (len(samples), policy.bodies) == (2, [])


async def test_a_policy_that_cannot_be_reached_costs_the_hints_and_nothing_else(
    store: Store,
) -> None:
    episodes = [await played(store, name, float(name == "a"), "hint: h") for name in "ab"]
    policy = FakePolicy()
    policy.refusal = PolicyError("down")
    whole = hinted(store, policy, Hybrid(Grpo(normalize_std=False), Opd()))
    samples = await taught(whole, *episodes)
    assert [s.advantages_T for s in samples] == [[0.0, 0.5, 0.5], [0.0, -0.5, -0.5]]
    assert [s.distill_targets for s in samples] == [(), ()]
    assert whole.counters["hints/failed"] == 2


# Groups of one, and groups that teach nothing.


async def test_a_group_of_one_is_whole(store: Store) -> None:
    """With min_group=2 it would always be dropped."""
    whole = Collector(RolloutConfig(groups=1, group_size=1), store, Binary(), lambda groups: None)
    (sample,) = await taught(whole, await played(store, "a", 1.0, "x"))
    assert sample.advantages_T == [0.0, 1.0, 1.0]


async def test_a_group_of_one_without_an_outcome_is_dropped(store: Store) -> None:
    dropped: list[int] = []
    whole = Collector(RolloutConfig(groups=1, group_size=1), store, Binary(), dropped.append)
    await whole.add(Group(0, TASK, [await played(store, "a", None, "x")], 0))
    assert (dropped, whole.ready_groups) == ([1], 0)


async def test_dynamic_sampling_never_waits_for_places_that_are_taken(store: Store) -> None:
    """Three tasks in four teach nothing, and no more than one batch may be outstanding."""
    config = RolloutConfig(groups=2, group_size=2, mode="sync", dynamic_sampling=True)
    for number in range(8):
        for member in range(2):
            await played(store, f"{number}-{member}", 0.0, "x")

    class Runner(EpisodeRunner):
        async def run(self, spec: EpisodeSpec) -> Episode:
            member = int(spec.session_id.split("-")[1])
            reward = float(member == 0 and spec.group_id is not None and spec.group_id % 4 == 3)
            return Episode(
                f"{spec.group_id}-{member}", spec.group_id, TASK, StopReason.TERMINATED, reward, 1
            )

    whole = Collector(config, store, Grpo(), lambda groups: dispatcher.release(groups))

    async def add(group: Group, started_s: float) -> None:
        await whole.add(group)

    dispatcher = Dispatcher(
        config, {"": EpisodeLimits(1, 60.0)},
        Mixture({"": TaskSampler({"train": ["t"], "heldout": []}, 0)}), WorkerPool([Runner()], 4),
        add, lambda episode: None,
    )  # fmt: skip
    running = asyncio.create_task(dispatcher.run(range(8)))
    async with asyncio.timeout(60):
        batch = await whole.batch(0, 0)
        await running
    assert (batch.groups, batch.outstanding) == (8, 2)
    assert {sample.group_id for sample in batch.samples} == {3, 7}
    dispatcher.release(batch.outstanding)
    assert dispatcher.outstanding == 0
    assert whole.counters["groups/resampled"] == 6


async def test_a_resumed_run_gives_back_the_places_of_groups_that_teach_nothing(
    store: Store,
) -> None:
    given: list[int] = []
    config = RolloutConfig(groups=2, dynamic_sampling=True)
    episodes = [await played(store, name, 1.0, "x") for name in "ab"]
    await Collector(config, store, Grpo(), given.append).add(Group(0, TASK, episodes, 0))
    resumed = Collector(config, store, Grpo(), given.append)
    resumed.restore([group.samples for group in await store.untrained_groups()])
    assert given == [1, 1]


async def test_a_control_learns_from_anothers_outcome_and_keeps_its_own(store: Store) -> None:
    whole = Collector(
        RolloutConfig(groups=1, group_size=1), store, Binary(), lambda groups: None,
        substitution=Substitution("shuffled_rewards", 0),
    )  # fmt: skip
    good, bad = await played(store, "a", 1.0, "x"), await played(store, "b", 0.0, "x")
    assert await collected(whole, good) == []
    await whole.add(Group(1, TASK, [bad], version=0))
    (sample,) = (await whole.batch(1, 0)).samples
    assert sample.session_id == "b"
    assert sample.reward == 1.0
    assert any(advantage > 0 for advantage in sample.advantages_T)


class _Longer:
    """A group judge's model that prefers longer replies."""

    async def complete(
        self, messages: list[Message], temperature: float, max_tokens: int
    ) -> Completion:
        shown = re.findall(r"<reply number=\"\d+\">\n(.*?)\n</reply>", text_of(messages[-1]))
        return whole(json.dumps({"scores": [len(reply) for reply in shown]}))


async def test_a_model_that_compares_replies_adds_to_what_they_earned(store: Store) -> None:
    episodes = [
        await played(store, name, 1.0, "x", reply=reply(said))
        for name, said in (("a", "no"), ("b", "longer"), ("c", "no"), ("d", "longer"))
    ]
    comparison = Comparison("judge", "the longer one", 0.5)
    judge = GroupJudge(_Longer(), [comparison], JudgeConfig())
    comparing = Collector(
        RolloutConfig(groups=1), store, Grpo(normalize_std=False), lambda groups: None,
        group_judges={"": judge},
    )  # fmt: skip
    advantages = await collected(comparing, *episodes)
    assert advantages == [[0.0, x, x] for x in (-0.25, 0.25, -0.25, 0.25)]
    assert comparing.counters["comparisons/compared"] == 1
