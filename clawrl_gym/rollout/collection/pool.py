"""The workers as one pool: least busy first, bounded, and a worker that fails is data, not a crash.

A worker whose process ends is left out until another has taken its place; its episodes are given
up, their sessions closed, and it is told once. One that does not answer (stopped, cut off) gets no
new episodes until it does, and is ended when it has not for `_LEASE_S`: what it still reports then
comes too late. One in which nothing starts is left out while another works, each time longer, and
tried with one episode. Workers may join and leave at any time. An environment of which a worker
holds only some is waited for here, where no episode's time runs yet, and holds up no other.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from clawrl_gym.core.errors import ClawError, EnvError, PolicyError
from clawrl_gym.core.types import Episode, StopReason
from clawrl_gym.rollout.episodes.episode import EpisodeSpec

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 15.0
_FORGIVEN_S = 60.0
"""After so long without a failure the next one is a first one."""
_RECOVERY_S = 120.0
"""A worker that has not recovered by then is tried as it is: its episodes say what is wrong."""
_BEAT_EVERY_S = 3.0
_SILENT_S = 15.0
"""A worker that has not answered for so long gets no new episodes."""
_LEASE_S = 60.0
"""One that has not answered for so long has lost those that it has."""
_SLICE_S = 1.0
_ERRORS_IN_A_ROW = 16
"""Episodes that could not start in one worker, one after the other, before it is left out."""
_CLOSING_S = 10.0
"""Seconds that closing a lost episode's session may take."""


class WorkerRetired(EnvError):
    """The worker takes no episode: it ends once those that it has are over, and is replaced."""


class EpisodeRunner(Protocol):
    """A worker, wherever it runs. Whatever `run` raises means that the worker failed."""

    async def run(self, spec: EpisodeSpec) -> Episode:
        """One episode to its end. Raises WorkerRetired when it takes none."""
        ...

    async def ready(self) -> object:
        """Answers as long as the worker lives."""
        return None

    async def recovered(self) -> object:
        """Answers once a worker that failed or retired takes episodes again."""
        return await self.ready()

    def kill(self) -> None:
        """End its process, whatever that does; another one takes its place."""
        return None


@dataclass(slots=True, eq=False)
class _Member:
    """A worker in the pool."""

    worker: EpisodeRunner
    slots: int
    name: str
    playing: set[asyncio.Task[Episode]] = field(default_factory=set)
    busy: int = 0
    """Number of its slots that are taken."""
    busy_of: Counter[str] = field(default_factory=Counter)
    """Taken slots by environment."""
    has_left: bool = False
    """True once it left the pool."""
    is_away: bool = False
    """True while it gets no new episodes."""
    is_reported: bool = False
    """People were told that it is left out."""
    failures: int = 0
    back_s: float = -_FORGIVEN_S
    """Time of its return from the last failure, by the loop's clock."""
    errors: int = 0
    """Its latest episodes in a row that could not start."""
    is_on_trial: bool = False
    """True after several failures: it gets one episode at a time until one ends well."""

    @property
    def is_free(self) -> bool:
        """Whether it takes another episode now."""
        return not self.is_away and self.busy < (1 if self.is_on_trial else self.slots)


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    """An episode that waits for a worker."""

    env: str
    member: asyncio.Future[_Member]


