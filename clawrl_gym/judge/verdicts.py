"""Verdicts of a judge on stored turns: a bounded number at once, each with a deadline.

The judge's border: whatever goes wrong in it becomes an abstention that says why. An abstention is
recorded; it is never 0 and never trained.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter

from clawrl_gym.config import JudgeConfig
from clawrl_gym.core.types import INTERRUPTED, Message, Turn, Verdict
from clawrl_gym.judge.interface import JUDGED_KINDS, CaseBuilder, Judge
from clawrl_gym.judge.signals.call_rule import verdict_on_calls

_MAX_REASON = 300
"""Characters of an error that an abstention keeps."""


class VerdictMaker:
    """Has one judge judge turns."""

    def __init__(
        self,
        judge: Judge,
        config: JudgeConfig,
        observed: bool = False,
        marks_failures: bool = False,
    ) -> None:
        """`observed`: user messages are what an environment shows, not a person's words;
        `marks_failures`: a result that it does not mark as a failure is a success."""
        self._judge = judge
        self._case_builder = CaseBuilder(config.ignore, observed, marks_failures)
        self._timeout_s = config.timeout_s
        self._room = asyncio.Semaphore(config.concurrency)
        self.counters: Counter[str] = Counter()
        """Counts since the start: verdicts by value (positive, neutral, negative) and abstentions;
        `hints` (verdicts with one), `hints_asked`, `hints_refused`; `votes`, `votes_invalid`,
        `votes_retried`; `agree` and `disagree` with the rules, where both are clear."""

    async def verdict(self, turn: Turn, next_state: list[Message]) -> Verdict:
        """A verdict on a stored turn, not stored yet; raises nothing but cancellation."""
        async with self._room:
            verdict = await self._judged(turn, next_state)
        self.counters += _counted(verdict)
        return verdict

    async def _judged(self, turn: Turn, next_state: list[Message]) -> Verdict:
        if turn.finish_reason == INTERRUPTED:
            return self._abstain(turn, "the reply was interrupted")
        case = self._case_builder.of(turn, next_state)
        if not case.next_state:
            return self._abstain(turn, "the next state is empty")
        failed = verdict_on_calls(case)
        if failed is not None:
            return failed
        try:
            async with asyncio.timeout(self._timeout_s) as deadline:
                verdict = await self._judge.judge(case)
        except TimeoutError as error:
            if deadline.expired():
                return self._abstain(turn, f"no answer within {self._timeout_s:g} s")
            return self._abstain(turn, _reason_of(error))
        except Exception as error:  # noqa: BLE001 (a judge that fails abstains)
            return self._abstain(turn, _reason_of(error))
        if not isinstance(verdict, Verdict):
            kind = type(verdict).__name__
            return self._abstain(turn, f"the judge gave a {kind}, expected a Verdict")
        if verdict.turn_id != turn.id or not _is_sound(verdict):
            numbers = f"value {verdict.value!r}, reward {verdict.reward!r}"
            wrong = f"{numbers} and weight {verdict.weight!r} on {verdict.turn_id}"
            expected = f"expected -1 to 1 on {turn.id}, hints in words, a weight in (0, 1]"
            return self._abstain(turn, f"the judge gave {wrong}, {expected}")
        if verdict.kind not in JUDGED_KINDS or not _is_json(verdict.detail):
            wrong = f"the kind {verdict.kind!r} and the detail {verdict.detail!r}"
            expected = f"expected one of {', '.join(JUDGED_KINDS)}, and JSON"
            return self._abstain(turn, f"the judge gave {wrong}, {expected}"[:_MAX_REASON])
        return verdict

    def _abstain(self, turn: Turn, reason: str) -> Verdict:
        assert turn.id is not None
        return Verdict(turn.id, self._judge.kind, None, None, {"reason": reason}, time.time())


_NAMES = {1: "positive", 0: "neutral", -1: "negative", None: "abstained"}


def _counted(verdict: Verdict) -> Counter[str]:
    detail, votes = verdict.detail, _list(verdict.detail.get("votes"))
    counted = Counter(
        {
            _NAMES[verdict.value]: 1,
            "hints": int(bool(verdict.hints)),
            "hints_asked": _number(detail.get("hints_asked")),
            "hints_refused": len(_list(detail.get("refused"))),
            "votes": len(votes),
            "votes_invalid": sum(vote is None for vote in votes),
            "votes_retried": _number(detail.get("retried")),
        }
    )
    ruled = detail.get("rule")  # of rules themselves it is a name
    if ruled in (1, -1) and verdict.value in (1, -1):
        counted["agree" if ruled == verdict.value else "disagree"] = 1
    return +counted


def _number(value: object) -> int:
    """A number in a detail, which a custom judge may have written in another way."""
    return value if isinstance(value, int) else 0


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _is_json(detail: object) -> bool:
    try:
        json.dumps(detail)
    except (TypeError, ValueError):
        return False
    return True


def _is_sound(verdict: Verdict) -> bool:
    if not isinstance(verdict.detail, dict):
        return False
    if not isinstance(verdict.weight, int | float) or not 0 < verdict.weight <= 1:
        return False
    hints = verdict.detail.get("hints", [])
    if not isinstance(hints, list) or not all(isinstance(hint, str) and hint for hint in hints):
        return False
    if verdict.value is None or verdict.reward is None:
        return verdict.value is verdict.reward
    if not isinstance(verdict.reward, int | float):
        return False
    return verdict.value in (-1, 0, 1) and -1 <= verdict.reward <= 1


def _reason_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_MAX_REASON]
