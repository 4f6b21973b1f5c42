"""One request's way to a turn, streamed or whole. No HTTP here, and no judgement.

A turn's life:

1.  Equal requests of a session go one after another. A retry of a turn that nothing has followed
    gets the stored reply again (`Sessions.stored_reply` tells what is a retry and what is a wish
    for another reply).
2.  The next state that the request brings is stored, so that it can be judged while the reply is
    still being made.
3.  The request waits while weights are swapped or the policy is down. It is rendered, joined to the
    turn before it, and sampled. How long a policy may be silent is limited, not how long it may
    speak.
4.  Pieces go out as they are sampled. When the policy dies, another one, or the same once it is
    back, goes on after the last piece. When the client leaves, or the policy is silent for too
    long, generation is cancelled and what was sampled is stored as INTERRUPTED, with version -1
    where the policy had not told it. It is never replayed.
5.  With the last piece the turn is stored. Only then may the caller tell the end of the reply: a
    client that saw the end can rely on its turn being on disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import cast

from clawrl_gym.config import SamplingConfig
from clawrl_gym.core.errors import ContextError, PolicyError, RequestError, StoreError
from clawrl_gym.core.types import ChatBody, Message, TemplateOptions, Turn
from clawrl_gym.gateway.answerers import Policies, Policy, Seats
from clawrl_gym.gateway.draft import Ask, Draft, delta_of
from clawrl_gym.gateway.prometheus import GatewayStats
from clawrl_gym.gateway.session import TurnRequest
from clawrl_gym.gateway.sessions import Sessions
from clawrl_gym.gateway.wire import Refusal
from clawrl_gym.policy.client import PolicyUnavailable
from clawrl_gym.policy.generation import Delta, Generation

Send = Callable[[Delta], Awaitable[None]]
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_MOST_FAILURES = 6
"""Answers that are errors, from a policy that can be reached, before a request is given up."""
_log = logging.getLogger(__name__)


class TurnMaker:
    """Makes and records turns."""

    def __init__(
        self,
        policies: Policies,
        sessions: Sessions,
        sampling: SamplingConfig,
        timeout_s: float,
        seats: Seats | None = None,
    ) -> None:
        """`timeout_s`: how long the policy may be silent, or a reply that is not streamed take."""
        self.version = 0
        self.stats = GatewayStats()
        self.sampling = sampling
        self._policies = policies
        self._sessions = sessions
        self._seats = seats
        self._timeout_s = timeout_s
        self._unheld = asyncio.Event()
        self._unheld.set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep new requests waiting here, and off the policy; those under way go on."""
        self._unheld.clear()
        try:
            yield
        finally:
            self._unheld.set()

    async def turn(self, asked: TurnRequest, ask: Ask, send: Send | None = None) -> Turn:
        """The turn that answers a request, on disk. With `send`, its reply goes there in pieces.

        Raises Refusal when the session has ended, ContextError, and PolicyError when the policy
        gave no reply in time.
        """
        stored = await self._sessions.recorder.stored_reply(asked)
        if stored is not None:
            self.stats.replayed += 1
            if send is not None:
                await send(delta_of(stored.reply))
            return stored
        await self._sessions.recorder.record_next_states(asked)
        return await self._seated(asked, ask, send) or await self._new(asked, ask, send)

    async def _seated(self, asked: TurnRequest, ask: Ask, send: Send | None) -> Turn | None:
        """A reply that no policy sampled, as a side turn without ids; None without a seat."""
        if self._seats is None or asked.identity.kind != "main" or ask.body is None:
            return None
        session = asked.session
        seat = self._seats.wants(session.id, ask.claimable and session.next_index == 0)
        reply = seat and await seat.reply(ask.messages, ask.body.get("tools") or [])
        if not reply:
            return None
        if send is not None:
            await send(delta_of(reply))
        turn = _turn(asked, ask, Generation([], [], [], [], "stop"), reply)
        return await self._record(asked, replace(turn, kind="side", rule="seat"), [])

    async def _new(self, asked: TurnRequest, ask: Ask, send: Send | None) -> Turn:
        past = await self._sessions.recorder.previous_turn(asked) if ask.body is not None else None
        draft = Draft(ask, past)
        try:
            generation, reply = await self._reply(asked.session.id, draft, send)
        except BaseException:
            await self._keep(asked, draft)
            raise
        assert draft.prompt is not None
        self.stats.fits[draft.prompt.fit] += 1
        turn = _turn(asked, ask, generation, reply)
        return await self._record(asked, turn, draft.prompt.rendered_ids_T)

    async def _reply(
        self, session_id: str, draft: Draft, send: Send | None
    ) -> tuple[Generation, Message]:
        """Ask until a policy has answered, for as long as it may be silent."""
        last: PolicyError | None = None
        failures, pause_s = 0, _FIRST_PAUSE_S
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                while True:
                    await self._unheld.wait()
                    policy = self._policies.of(session_id)
                    try:
                        if send is None and draft.ask.body is not None and not draft.is_seen:
                            return await draft.whole(policy, self.version)
                        return await self._stream(policy, draft, send, limit)
                    except (ContextError, RequestError):
                        raise
                    except PolicyError as error:
                        last = error
                    self.stats.waited += 1
                    failures += not isinstance(last, PolicyUnavailable)
                    if not draft.can_go_on or failures == _MOST_FAILURES:
                        raise last
                    if self._has_another(session_id, policy, last):
                        continue
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        except TimeoutError:
            why = f"the last attempt said: {last}" if last else "it was still generating"
            raise PolicyError(
                f"the policy gave no reply within {self._timeout_s:g} s; {why}"
            ) from last

    async def _stream(
        self, policy: Policy, draft: Draft, send: Send | None, limit: asyncio.Timeout
    ) -> tuple[Generation, Message]:
        clock = asyncio.get_running_loop().time
        done: Generation | None = None
        try:
            async with aclosing(draft.stream(policy, self.version)) as pieces:
                async for piece in pieces:
                    if send is not None and piece.delta:
                        await send(piece.delta)
                    done = piece.done or done
                    limit.reschedule(clock() + self._timeout_s)
        except PolicyError:
            if done is None:
                raise
        if done is None:
            raise PolicyUnavailable("vLLM ended a stream without saying why")
        return done, draft.reply()

    def _has_another(self, session_id: str, policy: Policy, error: PolicyError) -> bool:
        """Leave a policy out that cannot be reached; whether one is left to go on with at once."""
        if not isinstance(error, PolicyUnavailable):
            return False
        self._policies.failed(policy)
        return self._policies.alive > 0 and self._policies.of(session_id) is not policy

    async def _keep(self, asked: TurnRequest, draft: Draft) -> None:
        """Store what was sampled of a reply that was not finished."""
        if not draft.has_begun or draft.prompt is None:
            return
        turn = _turn(asked, draft.ask, draft.interrupted(), draft.reply())
        try:
            await self._record(asked, turn, draft.prompt.rendered_ids_T)
        except Refusal:  # the session has ended, or was deleted, meanwhile
            return
        except StoreError as error:
            _log.error("an interrupted turn of %s was not stored: %s", turn.session_id, error)
            return
        self.stats.interrupted += 1

    async def _record(self, asked: TurnRequest, turn: Turn, rendered_ids_T: list[int]) -> Turn:
        """Store a turn; not left before it is stored, so that an equal request then finds it."""
        recording = asyncio.ensure_future(
            self._sessions.recorder.record(asked, turn, rendered_ids_T)
        )
        try:
            await asyncio.wait([recording])
        except asyncio.CancelledError:
            await asyncio.wait([recording])
            raise
        finally:
            if recording.done() and not recording.exception():
                self._count(recording.result())
        return recording.result()

    def _count(self, turn: Turn) -> None:
        self.stats.turns += 1
        self.stats.kinds[turn.kind] += 1
        self.stats.tokens_prompt += len(turn.prompt_ids_T)
        self.stats.tokens_sampled += len(turn.sampled_ids_T)


def _turn(asked: TurnRequest, ask: Ask, generation: Generation, reply: Message) -> Turn:
    """Numbered when it is recorded."""
    body = ask.body or ChatBody(messages=[])
    options = {name: value for name, value in body.items() if name not in ("messages", "tools")}
    return Turn(
        session_id=asked.session.id,
        index=0,
        kind=asked.identity.kind,
        prompt_ids_T=generation.prompt_ids_T,
        sampled_ids_T=generation.sampled_ids_T,
        logprobs_T=generation.logprobs_T,
        versions_T=generation.versions_T,
        finish_reason=generation.finish_reason,
        messages=ask.messages,
        reply=reply,
        created_s=time.time(),
        rule=asked.identity.rule,
        tools=body.get("tools", []),
        template=cast(TemplateOptions, options),
    )
