"""Verdicts on live turns become samples, and every session that was understood yields one.

A turn with a clear verdict (reward other than 0) makes a group of one, with the algorithm's
advantage A = w (r - b), |r - b| >= 0.05 (`trainers/algorithms/binary.py`). Explicit feedback wins
whenever it comes: a waiting sample of its turn is withdrawn, and a new one is made even when the
session has ended or the turn was trained on by the judge's verdict. It counts once: after a batch
has taken a sample that feedback made, later feedback on the turn makes none. Where the algorithm
follows hints, a verdict that has some makes one too, whatever its value; a person's correction in
words is a hint. Other neutral verdicts and abstentions are recorded and not trained; side turns and
interrupted replies never are, replies that the token limit cut off only with `train_truncated`, and
nothing of an evaluation. Hints that the policy's server did not render wait in the store for the
next start.

The outcome that a session's end brought counts as feedback on its last main turn.

At least one: when a session has ended, all its turns with a next state are judged neutral, and so
no verdict has made a sample, then

    A = weak_reward * reward_weight

for the last trainable turn that got a signal: going on without a complaint is weak evidence for the
reply, of the strength weak_reward. There is no baseline in it, so it always has a gradient; it is
at most one sample a session and waits for the end, so it never takes the place of a clear verdict.
One turn of which the judge abstained (a language that nobody can read, a tool's result that nobody
knows), that nobody judged, or that brought a complaint or a wish for the future, and the session
yields nothing: silence about what was not understood is not praise. `weak_reward` 0 leaves such
sessions out, and so does an algorithm that follows hints alone (`reward_weight` 0).

A last turn without a signal is kept and waits for feedback. A session that yields nothing is
counted and says why.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from clawrl_gym.config import LiveConfig
from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.ownership import OWNER, user_of
from clawrl_gym.core.types import (
    Episode,
    Group,
    Sample,
    StopReason,
    TaskRef,
    Turn,
    Verdict,
)
from clawrl_gym.judge.enhance import Enhancer, hints_of
from clawrl_gym.rollout.episodes.evidence import (
    SessionEvidence,
    segment_of,
    unclear_because,
    untrainable_because,
)
from clawrl_gym.store import SessionRow, Store, effective
from clawrl_gym.trainers.algorithms.algorithm import Algorithm, TurnWeights, make_sample
from clawrl_gym.trainers.user_queues import UserQueues

_TASK = TaskRef(None, 0, "train")
_WAITS = "hint waits"
"""The policy's server did not answer: the verdict is taken up again at the next start."""

_log = logging.getLogger(__name__)


