"""POST /v1/feedback: what a person thinks of a reply, by thumb, score or words.

It is a verdict like the judge's and wins over it. It is on disk before it is acknowledged.

A turn is trained on by feedback once: a later opinion takes the place of one that no batch has
taken yet; after that it is stored and acknowledged with `"counts": false`, and trains nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, TypedDict

from aiohttp import web
from pydantic import Field, model_validator

from clawrl_gym.core.ownership import OWNER, name_of, user_of
from clawrl_gym.core.types import Turn, Verdict, VerdictDetail, VerdictKind
from clawrl_gym.gateway.admission.admission import Admission
from clawrl_gym.gateway.admission.allowances import Allowances
from clawrl_gym.gateway.admission.callers import caller_of, named_session
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import Fields, parse_as
from clawrl_gym.store import Store

_LONGEST_TEXT = 100_000
_LARGEST_ID = 2**63 - 1


class FeedbackRequest(Fields):
    """One opinion on one turn; without a turn, on the last main turn of a session."""

    session_id: str | None = None
    turn_id: int | None = Field(None, ge=1, le=_LARGEST_ID)
    thumb: Literal["up", "down"] | None = None
    score: float | None = Field(None, ge=-1, le=1)
    text: str | None = Field(None, min_length=1, max_length=_LONGEST_TEXT)
    """The right reply; without thumb or score it says that the reply was wrong."""

    @model_validator(mode="after")
    def _one_opinion(self) -> FeedbackRequest:
        if self.thumb is not None and self.score is not None:
            raise ValueError("expected a thumb or a score, not both")
        if self.thumb is None and self.score is None and self.text is None:
            raise ValueError("expected thumb ('up' or 'down'), score (-1 to 1) or text")
        return self

    def reward(self) -> float:
        """The reward, in [-1, 1]."""
        if self.score is not None:
            return self.score
        return 1.0 if self.thumb == "up" else -1.0

    def detail(self) -> VerdictDetail:
        detail: VerdictDetail = {}
        if self.thumb is not None:
            detail["thumb"] = self.thumb
        if self.score is not None:
            detail["score"] = self.score
        if self.text is not None:
            detail["text"] = self.text
        return detail


class Feedback:
    """Records opinions and hands them on."""

    def __init__(
        self,
        admission: Admission,
        store: Store,
        on_verdict: Callable[[Verdict], None],
        allowances: Allowances,
    ) -> None:
        self._admission = admission
        self._allowances = allowances
        self._store = store
        self._on_verdict = on_verdict

    async def post(self, request: web.Request) -> web.Response:
        """POST /v1/feedback, also below a session's own base URL."""
        caller = caller_of(request)
        self._allowances.check(caller, "feedback_per_minute", "feedback_per_day")
        feedback = parse_as(FeedbackRequest, await self._admission.json_of(request))
        name = request.match_info.get("id") or request.headers.get("X-Session-Id")
        name = name or feedback.session_id
        session_id = None if name is None else named_session(request, name)
        turn = await self._turn(feedback, session_id, caller)
        reward = feedback.reward()
        assert turn.id is not None
        verdict = Verdict(
            turn_id=turn.id,
            kind="feedback",
            value=1 if reward > 0 else -1 if reward < 0 else 0,
            reward=reward,
            detail=feedback.detail(),
            created_s=time.time(),
        )
        verdict = replace(verdict, id=await self._store.add_verdict(verdict))
        counts = not await self._store.is_taught_by_feedback(turn.id, waiting=False)
        self._on_verdict(verdict)
        answer = {"turn_id": turn.id, "verdict": verdict_json(verdict), "counts": counts}
        return web.json_response(answer)

    async def _turn(self, feedback: FeedbackRequest, session_id: str | None, caller: str) -> Turn:
        """The turn that is meant. Raises Refusal when the caller has none that could be trained."""
        turn_id = feedback.turn_id
        if turn_id is None:
            if session_id is None:
                raise Refusal(
                    400, "got neither turn_id nor session_id, expected one", param="turn_id"
                )
            turn_id = await self._store.last_main_turn(session_id)
        turn = None if turn_id is None else await self._store.turn(turn_id)
        if turn is not None and caller not in (OWNER, user_of(turn.session_id)):
            turn = None
        if turn is None or (session_id is not None and turn.session_id != session_id):
            where = "" if session_id is None else f" in session {name_of(session_id)!r}"
            turn_name = "main turn" if turn_id is None else f"turn {turn_id}"
            raise Refusal(404, f"there is no {turn_name}{where}", "turn_not_found")
        session = await self._store.session(turn.session_id)
        source: str | None = None if session is None else session.source
        if session is not None and session.split != "train":
            source = "measured"
        if turn.kind != "main" or source != "live":
            raise Refusal(
                409,
                f"turn {turn.id} is a {turn.kind} turn of a {source} session, "
                "expected a main turn of a live one: others are not trained by feedback",
                "turn_not_trained",
            )
        return turn


class VerdictJson(TypedDict):
    """A verdict as clients see it."""

    id: int | None
    kind: VerdictKind
    value: int | None
    reward: float | None
    weight: float
    detail: VerdictDetail


def verdict_json(verdict: Verdict) -> VerdictJson:
    return {
        "id": verdict.id,
        "kind": verdict.kind,
        "value": verdict.value,
        "reward": verdict.reward,
        "weight": verdict.weight,
        "detail": verdict.detail,
    }
