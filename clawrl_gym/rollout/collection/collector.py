"""The collector: whole groups are judged, stamped and become samples in the store.

Where the algorithm follows hints, each turn that got some is rendered again with them in its
prompt, before the group is stamped. Groups are numbered by the order in which they were accepted;
`ReadyGroups` makes batches of them in that order. Episodes without an outcome (infrastructure
failures) are neither judged nor trained on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from clawrl_gym.config import RolloutConfig
from clawrl_gym.core.types import (
    INTERRUPTED,
    Compared,
    Episode,
    Group,
    Sample,
    TaskRef,
    Turn,
    Verdict,
)
from clawrl_gym.dialogue.merging import MergeResult, merge_turns
from clawrl_gym.judge.comparison import GroupJudge
from clawrl_gym.judge.enhance import Enhancer, hints_of
from clawrl_gym.judge.verdicts import VerdictMaker
from clawrl_gym.rollout.collection.control import Substitution
from clawrl_gym.store import Store
from clawrl_gym.trainers.algorithms.algorithm import Algorithm
from clawrl_gym.trainers.batch_queue import EQUAL, Batch, BatchQueue, has_signal
from clawrl_gym.trainers.no_gradient import idle_cause

UNTRAINABLE = "samples/untrainable_turns"
"""Counter of turns that were sampled otherwise than the learner computes."""


@dataclass(frozen=True, slots=True)
class Judging:
    """Judges and hints for the turns of one environment."""

    verdict_maker: VerdictMaker
    enhancer: Enhancer | None = None
    """Renders hints, where the algorithm follows them."""


class Collector:
    """Takes whole groups, gives batches."""

    def __init__(
        self,
        config: RolloutConfig,
        store: Store,
        algorithm: Algorithm,
        on_dropped: Callable[[int], None],
        judging: Mapping[str, Judging] | None = None,
        on_verdict: Callable[[Verdict], None] = lambda _: None,
        on_accepted: Callable[[Group], None] = lambda _: None,
        substitution: Substitution | None = None,
        group_judges: Mapping[str, GroupJudge] | None = None,
    ) -> None:
        """`judging`: who judges the turns of an environment, by `TaskRef.env`; else nobody.
        `group_judges`: who compares the replies of its groups.

        `on_dropped` gets the number of outstanding groups that no batch will give back,
        `on_verdict` each verdict once it is on disk, `on_accepted` each
        group in the store's order.
        """
        self._config = config
        self._store = store
        self._algorithm = algorithm
        self._on_dropped = on_dropped
        self._on_verdict = on_verdict
        self._on_accepted = on_accepted
        self._judging = judging or {}
        self._group_judges = group_judges or {}
        self._substitution = substitution or Substitution("none", 0)
        self._ready = BatchQueue.training(config, store)
        self._in_order = asyncio.Lock()
        self._counters: Counter[str] = Counter()

    @property
    def counters(self) -> Counter[str]:
        """Counts since the start: merge/*, groups/*, samples/*, verdicts/*, hints/*,
        comparisons/*."""
        judged, enhanced = Counter[str](), Counter[str]()
        for judging in self._judging.values():
            judged += judging.verdict_maker.counters
            enhanced += judging.enhancer.counters if judging.enhancer else Counter()
        verdicts = {f"verdicts/{name}": count for name, count in judged.items()}
        hints = {f"hints/{name}": count for name, count in enhanced.items()}
        compared = Counter[str]()
        for comparer in self._group_judges.values():
            compared += comparer.counters
        comparisons = {f"comparisons/{name}": count for name, count in compared.items()}
        own = self._counters + self._ready.counters
        return own + Counter(verdicts) + Counter(hints) + Counter(comparisons)

    @property
    def ready_groups(self) -> int:
        """Accepted groups that wait for the learner."""
        return self._ready.waiting_groups

    def restore(self, groups: list[list[Sample]], compared: Sequence[Compared] = ()) -> None:
        """Groups that a resumed run had accepted and not trained, in their order.

        `compared` is what all its groups brought to the algorithm's running means.
        """
        self._algorithm.replay(compared)
        before = self._ready.resampled_groups
        self._ready.restore(groups)
        empty = self._ready.resampled_groups - before
        if empty:
            self._on_dropped(empty)

    async def add(self, group: Group) -> None:
        """Accept a whole group: judge its turns, merge them, stamp advantages, store, queue."""
        rewarded = [e for e in group.episodes_G if e.reward is not None]
        if len(rewarded) < min(self._config.min_group, len(group.episodes_G)):
            self._counters["groups/dropped_failed"] += 1
            self._on_dropped(1)
            return
        turns_G = [await self._store.turns_of(e.session_id) for e in group.episodes_G]
        segments_G = []
        for turns in turns_G:
            merged = merge_turns(turns)
            self._count(merged)
            self._counters[UNTRAINABLE] += sum(
                bool(turn.untrainable) for turn in turns if turn.kind == "main"
            )
            segments_G.append(merged.sequences)
        comparer = self._group_judges.get(group.task.env)
        if comparer is not None:
            group = await comparer.compared(group, turns_G)
        judging = self._judging.get(group.task.env)
        verdicts_G = await self._judge(judging, group.episodes_G, turns_G)
        prompts_G = await self._enhance(judging, group.task, turns_G, verdicts_G)
        async with self._in_order:  # so that verdicts and groups have one order in the store
            await self._record(verdicts_G)
            rewarded_group, learned_G = self._substitution.rewards(group, verdicts_G)
            samples = self._algorithm.make_samples(rewarded_group, segments_G, learned_G, prompts_G)
            if not samples:
                self._counters["groups/zero_variance"] += 1
            self._counters["groups/accepted"] += 1
            idle = EQUAL
            if not any(map(has_signal, samples)):
                idle = idle_cause(rewarded_group, segments_G, learned_G, samples, self._algorithm)
            await self._ready.accept(group, samples, self._algorithm.compared(), idle)
            self._on_accepted(group)
            if self._config.dynamic_sampling and not any(map(has_signal, samples)):
                self._counters["groups/resampled"] += 1
                self._on_dropped(1)

    async def batch(self, number: int, version: int) -> Batch:
        """The next batch, as soon as enough groups are there."""
        return await self._ready.batch(number, version)

    async def _judge(
        self, judging: Judging | None, episodes_G: list[Episode], turns_G: list[list[Turn]]
    ) -> list[dict[int, Verdict]]:
        """Verdicts by `Turn.index`, on all turns that have a next state at once; not stored yet."""
        tasks_G: list[dict[int, asyncio.Task[Verdict]]] = []
        async with asyncio.TaskGroup() as running:
            for episode, turns in zip(episodes_G, turns_G, strict=True):
                tasks: dict[int, asyncio.Task[Verdict]] = {}
                if judging is not None and episode.reward is not None:
                    states = await self._store.next_states_of(episode.session_id)
                    for turn in turns:
                        if turn.id in states and _is_trained(turn):
                            verdict = judging.verdict_maker.verdict(turn, states[turn.id])
                            tasks[turn.index] = running.create_task(verdict)
                tasks_G.append(tasks)
        return [{at: task.result() for at, task in tasks.items()} for tasks in tasks_G]

    async def _enhance(
        self,
        judging: Judging | None,
        task: TaskRef,
        turns_G: list[list[Turn]],
        verdicts_G: list[dict[int, Verdict]],
    ) -> list[dict[int, tuple[list[int], ...]]]:
        """The prompts of the turns that got hints, by `Turn.index`, all rendered at once."""
        enhancer = judging.enhancer if judging and self._algorithm.needs_hints else None
        if enhancer is None:
            return [{} for _ in turns_G]
        tasks_G: list[dict[int, asyncio.Task[tuple[list[int], ...] | None]]] = []
        async with asyncio.TaskGroup() as running:
            for turns, verdicts in zip(turns_G, verdicts_G, strict=True):
                hints = {at: hints_of([verdict]) for at, verdict in verdicts.items()}
                hints = {
                    turn.index: self._substitution.hints(task, turn, hints[turn.index])
                    for turn in turns
                    if hints.get(turn.index)
                }
                tasks_G.append(
                    {
                        turn.index: running.create_task(enhancer.prompts(turn, hints[turn.index]))
                        for turn in turns
                        if hints.get(turn.index)
                    }
                )
        return [
            {at: prompts for at, task in tasks.items() if (prompts := task.result())}
            for tasks in tasks_G
        ]

    async def _record(self, verdicts_G: list[dict[int, Verdict]]) -> None:
        verdicts = [verdict for verdicts in verdicts_G for verdict in verdicts.values()]
        await asyncio.gather(*(self._store.add_verdict(verdict) for verdict in verdicts))
        for verdict in verdicts:
            self._on_verdict(verdict)

    def _count(self, merged: MergeResult) -> None:
        self._counters["merge/turns"] += merged.merged + merged.forks.total()
        self._counters["merge/merged"] += merged.merged
        for reason, count in merged.forks.items():
            self._counters[f"merge/fork_{reason}"] += count


def _is_trained(turn: Turn) -> bool:
    is_whole = turn.finish_reason != INTERRUPTED and not turn.untrainable
    return turn.kind == "main" and is_whole
