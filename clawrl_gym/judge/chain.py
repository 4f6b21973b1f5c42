"""Several judges one after another: the first clear verdict is the verdict."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from clawrl_gym.config import JudgeConfig
from clawrl_gym.core.types import Verdict, VerdictDetail, VerdictKind
from clawrl_gym.judge.interface import Case, Judge
from clawrl_gym.judge.parts import JudgeParts

_SHARE_OF_TIME = 0.95
"""Share of the deadline, so that the first verdicts are not lost with a late one."""
_OF_MODELS = ("votes", "retried", "unread", "refused", "hints_asked")
"""Details of a model's verdict that are kept even when another judge's is chosen."""
_MAX_REASON = 300


class ChainJudge:
    """Asks the next judge when one fails, abstains or is neutral."""

    def __init__(self, judges: Sequence[Judge], timeout_s: float) -> None:
        """`timeout_s`: of all together; each gets its share of what is left."""
        if not judges:
            raise ValueError("got no judges, expected at least one")
        self._judges = tuple(judges)
        self._timeout_s = timeout_s

    @classmethod
    def from_config(cls, config: JudgeConfig, parts: JudgeParts) -> ChainJudge:
        share = config.model_copy(update={"timeout_s": config.timeout_s / len(config.chain)})
        certain = share.model_copy(update={"resembling_weight": 0.0})  # the next one knows better
        judges = [parts.judge(name, certain) for name in config.chain[:-1]]
        return cls([*judges, parts.judge(config.chain[-1], share)], config.timeout_s)

    @property
    def kind(self) -> VerdictKind:
        """Kind of an abstention of all; a verdict has the kind of the judge who gave it."""
        return self._judges[-1].kind

    async def judge(self, case: Case) -> Verdict:
        """Without a clear verdict a neutral one goes before abstentions. Hints of all are kept."""
        ends_s = time.monotonic() + self._timeout_s * _SHARE_OF_TIME
        verdicts: list[Verdict] = []
        for at, judge in enumerate(self._judges):
            left_s = max(0.0, ends_s - time.monotonic())
            verdicts.append(await _verdict_of(judge, case, left_s / (len(self._judges) - at)))
            if verdicts[-1].value in (1, -1):
                break
        best = min(verdicts, key=_rank)
        hints = dict.fromkeys(hint for verdict in verdicts for hint in verdict.hints)
        fields = {
            k: v for verdict in verdicts for k, v in verdict.detail.items() if k in _OF_MODELS
        }
        detail = cast(VerdictDetail, fields | best.detail)
        if hints:
            detail["hints"] = list(hints)
        return replace(best, detail=detail)


def _rank(verdict: Verdict) -> int:
    if verdict.value is None:
        return 2
    return 1 if verdict.value == 0 else 0


async def _verdict_of(judge: Judge, case: Case, timeout_s: float) -> Verdict:
    try:
        async with asyncio.timeout(timeout_s):
            return await judge.judge(case)
    except Exception as error:  # noqa: BLE001 (the next judge is asked instead)
        reason = f"{type(error).__name__}: {error}"[:_MAX_REASON]
        return Verdict(case.turn_id, judge.kind, None, None, {"reason": reason}, time.time())