class WorkerPool:
    """Runs episodes on the least busy of its workers, at most `slots` on each.

    Measured episodes go before trained ones, so that an evaluation beside training is over soon.
    """

    def __init__(
        self,
        workers: Sequence[EpisodeRunner] = (),
        slots: int = 1,
        *,
        places: Mapping[str, int] | None = None,
        on_lost: Callable[[EpisodeSpec, Episode], Awaitable[None]] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`places`: of these environments a worker holds only so many.

        `on_lost` closes the session of an episode whose worker failed, so that what a worker
        does that was only cut off is refused. It may raise PolicyError."""
        self._places = places or {}
        self._on_lost = on_lost
        self._say = say
        self._members: list[_Member] = []
        self._limit: int | None = None
        self.ended = 0
        """Episodes, since the start."""
        self._joined = 0
        self._listens = False
        self._in_flight = 0
        self._urgent: deque[_Turn] = deque()
        self._others: deque[_Turn] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        for worker in workers:
            self.add(worker, slots)

    @property
    def in_flight(self) -> int:
        """Episodes running now."""
        return self._in_flight

    @property
    def waiting(self) -> int:
        """Episodes that wait for a worker, and not for an environment of their own."""
        held_up = {env for env in self._places if self._is_held_up(env)}
        return sum(turn.env not in held_up for turn in (*self._urgent, *self._others))

    @property
    def capacity(self) -> int:
        """Episodes that the workers can run at a time."""
        return sum(member.slots for member in self._members)

    @property
    def limit(self) -> int:
        """Episodes that may run at a time; when it gets smaller, none is ended for it."""
        return self.capacity if self._limit is None else min(self._limit, self.capacity)

    @limit.setter
    def limit(self, count: int) -> None:
        self._limit = count
        self._hand_out()

    @property
    def workers(self) -> int:
        """Workers that take episodes now."""
        return sum(not member.is_away for member in self._members)

    def add(self, worker: EpisodeRunner, slots: int, name: str | None = None) -> None:
        """Add a worker that runs at most `slots` episodes at a time; `name` is for people."""
        self._joined += 1
        member = _Member(worker, slots, name or f"worker {self._joined}")
        self._members.append(member)
        if self._listens:
            self._spawn(self._listen(member))
        self._hand_out()

    def remove(self, worker: EpisodeRunner) -> None:
        """Remove a worker: it gets no more episodes, and those that it has are given up."""
        for member in [member for member in self._members if member.worker is worker]:
            self._members.remove(member)
            member.has_left = member.is_away = True
            for playing in member.playing:
                playing.cancel()

    def listen(self) -> None:
        """Notice workers that stop answering, until `close`."""
        self._listens = True
        for member in self._members:
            self._spawn(self._listen(member))

    def close(self) -> None:
        """Stop looking after the workers; idempotent."""
        for task in self._tasks:
            task.cancel()

    async def run(self, spec: EpisodeSpec) -> Episode:
        """One episode; a worker that fails makes it an episode without a reward."""
        while True:
            async with self._place(spec) as member:
                if member.has_left:  # together with the slot
                    continue
                try:
                    return await self._play(member, spec)
                except WorkerRetired:
                    self._leave_out(member, None, recovers=True)

    async def _play(self, member: _Member, spec: EpisodeSpec) -> Episode:
        began_s = asyncio.get_running_loop().time()
        playing = asyncio.ensure_future(member.worker.run(spec))
        member.playing.add(playing)
        try:
            async with asyncio.timeout(spec.longest_s):
                episode = await playing
        except WorkerRetired:
            raise
        except TimeoutError:
            return await self._lost(spec, f"{member.name} has not ended it in {spec.longest_s:g} s")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():  # else `_give_up` has ended it
                raise
            return await self._lost(spec, f"{member.name} did not answer", is_reported=True)
        except Exception as error:  # noqa: BLE001 - the border: whatever a worker dies of is recorded
            kind = "" if isinstance(error, ClawError) else f"{type(error).__name__}: "
            if began_s >= member.back_s:  # else it is the last failure that is heard of again
                self._leave_out(member, f"failed: {kind}{error}", recovers=True)
            return await self._lost(spec, f"{member.name} failed: {kind}{error}", is_reported=True)
        finally:
            self.ended += 1
            member.playing.discard(playing)
        self._judge(member, episode)
        return episode

    async def _lost(self, spec: EpisodeSpec, error: str, *, is_reported: bool = False) -> Episode:
        """The episode of a worker that will report nothing, or nothing that counts."""
        episode = Episode(
            session_id=spec.session_id,
            group_id=spec.group_id,
            task=spec.task,
            stop_reason=StopReason.ENV_ERROR,
            reward=None,
            turns=0,
            error=error,
            is_reported=is_reported,
        )
        if self._on_lost is not None:
            with suppress(PolicyError, TimeoutError):
                async with asyncio.timeout(_CLOSING_S):
                    await self._on_lost(spec, episode)
        return episode

    def _judge(self, member: _Member, episode: Episode) -> None:
        """Leave a worker out in which nothing starts, while another one works."""
        if episode.stop_reason is not StopReason.ENV_ERROR or episode.turns:
            self._worked(member)
            return
        member.errors += 1
        if member.errors >= _ERRORS_IN_A_ROW and self.workers > 1:
            why = f"its last {member.errors} episodes could not start, the last: {episode.error}"
            self._leave_out(member, f"is left out for a while: {why}", recovers=False)

    def _worked(self, member: _Member) -> None:
        member.errors = 0
        if member.is_on_trial:
            member.is_on_trial = False
            self._hand_out()
        if member.is_reported and not member.is_away:
            member.is_reported = False
            self._say(f"{member.name} works again")

    def _leave_out(self, member: _Member, why: str | None, *, recovers: bool) -> None:
        """No new episodes until it has recovered, after a pause that grows with its failures."""
        if member.is_away:
            return
        member.is_away = True
        pause_s = 0.0
        if why is not None:
            now_s = asyncio.get_running_loop().time()
            if now_s - member.back_s > _FORGIVEN_S:
                member.failures = 0
            pause_s = min(_FIRST_PAUSE_S * 2.0**member.failures, _LONGEST_PAUSE_S)
            member.failures += 1
            member.is_on_trial = member.failures > 1 or not recovers
            self._report(member, f"{member.name} {why}" + _and_its_episodes(member, recovers))
        self._spawn(self._bring_back(member, pause_s, recovers))

    async def _bring_back(self, member: _Member, pause_s: float, recovers: bool) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await asyncio.sleep(pause_s)
        if recovers:
            with suppress(Exception):  # episodes meet it, and say what it is
                async with asyncio.timeout(_RECOVERY_S):
                    await member.worker.recovered()
        member.back_s = loop.time()
        if member.has_left:
            return
        if recovers and member.is_reported:
            member.is_reported = False
            self._say(f"{member.name} takes episodes again after {loop.time() - began_s:.1f} s")
        self._welcome(member)

    async def _listen(self, member: _Member) -> None:
        while not member.has_left:
            await asyncio.sleep(_BEAT_EVERY_S)
            if not member.is_away:
                await self._hear(member)

    async def _hear(self, member: _Member) -> None:
        """Ask a worker whether it lives, and wait for its answer as long as its lease goes."""
        answer = asyncio.ensure_future(_answer(member.worker))
        try:
            if await _is_done(answer, _SILENT_S) or member.is_away:
                return
            member.is_away = True
            self._report(
                member,
                f"{member.name} has not answered for {_SILENT_S:.0f} s: it gets no new episodes "
                "until it does",
            )
            if not await _is_done(answer, _LEASE_S - _SILENT_S):
                self._give_up(member)
            elif answer.result():
                member.is_reported = False
                self._say(f"{member.name} answers again")
                self._welcome(member)
            else:
                self._say(f"{member.name} has ended: its episodes are run again")
                self._spawn(self._bring_back(member, _FIRST_PAUSE_S, recovers=True))
        finally:
            answer.cancel()

    def _give_up(self, member: _Member) -> None:
        """Run a member's episodes elsewhere; whatever it may still report comes too late."""
        self._say(
            f"{member.name} has not answered for {_LEASE_S:.0f} s: it is ended"
            + _and_its_episodes(member, True)
        )
        member.worker.kill()
        for playing in member.playing:
            playing.cancel()
        self._spawn(self._bring_back(member, _FIRST_PAUSE_S, recovers=True))

    def _report(self, member: _Member, line: str) -> None:
        """Once until it works again."""
        if not member.is_reported:
            member.is_reported = True
            self._say(line)

    def _welcome(self, member: _Member) -> None:
        member.is_away = False
        self._hand_out()

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @asynccontextmanager
    async def _place(self, spec: EpisodeSpec) -> AsyncIterator[_Member]:
        """A slot of a worker; who is urgent gets it before all who are not."""
        env = spec.task.env
        member = await self._take(env, self._urgent if spec.group_id is None else self._others)
        try:
            yield member
        finally:
            self._free(member, env)

    async def _take(self, env: str, queue: deque[_Turn]) -> _Member:
        member = self._least_busy(env)
        if member is not None:  # nobody waits for this environment then
            return self._occupy(member, env)
        turn = _Turn(env, asyncio.get_running_loop().create_future())
        queue.append(turn)
        try:
            return await turn.member
        except asyncio.CancelledError:
            if turn.member.done() and not turn.member.cancelled():
                self._free(turn.member.result(), env)  # it came together with the slot
            elif turn in queue:
                queue.remove(turn)
            raise

    def _has_room(self) -> bool:
        """For an episode of whatever environment."""
        if self._limit is not None and self._in_flight >= self._limit:
            return False
        return any(member.is_free for member in self._members)

    def _least_busy(self, env: str) -> _Member | None:
        """The least busy worker for it; None when no worker takes another episode of it."""
        if not self._has_room():
            return None
        free = (member for member in self._members if member.is_free and self._holds(member, env))
        return min(free, key=lambda member: member.busy / member.slots, default=None)

    def _holds(self, member: _Member, env: str) -> bool:
        """Whether it has one of these environments left."""
        return env not in self._places or member.busy_of[env] < self._places[env]

    def _is_held_up(self, env: str) -> bool:
        """Whether all that there are of it are taken."""
        return bool(self._members) and not any(self._holds(member, env) for member in self._members)

    def _occupy(self, member: _Member, env: str) -> _Member:
        member.busy += 1
        member.busy_of[env] += 1
        self._in_flight += 1
        return member

    def _free(self, member: _Member, env: str) -> None:
        member.busy -= 1
        member.busy_of[env] -= 1
        self._in_flight -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        """Give free slots to those who wait."""
        full: set[str] = set()
        for queue in (self._urgent, self._others):
            for turn in [*queue]:
                if turn.env in full:
                    continue
                if not self._has_room():
                    return
                member = self._least_busy(turn.env)
                if member is None:
                    full.add(turn.env)
                    continue
                queue.remove(turn)
                if not turn.member.done():
                    turn.member.set_result(self._occupy(member, turn.env))


def _and_its_episodes(member: _Member, are_lost: bool) -> str:
    count = len(member.playing)
    return f"; {count} episodes in it are run again" if are_lost and count else ""


async def _is_done(answer: asyncio.Future[bool], within_s: float) -> bool:
    """Waits in slices: while this process itself is stopped, nobody's time runs."""
    for _ in range(round(within_s / _SLICE_S)):
        await asyncio.wait({answer}, timeout=_SLICE_S)
        if answer.done():
            return True
    return False


async def _answer(worker: EpisodeRunner) -> bool:
    """Whether it is healthy. An error is an answer, too: episodes meet it, and say what it is."""
    try:
        await worker.ready()
    except Exception:  # noqa: BLE001 - the border: whatever a worker dies of
        return False
    return True