class LiveCollector:
    """Collects samples from live conversations. Its entry points neither block nor raise."""

    def __init__(
        self,
        config: LiveConfig,
        store: Store,
        algorithm: Algorithm,
        ready: UserQueues,
        judged: bool = True,
        enhancer: Enhancer | None = None,
        make_algorithm: Callable[[], Algorithm] | None = None,
        on_judged: Callable[[Turn, Verdict], None] = lambda turn, verdict: None,
    ) -> None:
        """`judged`: a judge gives each turn a verdict, which is waited for at a session's end.
        `make_algorithm`: one like `algorithm` for each user with weights of their own, whose
        running means are theirs alone. `on_judged` gets the verdict that counts for a live turn."""
        self._config = config
        self._store = store
        self._algorithm = algorithm
        self._make_algorithm = make_algorithm
        self._algorithms = {OWNER: algorithm}
        self._ready = ready
        self._judged = judged
        self._on_judged = on_judged
        self._enhancer = enhancer if algorithm.needs_hints else None
        self._unread: set[int] = set()
        self._events: asyncio.Queue[Verdict | str] = asyncio.Queue()
        self._deleted: dict[str, float] = {}
        self._next_group: int | None = None
        self._counters: Counter[str] = Counter()

    @property
    def counters(self) -> Counter[str]:
        """Counts since the start: `samples`, `withdrawn`, `turns/REASON` for verdicts without a
        sample, `sessions/REASON` for sessions that yielded nothing, `hints/NAME` of the enhancer,
        and what the queues left out or hold."""
        taught = Counter[str]() if self._enhancer is None else self._enhancer.counters
        hints = Counter({f"hints/{name}": n for name, n in taught.items()})
        return self._counters + hints + self._ready.counters

    def verdict(self, verdict: Verdict) -> None:
        """A verdict or feedback on a live turn is on disk."""
        self._events.put_nowait(verdict)

    def session_ended(self, session_id: str) -> None:
        """A live session's end is on disk."""
        self._events.put_nowait(session_id)

    def deleted(self, session_id: str) -> None:
        """A session is about to be deleted: nothing of it is trained on from now on."""
        self._deleted[session_id] = time.time()
        self._ready.forget(session_id)

    async def restore(self) -> None:
        """Go on where an earlier process stopped; before `run`."""
        waiting = await self._store.untrained_groups()
        self._ready.restore(waiting)
        self._algorithm.replay(await self._store.compared())
        for user in {group.user for group in waiting} | set(await self._store.newest_of_users()):
            if user != OWNER and self._make_algorithm is not None:
                self._algorithm_of(user).replay(await self._store.compared(user))
        for verdict in await self._store.judged_without_sample():
            self.verdict(verdict)
        for session_id in await self._store.ended_without_yield():
            self.session_ended(session_id)

    async def run(self) -> None:
        """Take one event after another, until cancelled."""
        while True:
            event = await self._events.get()
            try:
                if isinstance(event, Verdict):
                    await self._on_verdict(event)
                else:
                    await self._on_end(event)
            except StoreError as error:
                self._counters["failed"] += 1
                subject = "a session's end"
                if isinstance(event, Verdict):
                    subject = f"turn {event.turn_id}"
                _log.warning("%s waits in the store for the next start: %s", subject, error)
            finally:
                self._events.task_done()

    async def settled(self) -> None:
        """Wait until everything that came so far has been taken; `run` must be running."""
        await self._events.join()

    async def _on_verdict(self, verdict: Verdict) -> None:
        turn = await self._store.turn(verdict.turn_id)
        session = None if turn is None else await self._store.session(turn.session_id)
        if turn is None or session is None or self._is_deleted(turn):
            self._counters["turns/deleted"] += 1
            return
        if session.source != "live":
            return
        verdicts = (await self._store.verdicts_of(turn.session_id)).get(verdict.turn_id, [])
        best = effective(verdicts)
        if best is not None and best.id != verdict.id:
            self._counters["turns/overruled"] += 1
            return
        if session.split == "train":
            self._on_judged(turn, verdict)
        withdrawn = await self._withdraw(verdict.turn_id)
        sample_count = 0
        hints = self._hints(verdicts)
        why = await self._why_not(turn, session, verdict, bool(hints))
        if why is None:
            sample_count, why = await self._from_verdict(turn, verdict, hints)
        if why is not None:
            self._counters[f"turns/{why}"] += 1
            if why != _WAITS:
                await self._store.settle(verdict.turn_id)
        if sample_count != withdrawn:
            await self._book(session, sample_count - withdrawn)
        if session.ended_s is not None:
            await self._on_end(turn.session_id)

    def _hints(self, verdicts: list[Verdict]) -> tuple[str, ...]:
        """The hints in a turn's verdicts; none where the algorithm does not follow hints."""
        return () if self._enhancer is None else hints_of(verdicts)

    async def _why_not(
        self, turn: Turn, session: SessionRow, verdict: Verdict, has_hints: bool
    ) -> str | None:
        """Why a verdict makes no sample; None when it may."""
        if session.split != "train":
            return "evaluation"
        if verdict.kind == "feedback" and await self._store.is_taught_by_feedback(
            verdict.turn_id, waiting=True
        ):
            return "feedback used"
        unclear = unclear_because(verdict, self._algorithm.reward_weight)
        if unclear is not None and not has_hints:
            return unclear
        return untrainable_because(turn, self._config, self._ready.version(turn.session_id))

    async def _on_end(self, session_id: str) -> None:
        """The guarantee."""
        session = await self._store.session(session_id)
        if session is None or session.source != "live" or session.ended_s is None:
            return
        if session.split != "train":
            return await self._store.set_yield(session_id, 0, "evaluation")
        verdicts = await self._store.verdicts_of(session_id)
        if session.reward and await self._record_outcome(session, session.reward, verdicts):
            return
        if session.samples:
            return
        hinted = {turn_id for turn_id, of_turn in verdicts.items() if self._hints(of_turn)}
        evidence = SessionEvidence(
            await self._store.turns_of(session_id),
            await self._store.unanswered_turns(session_id),
            {
                turn_id: best
                for turn_id, of_turn in verdicts.items()
                if (best := effective(of_turn))
            },
            hinted - self._unread,
            self._algorithm.reward_weight,
        )
        if self._judged and evidence.unjudged:
            return  # the verdict that is missing comes back here
        weakest = evidence.weakest(self._config, self._ready.version(session_id))
        if isinstance(weakest, Turn):
            await self._book(session, await self._from_weak(weakest))
        elif weakest is not None and session.why != weakest:
            self._counters[f"sessions/{weakest}"] += 1
            await self._store.set_yield(session_id, 0, weakest)

    async def _record_outcome(
        self, session: SessionRow, outcome: float, verdicts: dict[int, list[Verdict]]
    ) -> bool:
        """Make feedback on the last main turn of the outcome; False when it has feedback."""
        turn_id = await self._store.last_main_turn(session.id)
        if turn_id is None or not math.isfinite(outcome):
            return False
        if any(v.kind == "feedback" for v in verdicts.get(turn_id, ())):
            return False
        reward = min(max(outcome, -1.0), 1.0)
        feedback = Verdict(
            turn_id, "feedback", 1 if reward > 0 else -1, reward, {"outcome": outcome}, time.time()
        )
        await self._on_verdict(replace(feedback, id=await self._store.add_verdict(feedback)))
        return True

    async def _from_verdict(
        self, turn: Turn, verdict: Verdict, hints: tuple[str, ...]
    ) -> tuple[int, str | None]:
        """Make samples from a verdict; returns how many, and why none."""
        prompts = None if self._enhancer is None else await self._enhancer.prompts(turn, hints)
        unclear = unclear_because(verdict, self._algorithm.reward_weight)
        if unclear is not None and not prompts:
            if prompts is None:
                return 0, _WAITS
            self._unread.add(verdict.turn_id)
            return 0, "unreadable hint"
        group = await self._group(turn, verdict.reward or 0.0)
        enhanced = {turn.index: prompts} if prompts else {}
        verdicts = {turn.index: verdict}
        algorithm = self._algorithm_of(self._ready.trained_user(turn.session_id))
        samples = algorithm.make_samples(group, [[segment_of(turn)]], [verdicts], [enhanced])
        return await self._accept(group, turn, samples, verdict.kind), None

    async def _from_weak(self, turn: Turn) -> int:
        weak = self._config.weak_reward
        group = await self._group(turn, weak)
        weight = TurnWeights(weak * self._algorithm.reward_weight, strength=weak)
        sample = make_sample(group, group.episodes_G[0], segment_of(turn), {turn.index: weight})
        self._counters["weak"] += 1
        return await self._accept(group, turn, [sample], "weak")

    async def _group(self, turn: Turn, reward: float) -> Group:
        """A group of one turn."""
        if self._next_group is None:
            self._next_group = await self._store.next_group_id()
        number, self._next_group = self._next_group, self._next_group + 1
        task = replace(_TASK, env=self._compared_with(turn.session_id))
        episode = Episode(turn.session_id, number, task, StopReason.TERMINATED, reward, turns=1)
        return Group(number, task, [episode], version=min(turn.versions_T))

    def _compared_with(self, session_id: str) -> str:
        """The user whose running means a session's rewards enter: each has their own, so that
        nobody's praise makes others' count for less."""
        user = user_of(session_id)
        return "" if self._ready.trained_user(session_id) == user else user

    async def _accept(self, group: Group, turn: Turn, samples: list[Sample], signal: str) -> int:
        """Store and queue; nothing of a session that is being deleted. `signal`: see `Sample`."""
        assert turn.id is not None
        if not samples or self._is_deleted(turn):
            return 0
        marked = [replace(sample, turn_id=turn.id, signal=signal) for sample in samples]
        algorithm = self._algorithm_of(self._ready.trained_user(turn.session_id))
        stored = await self._ready.accept(group, marked, algorithm.compared())
        if self._is_deleted(turn):
            self._ready.withdraw(turn.id)
            return 0
        self._counters["samples"] += len(stored)
        return len(stored)

    async def _withdraw(self, turn_id: int) -> int:
        """Take back what waits for training; what is in a batch already stays."""
        if not self._ready.withdraw(turn_id):
            return 0
        withdrawn = await self._store.withdraw(turn_id)
        self._counters["withdrawn"] += withdrawn
        return withdrawn

    async def _book(self, session: SessionRow, change: int) -> None:
        """Record how many samples came of a session so far."""
        before = session.samples or 0
        if not before:
            self._counters["sessions/yielded"] += 1
        await self._store.set_yield(session.id, max(before + change, 0), None)

    def _algorithm_of(self, user: str) -> Algorithm:
        """The algorithm of the weights that learn from this user's turns."""
        algorithm = self._algorithms.get(user)
        if algorithm is None:
            assert self._make_algorithm is not None
            algorithm = self._algorithms[user] = self._make_algorithm()
        return algorithm

    def forget_user(self, user: str) -> None:
        """A user is removed, whose sessions are deleted."""
        self._ready.forget_user(user)
        self._algorithms.pop(user, None)

    def _is_deleted(self, turn: Turn) -> bool:
        return self._deleted.get(turn.session_id, 0.0) >= turn.created_s
