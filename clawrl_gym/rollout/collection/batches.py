"""Episodes on their way to a worker's process and back, in batches: one call for all that begin at
a time, and one for all that have ended, because a call costs as much CPU as a turn.

A process that took the place of another one knows nothing of what was begun in that: calls carry an
epoch, which ends when a call fails, and with it everything that was under way.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Protocol

from clawrl_gym.core.errors import EnvError
from clawrl_gym.core.types import Episode
from clawrl_gym.rollout.episodes.episode import EpisodeSpec

_GATHER_S = 0.005
"""Seconds that an end waits for others to go with."""

Beginning = tuple[int, EpisodeSpec]
"""A number, by which it is known while it is under way."""
Ending = tuple[int, Episode | Exception]
"""The episode, or the exception that playing it raised."""


class WorkerReplaced(EnvError):
    """The process in which an episode was begun was replaced by another one."""


class PlayedBatches:
    """Plays batches of episodes, in the worker's process."""

    def __init__(self, run: Callable[[EpisodeSpec], Awaitable[Episode]]) -> None:
        self._run = run
        self._epoch: int | None = None
        self._endings: list[Ending] = []
        self._some = asyncio.Event()
        self._playing: set[asyncio.Task[None]] = set()

    def begin(self, epoch: int, is_first: bool, beginnings: list[Beginning]) -> None:
        """Returns at once. Raises WorkerReplaced where the first of its epoch were begun elsewhere;
        of earlier epochs nobody waits for anything."""
        if is_first:
            self._epoch, self._endings = epoch, []
            self._some.clear()
        self._check(epoch)
        for number, spec in beginnings:
            task = asyncio.create_task(self._play(epoch, number, spec))
            self._playing.add(task)
            task.add_done_callback(self._playing.discard)

    async def ended(self, epoch: int) -> list[Ending]:
        """The ends so far, as soon as there are some. Raises WorkerReplaced."""
        self._check(epoch)
        await self._some.wait()
        await asyncio.sleep(_GATHER_S)
        self._check(epoch)
        self._some.clear()
        endings, self._endings = self._endings, []
        return endings

    def _check(self, epoch: int) -> None:
        if epoch != self._epoch:
            raise WorkerReplaced("the process that it was begun in has ended")

    async def _play(self, epoch: int, number: int, spec: EpisodeSpec) -> None:
        ending: Episode | Exception
        try:
            ending = await self._run(spec)
        except EnvError as error:
            ending = error
        except Exception as error:  # noqa: BLE001 (it must arrive, whatever it is)
            ending = EnvError(f"{type(error).__name__}: {error}")
        if epoch == self._epoch:
            self._endings.append((number, ending))
            self._some.set()


class Player(Protocol):
    """A worker's process, from outside. Any exception means that it failed."""

    def begin(
        self, epoch: int, is_first: bool, beginnings: list[Beginning]
    ) -> Awaitable[object]: ...

    def ended(self, epoch: int) -> Awaitable[list[Ending]]: ...


class Batches:
    """Plays single episodes on a player of batches, beside the pool."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self._numbers = itertools.count()
        self._epochs = itertools.count()
        self._epoch = next(self._epochs)
        self._is_first = True
        self._new: list[tuple[EpisodeSpec, asyncio.Future[Episode]]] = []
        self._under_way: dict[int, asyncio.Future[Episode]] = {}
        self._collecting = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, spec: EpisodeSpec) -> Episode:
        """One episode. Raises what playing it raised, or what the player failed with."""
        loop = asyncio.get_running_loop()
        if not self._new:
            loop.call_soon(self._send)  # with all that begin in this step
        episode: asyncio.Future[Episode] = loop.create_future()
        self._new.append((spec, episode))
        return await episode

    def close(self) -> None:
        """Cancel all tasks: nobody waits for them."""
        for task in self._tasks:
            task.cancel()

    def _send(self) -> None:
        beginnings: list[Beginning] = []
        for spec, episode in self._new:
            if not episode.cancelled():
                number = next(self._numbers)
                self._under_way[number] = episode
                beginnings.append((number, spec))
        self._new = []
        is_first, self._is_first = self._is_first, False
        self._spawn(self._begin(self._epoch, is_first, beginnings))

    async def _begin(self, epoch: int, is_first: bool, beginnings: list[Beginning]) -> None:
        try:
            await self._player.begin(epoch, is_first, beginnings)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is told to who waits)
            self._fail(epoch, error)
        if epoch == self._epoch and not self._collecting:
            self._collecting = True
            self._spawn(self._collect(epoch))

    async def _collect(self, epoch: int) -> None:
        """Collect ends until nothing of the epoch is in progress."""
        try:
            while epoch == self._epoch and self._under_way:
                for number, ending in await self._player.ended(epoch):
                    self._settle(self._under_way.pop(number, None), ending)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is told to who waits)
            self._fail(epoch, error)
        if epoch == self._epoch:
            self._collecting = False

    def _fail(self, epoch: int, error: Exception) -> None:
        if epoch != self._epoch:
            return
        self._epoch, self._is_first, self._collecting = next(self._epochs), True, False
        lost, self._under_way = self._under_way, {}
        for episode in lost.values():
            self._settle(episode, error)

    def _settle(self, episode: asyncio.Future[Episode] | None, ending: Episode | Exception) -> None:
        if episode is None or episode.done():
            return
        if isinstance(ending, Episode):
            episode.set_result(ending)
        else:
            episode.set_exception(ending)

    def _spawn(self, work: Coroutine[object, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
