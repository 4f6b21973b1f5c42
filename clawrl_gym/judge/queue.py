"""The judge's queue: turns whose next state has come wait here, never in the way of a reply.

It is bounded: a flood beyond the bound stays in the store and is taken from there later, as is what
an earlier process left. A judge that fails or is too slow abstains. A verdict is on disk before
anybody is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from clawrl_gym.config import JudgeConfig
from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.types import Turn, Verdict
from clawrl_gym.judge.interface import Judge
from clawrl_gym.judge.verdicts import VerdictMaker
from clawrl_gym.store import Store

_RETRY_S = 5.0
"""Seconds between tries, while the store cannot be used."""
_USER_MESSAGES = 3
"""Newest user messages that a waiting turn keeps; the rest of it would only take memory."""

_log = logging.getLogger(__name__)


class JudgeQueue:
    """Judges live turns at its own pace."""

    def __init__(
        self,
        judge: Judge | None,
        store: Store,
        config: JudgeConfig,
        on_verdict: Callable[[Verdict], None],
    ) -> None:
        """Without a judge nothing waits. `on_verdict` gets stored verdicts and must not block."""
        self._verdict_maker = None if judge is None else VerdictMaker(judge, config)
        self._store = store
        self._concurrency = config.concurrency
        self._max_waiting = config.max_waiting
        self._on_verdict = on_verdict
        self._waiting: asyncio.Queue[tuple[int, Turn | None]] = asyncio.Queue()
        self._queued: set[int] = set()
        self._more = asyncio.Event()
        self._more.set()
        self._freed = asyncio.Event()
        self._lost: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """Turns that wait or are being judged; those that wait in the store are not counted."""
        return len(self._queued)

    @property
    def counters(self) -> Counter[str]:
        """Counts since the start: verdicts by name, and turns that were not judged after all."""
        return (
            self._lost if self._verdict_maker is None else self._verdict_maker.counters + self._lost
        )

    def add(self, turn: Turn) -> None:
        """A turn's next state is on disk. Neither blocks nor raises."""
        if self._verdict_maker is None or turn.id is None or turn.id in self._queued:
            return
        if len(self._queued) >= self._max_waiting:
            self._more.set()
            return
        self._put(turn.id, _brief(turn))

    async def run(self) -> None:
        """Judge, until cancelled; first what an earlier process left."""
        if self._verdict_maker is None:
            return
        async with asyncio.TaskGroup() as running:
            running.create_task(self._feed())
            for _ in range(self._concurrency):
                running.create_task(self._work(self._verdict_maker))

    def _put(self, turn_id: int, turn: Turn | None) -> None:
        self._queued.add(turn_id)
        self._waiting.put_nowait((turn_id, turn))

    async def _feed(self) -> None:
        """Take turns from the store while there may be some and there is room."""
        while True:
            await self._more.wait()
            while len(self._queued) > self._max_waiting // 2:
                self._freed.clear()
                await self._freed.wait()
            self._more.clear()
            try:
                unjudged = await self._store.unjudged(2 * self._max_waiting)
            except StoreError as error:
                _log.warning("turns wait in the store for their verdicts: %s", error)
                self._ask_later()
                continue
            for turn_id in unjudged:
                if len(self._queued) >= self._max_waiting:
                    self._more.set()
                    break
                if turn_id not in self._queued:
                    self._put(turn_id, None)

    async def _work(self, verdict_maker: VerdictMaker) -> None:
        while True:
            turn_id, turn = await self._waiting.get()
            try:
                await self._judge(verdict_maker, turn_id, turn)
            except StoreError as error:
                self._lost["not recorded"] += 1
                _log.warning("turn %d waits in the store for its verdict: %s", turn_id, error)
                self._ask_later()
            finally:
                self._queued.discard(turn_id)
                self._freed.set()

    def _ask_later(self) -> None:
        """There may be room on the disk then."""
        asyncio.get_running_loop().call_later(_RETRY_S, self._more.set)

    async def _judge(self, verdict_maker: VerdictMaker, turn_id: int, turn: Turn | None) -> None:
        if turn is None:
            turn = await self._store.turn(turn_id)
            if turn is not None and turn_id in await self._store.verdicts_of(turn.session_id):
                return  # judged while it was read
        state = None if turn is None else await self._store.next_state_of(turn_id)
        if turn is None or state is None:
            self._lost["deleted"] += 1
            return
        verdict = await verdict_maker.verdict(turn, state)
        try:
            stored = replace(verdict, id=await self._store.add_verdict(verdict))
        except StoreError:
            if await self._store.turn(turn_id) is not None:
                raise
            self._lost["deleted"] += 1
            return
        self._on_verdict(stored)


def _brief(turn: Turn) -> Turn:
    """The part of a turn that a judge sees."""
    user_messages = [message for message in turn.messages if message.get("role") == "user"]
    return replace(
        turn,
        prompt_ids_T=[],
        sampled_ids_T=[],
        logprobs_T=[],
        versions_T=[],
        messages=user_messages[-_USER_MESSAGES:],
    )
