"""Sessions without HTTP: what the gateway does around them, with replies that the test gives."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import asynccontextmanager
from typing import Any

from clawrl_gym.config import LiveConfig
from clawrl_gym.core.types import Message, Turn
from clawrl_gym.gateway.hooks import Hooks
from clawrl_gym.gateway.sessions.session import TurnRequest
from clawrl_gym.gateway.sessions.sessions import Sessions
from clawrl_gym.gateway.wire.identify import Origin
from clawrl_gym.gateway.wire.requests import Labels
from clawrl_gym.store import Store
from tests.support.recordings import shipped


class Talk:
    """A gateway's sessions over a store; remembers what the hooks were told."""

    def __init__(self, store: Store, config: LiveConfig | None = None, max_open: int = 100) -> None:
        self.store = store
        self.judged: list[Turn] = []
        self.ended: list[str] = []
        self.deleted: list[str] = []
        self.gone: list[str] = []
        hooks = Hooks(
            on_next_state=self.judged.append,
            on_end=self.ended.append,
            on_delete=self.deleted.append,
            on_deleted=self.gone.append,
        )
        self.sessions = Sessions(store, config or shipped(), max_open, hooks)

    @asynccontextmanager
    async def ask(
        self,
        messages: list[Message],
        path: str | None = "s",
        headers: Mapping[str, str] | None = None,
        labels: Labels | None = None,
        caller: str = "",
        **body: Any,
    ) -> Any:
        """A request up to where its reply is made."""
        origin = Origin(caller, path, headers or {})
        identity = self.sessions.identify(messages, body, origin)
        async with self.sessions.request(identity, labels or Labels(), messages) as asked:
            yield asked

    async def say(
        self,
        messages: list[Message],
        reply: str | Message = "ok",
        path: str | None = "s",
        *,
        finish: str = "stop",
        **more: Any,
    ) -> Turn:
        """A request, and its turn with this reply unless it is a retry."""
        async with self.ask(messages, path, **more) as asked:
            stored = await self.sessions.recorder.stored_reply(asked)
            if stored is not None:
                return stored
            await self.sessions.recorder.record_next_states(asked)
            turn = await self.record(asked, reply, finish)
            self.sessions.recorder.set_delivered(asked, turn)
            return turn

    async def record(self, asked: TurnRequest, reply: str | Message, finish: str = "stop") -> Turn:
        said: Message = {"role": "assistant", "content": reply} if isinstance(reply, str) else reply
        turn = Turn(
            session_id=asked.session.id,
            index=0,
            kind=asked.identity.kind,
            rule=asked.identity.rule,
            prompt_ids_T=[1],
            sampled_ids_T=[2],
            logprobs_T=[0.0],
            versions_T=[0],
            finish_reason=finish,
            messages=asked.messages,
            reply=said,
            created_s=time.time(),
        )
        return await self.sessions.recorder.record(asked, turn, [1])

    async def states(self, session_id: str = "s") -> dict[int, list[Message]]:
        """Next states by the index of their turn."""
        turns = await self.store.turns_of(session_id)
        states = await self.store.next_states_of(session_id)
        return {turn.index: states[turn.id or 0] for turn in turns if turn.id in states}
