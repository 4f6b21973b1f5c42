"""Accepted groups that wait for the learner: they go in in the store's order, batches come out.

A batch always takes groups from the front, so what an update used up is a number of groups and a
resumed run forms the very batches that would have come; what a batch does not take stays. For
training, batch n is groups n*B to n*B + B - 1; with dynamic sampling it extends to the B-th group
that teaches something, so that a batch is never thinned out by tasks that are always or never
solved (DAPO), up to 8 B groups, so that a policy that solves everything ends too. For
live conversations a batch is the groups with
the next B samples that teach something, or, when the oldest of them has waited long enough, what
there is: a sample without an advantage, a stale or a withdrawn one neither fills a batch nor makes
one due. Waiting costs nothing: an arrival or the deadline wakes it up.

Where all users share the weights, `UserShare` bounds what one of them has of a batch: then a batch
need not be the groups at the front, and an update names those that it used.

A group is trained whole or not at all: its advantages compare its episodes, and what is left of
them would push the policy to whatever ended late. One sample that is too old, or was taken out,
takes all others with it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from clawrl_gym.config import LiveConfig, RolloutConfig
from clawrl_gym.core.ownership import OWNER, user_of
from clawrl_gym.core.types import Compared, Group, Sample
from clawrl_gym.store import Store
from clawrl_gym.trainers.user_share import Candidate, UserShare, influence_of

_MOST_HELD = 64
"""Samples of one bounded user that wait; more push the oldest out."""
_MOST_TRIES = 8
"""Dynamic sampling: a batch uses up at most this many times its number of groups."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples that one update trains on."""

    number: int
    groups: int
    """Number of groups that it uses up, in the order of their acceptance."""
    samples: list[Sample]
    outstanding: int
    """Number of them that still have a place among those outstanding."""
    equal_groups: int = 0
    """Number of them that teach nothing, because no episode is better than another."""
    solved_groups: int = 0
    """Number of these whose episodes all solved their task."""
    idle_groups: Mapping[str, int] = field(default_factory=dict)
    """Number of groups that teach nothing for another reason, by cause (see `no_gradient.py`)."""
    group_ids: tuple[int, ...] | None = None
    """Ids of the groups that it uses up; None: the first ones."""


EQUAL = "equal"
"""A group's episodes all have the same reward."""


@dataclass(frozen=True, slots=True)
class ByGroups:
    """Rule: a batch is a fixed number of groups."""

    groups: int
    dynamic: bool = False
    """Groups that teach nothing do not count towards that number."""


@dataclass(frozen=True, slots=True)
class ByTurns:
    """Rule: a batch is a fixed number of samples that teach something, or fewer after a while."""

    turns: int
    flush_s: float
    """Seconds from the oldest one's acceptance (or restoration) to a smaller batch."""
    share: UserShare | None = None
    """Share of a batch that one user may have; None: all of it."""


@dataclass(slots=True)
class _QueuedGroup:
    """One accepted group, with what would be slow to compute again and again."""

    samples: list[Sample]
    oldest_version: int
    """Oldest version of any token that was sampled for it."""
    with_signal: int
    """Number of samples that teach something."""
    since_s: float
    number: int = -1
    """The group's id; -1 where nobody needs it."""
    user: str = OWNER
    """User whose session it comes from."""
    influence: float = 0.0
    """See `influence_of`."""
    is_solved: bool = False
    """All its episodes solved their task; False also where an earlier process accepted it."""
    is_withdrawn: bool = False
    idle: str = EQUAL
    """Why it teaches nothing, where it does not."""

    @classmethod
    def of(
        cls, samples: list[Sample], number: int = -1, *, is_solved: bool = False, idle: str = EQUAL
    ) -> Self:
        oldest = min(map(_oldest_version, samples), default=-1)
        user = user_of(samples[0].session_id) if samples else OWNER
        return cls(
            samples, oldest, sum(map(has_signal, samples)), time.monotonic(), number, user,
            sum(map(influence_of, samples)), is_solved, idle=idle,
        )  # fmt: skip

    def empty(self) -> None:
        """Drop the samples; the place stays, so that a resumed run forms the same batches."""
        self.samples, self.with_signal, self.is_withdrawn = [], 0, True


