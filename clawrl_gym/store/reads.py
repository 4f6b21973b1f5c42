"""The store's reads, off the event loop. What each gives is said at `StoreReader`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from clawrl_gym.core.types import Message, Sample, Turn, Verdict
from clawrl_gym.store.reader import StoreReader
from clawrl_gym.store.rows import (
    OpenSession,
    SessionRow,
    SessionSummary,
    StoredGroup,
    TurnMark,
    UpdateRow,
)

T = TypeVar("T")


class StoreReads(ABC):
    """Every read of `StoreReader`, awaited."""

    @abstractmethod
    async def _read(self, read: Callable[[StoreReader], T]) -> T: ...

    async def session(self, session_id: str) -> SessionRow | None:
        return await self._read(lambda reader: reader.session(session_id))

    async def sessions(self) -> list[SessionRow]:
        return await self._read(StoreReader.sessions)

    async def session_summaries(
        self, limit: int = 100, open_only: bool = False
    ) -> list[SessionSummary]:
        return await self._read(lambda reader: reader.session_summaries(limit, open_only))

    async def open_live_sessions(self) -> list[OpenSession]:
        return await self._read(StoreReader.open_live_sessions)

    async def expired_sessions(self, ended_before_s: float) -> list[str]:
        return await self._read(lambda reader: reader.expired_sessions(ended_before_s))

    async def turn(self, turn_id: int) -> Turn | None:
        return await self._read(lambda reader: reader.turn(turn_id))

    async def turns_of(self, session_id: str) -> list[Turn]:
        return await self._read(lambda reader: reader.turns_of(session_id))

    async def page_of_turns(self, session_id: str, first: int, count: int) -> list[Turn]:
        return await self._read(lambda reader: reader.page_of_turns(session_id, first, count))

    async def last_turns(self, session_id: str, count: int) -> list[Turn]:
        return await self._read(lambda reader: reader.last_turns(session_id, count))

    async def marks_of(self, session_id: str, count: int) -> list[TurnMark]:
        return await self._read(lambda reader: reader.marks_of(session_id, count))

    async def open_marks(self, limit: int) -> list[TurnMark]:
        return await self._read(lambda reader: reader.open_marks(limit))

    async def last_main_turn(self, session_id: str) -> int | None:
        return await self._read(lambda reader: reader.last_main_turn(session_id))

    async def unanswered_turns(self, session_id: str) -> set[int]:
        return await self._read(lambda reader: reader.unanswered_turns(session_id))

    async def next_state_of(self, turn_id: int) -> list[Message] | None:
        return await self._read(lambda reader: reader.next_state_of(turn_id))

    async def next_states_of(self, session_id: str) -> dict[int, list[Message]]:
        return await self._read(lambda reader: reader.next_states_of(session_id))

    async def verdicts_of(self, session_id: str) -> dict[int, list[Verdict]]:
        return await self._read(lambda reader: reader.verdicts_of(session_id))

    async def unjudged(self, limit: int, after_id: int = 0) -> list[int]:
        return await self._read(lambda reader: reader.unjudged(limit, after_id))

    async def judged_without_sample(self) -> list[Verdict]:
        return await self._read(StoreReader.judged_without_sample)

    async def live_rewards(self, limit: int = 1000) -> list[tuple[str, float]]:
        return await self._read(lambda reader: reader.live_rewards(limit))

    async def ended_without_yield(self) -> list[str]:
        return await self._read(StoreReader.ended_without_yield)

    async def untrained_samples(self) -> list[Sample]:
        return await self._read(StoreReader.untrained_samples)

    async def untrained_groups(self) -> list[StoredGroup]:
        return await self._read(StoreReader.untrained_groups)

    async def group_numbers(self) -> set[int]:
        return await self._read(StoreReader.group_numbers)

    async def samples_of_session(self, session_id: str) -> list[Sample]:
        return await self._read(lambda reader: reader.samples_of_session(session_id))

    async def samples_of_update(self, version: int) -> list[Sample]:
        return await self._read(lambda reader: reader.samples_of_update(version))

    async def updates(self) -> list[UpdateRow]:
        return await self._read(StoreReader.updates)