class BatchQueue:
    """The queue between the collector of groups and the training loop."""

    def __init__(
        self, store: Store, rule: ByGroups | ByTurns, max_staleness: int, user: str = OWNER
    ) -> None:
        """`user`: the user whose weights learn from what is accepted."""
        self._store = store
        self._user = user
        self._rule = rule
        self._max_staleness = max_staleness
        self._waiting: deque[_QueuedGroup] = deque()
        self._taken: list[Sample] = []
        """Samples of the newest batch."""
        self._order = asyncio.Lock()
        self._arrived = asyncio.Event()
        self._void: list[range] = []
        """Versions that were taken back."""
        self.version = 0
        """Newest version of the weights, as given in the last call of `batch`."""
        self.counters: Counter[str] = Counter()
        """Groups, and the samples in them, left out of batches since the start."""

    @classmethod
    def training(cls, config: RolloutConfig, store: Store) -> Self:
        """The queue for training on groups of episodes."""
        rule = ByGroups(config.groups, config.dynamic_sampling)
        return cls(store, rule, config.max_staleness)

    @classmethod
    def live(
        cls,
        config: LiveConfig,
        store: Store,
        user: str = OWNER,
        share: UserShare | None = None,
    ) -> Self:
        """The queue for live conversations: groups of one turn."""
        rule = ByTurns(config.batch_turns, config.flush_s, share)
        return cls(store, rule, config.max_staleness, user)

    @property
    def waiting_groups(self) -> int:
        """Accepted groups that wait for the learner, empty ones too."""
        return len(self._waiting)

    @property
    def resampled_groups(self) -> int:
        """Number of them that teach nothing and are replaced by newly collected ones."""
        return sum(not self._holds_place(waiting) for waiting in self._waiting)

    @property
    def waiting_samples(self) -> int:
        """Samples among them that teach something."""
        return sum(self._effective(waiting) for waiting in self._waiting)

    @property
    def flush_in_s(self) -> float:
        """Seconds until a batch is made of what there is; NaN when nothing waits for that."""
        if isinstance(self._rule, ByGroups):
            return math.nan
        return self._flush_in_s(self._rule)

    @property
    def held(self) -> Counter[str]:
        """Samples that wait until others' samples make room for them, by user."""
        share = self._share
        if share is None:
            return Counter()
        teaching = [waiting for waiting in self._waiting if self._effective(waiting)]
        fitting = set(share.fitting([_candidate(waiting) for waiting in teaching], None))
        held = [waiting for at, waiting in enumerate(teaching) if at not in fitting]
        return sum((Counter({one.user: one.with_signal}) for one in held), Counter[str]())

    def restore(self, groups: list[list[Sample]], numbers: Sequence[int] | None = None) -> None:
        """Queue groups that an earlier process accepted and no update used, in their order, with
        their ids.

        Of several samples of one turn only the newest stays: it replaced the others.
        """
        newest = {sample.turn_id: sample.id for samples in groups for sample in samples}
        for samples, number in zip(groups, numbers or [-1] * len(groups), strict=True):
            newest_samples = [s for s in samples if s.turn_id is None or newest[s.turn_id] == s.id]
            self._append(_QueuedGroup.of(newest_samples, number))
        self._arrived.set()

    async def accept(
        self,
        group: Group,
        samples: list[Sample],
        compared: Sequence[Compared] = (),
        idle: str = EQUAL,
    ) -> list[Sample]:
        """Store a group with its samples and queue it; returns the samples as stored.

        `idle`: why none of them teaches anything, where that is so.
        """
        async with self._order:
            stored = await self._store.add_group(group, samples, compared, self._user)
            solved = [e.success for e in group.episodes_G if e.reward is not None]
            is_solved = bool(solved) and all(solved)
            self._append(_QueuedGroup.of(stored, group.id, is_solved=is_solved, idle=idle))
        self._arrived.set()
        return stored

    def _append(self, group: _QueuedGroup) -> None:
        """Append a group; when a bounded user has too many, the oldest one is pushed out."""
        self._waiting.append(group)
        if any(_is_of(sample, versions) for versions in self._void for sample in group.samples):
            self.counters["samples/dropped_taken_back"] += len(group.samples)
            group.empty()
        share = self._share
        if share is None or not share.is_bounded(group.user) or not group.with_signal:
            return
        of_user = [one for one in self._waiting if one.user == group.user and one.with_signal]
        if len(of_user) > _MOST_HELD:
            self.counters["samples/dropped_over_share"] += len(of_user[0].samples)
            of_user[0].empty()

    def withdraw(self, turn_id: int) -> int:
        """Empty the groups of a turn's waiting samples; returns how many samples that were."""
        return self._drop(lambda sample: sample.turn_id == turn_id)

    def forget(self, session_id: str) -> int:
        """Empty the groups of a session's waiting samples; returns how many samples that were.

        A batch that was taken and still waits for its turn loses them, too.
        """
        self._taken[:] = [sample for sample in self._taken if sample.session_id != session_id]
        return self._drop(lambda sample: sample.session_id == session_id)

    def take_back(self, versions: range) -> int:
        """Take versions back: what they sampled is not trained on, now or later. Returns how many
        samples waited."""
        self._void.append(versions)
        dropped = self._drop(lambda sample: _is_of(sample, versions))
        self.counters["samples/dropped_taken_back"] += dropped
        return dropped

    async def batch(self, number: int, version: int) -> Batch:
        """The next batch, as soon as it is due."""
        return self._take(number, await self.due(version))

    async def due(self, version: int) -> int:
        """Wait until a batch is due and leave it in the queue; returns how many groups it has."""
        self.version = version
        while True:
            groups = self._due()
            if groups:
                return groups
            self._arrived.clear()
            pause_s = self.flush_in_s
            with suppress(TimeoutError):
                async with asyncio.timeout(None if math.isnan(pause_s) else pause_s):
                    await self._arrived.wait()

    @property
    def _share(self) -> UserShare | None:
        return self._rule.share if isinstance(self._rule, ByTurns) else None

    def _due(self) -> int:
        """Number of groups of the batch that is due now; 0: not yet."""
        rule = self._rule
        if isinstance(rule, ByGroups):
            return self._whole(rule)
        if rule.share is not None:
            return len(self._shared(rule, rule.share))
        effective, wanted = 0, max(rule.turns, self._wanted_now())
        for groups, waiting in enumerate(self._waiting, 1):
            effective += self._effective(waiting)
            if effective >= wanted:
                return groups
        return len(self._waiting) if effective and self._flush_in_s(rule) <= 0 else 0

    def _shared(self, rule: ByTurns, share: UserShare) -> list[_QueuedGroup]:
        """The groups of the batch that is due now, in which no user has too large a share."""
        teaching = [waiting for waiting in self._waiting if self._effective(waiting)]
        candidates = [_candidate(waiting) for waiting in teaching]
        fitting = [teaching[at] for at in share.fitting(candidates, None)]
        if not fitting:
            return []
        wanted = max(rule.turns, self._needed(fitting))
        if any(share.is_bounded(waiting.user) for waiting in teaching):
            wanted = max(wanted, share.smallest_batch)
        if batch := [teaching[at] for at in share.fitting(candidates, wanted)]:
            return batch
        is_over = time.monotonic() - min(waiting.since_s for waiting in fitting) >= rule.flush_s
        return fitting if is_over else []

    def _wanted_now(self) -> int:
        """Batch size in samples at which all that wait are used before the oldest are too old."""
        return self._needed([waiting for waiting in self._waiting if self._effective(waiting)])

    def _needed(self, waiting: Sequence[_QueuedGroup]) -> int:
        if not waiting:
            return 0
        oldest = min(group.oldest_version for group in waiting)
        updates_left = self._max_staleness - (self.version - oldest) + 1
        return math.ceil(sum(group.with_signal for group in waiting) / updates_left)

    def _whole(self, rule: ByGroups) -> int:
        """Number of groups from the front that hold as many as a batch needs.

        A group that got stale while it waited still counts as one that teaches: it holds a place
        until a batch takes it, and without it the batch might never be whole.
        """
        if not rule.dynamic:
            return rule.groups if len(self._waiting) >= rule.groups else 0
        most = _MOST_TRIES * rule.groups
        teaching = 0
        for groups, waiting in enumerate(self._waiting, 1):
            teaching += waiting.with_signal > 0
            if teaching == rule.groups or groups == most:
                return groups
        return 0

    def _holds_place(self, waiting: _QueuedGroup) -> bool:
        """Whether a group counts towards a batch, so that no other is collected instead."""
        return (
            not (isinstance(self._rule, ByGroups) and self._rule.dynamic) or waiting.with_signal > 0
        )

    def _flush_in_s(self, rule: ByTurns) -> float:
        if rule.share is not None:
            teaching = [waiting for waiting in self._waiting if self._effective(waiting)]
            fitting = rule.share.fitting([_candidate(waiting) for waiting in teaching], None)
            since_s = [teaching[at].since_s for at in fitting]
            return min(since_s, default=math.nan) + rule.flush_s - time.monotonic()
        oldest_s = next((w.since_s for w in self._waiting if self._effective(w)), None)
        return math.nan if oldest_s is None else oldest_s + rule.flush_s - time.monotonic()

    def _take_shared(self, number: int, batch: Sequence[_QueuedGroup]) -> Batch:
        """Take a batch, and with it groups that no longer teach anything; others keep waiting."""
        taken = set(map(id, batch))
        used, left = list[_QueuedGroup](), deque[_QueuedGroup]()
        for waiting in self._waiting:
            is_used = id(waiting) in taken or not self._effective(waiting)
            (used if is_used else left).append(waiting)
            if is_used and waiting.samples and self._is_stale(waiting):
                self.counters["groups/dropped_stale"] += 1
                self.counters["samples/dropped_stale"] += len(waiting.samples)
        for waiting in left:  # or each new sample would make a small batch of its own
            waiting.since_s = time.monotonic()
        self._waiting = left
        samples = [sample for waiting in batch for sample in waiting.samples]
        self._taken = samples
        ids = tuple(waiting.number for waiting in used)
        return Batch(number, len(used), samples, len(used), group_ids=ids)

    def _take(self, number: int, groups: int) -> Batch:
        rule = self._rule
        if isinstance(rule, ByTurns) and rule.share is not None:
            return self._take_shared(number, self._shared(rule, rule.share))
        samples: list[Sample] = []
        outstanding = equal = solved = 0
        idle: Counter[str] = Counter()
        for _ in range(groups):
            waiting = self._waiting.popleft()
            outstanding += self._holds_place(waiting)
            is_stale = bool(waiting.samples) and self._is_stale(waiting)
            if is_stale:
                self.counters["groups/dropped_stale"] += 1
                self.counters["samples/dropped_stale"] += len(waiting.samples)
            else:
                samples += waiting.samples
            if waiting.with_signal or waiting.is_withdrawn or is_stale:
                continue
            if waiting.idle == EQUAL:
                equal += 1
                solved += waiting.is_solved
            else:
                idle[waiting.idle] += 1
        self._taken = samples
        return Batch(number, groups, samples, outstanding, equal, solved, idle)

    def _effective(self, waiting: _QueuedGroup) -> int:
        return 0 if self._is_stale(waiting) else waiting.with_signal

    def _is_stale(self, waiting: _QueuedGroup) -> bool:
        return self.version - waiting.oldest_version > self._max_staleness

    def _drop(self, is_dropped: Callable[[Sample], bool]) -> int:
        dropped = 0
        for waiting in self._waiting:
            if any(map(is_dropped, waiting.samples)):
                dropped += len(waiting.samples)
                waiting.empty()
        return dropped


def has_signal(sample: Sample) -> bool:
    """Whether any term of the loss has a weight on one of its tokens."""
    return any(sample.advantages_T) or any(sample.distill_T)


def _is_of(sample: Sample, versions: range) -> bool:
    """Whether any of its tokens was sampled by one of the versions."""
    return any(version in versions for version in set(sample.versions_T))


def _candidate(waiting: _QueuedGroup) -> Candidate:
    return Candidate(waiting.user, waiting.with_signal, waiting.influence)


def _oldest_version(sample: Sample) -> int:
    """`Sample.oldest_version`, without looking at each token of a long prompt."""
    return min(set(sample.versions_T) - {-1}, default=-1)
