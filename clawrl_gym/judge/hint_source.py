"""Hints from a source of one's own, beside any judge's verdict.

`judge.hints.source=my_pkg.module:Mine` names a class with `async def hints(case)`: what the next
state teaches about the turn, in words, the best first. What it gives is accepted or refused by the
same rules as a model's hints. It is built by `from_config(config, parts)` with a `HintConfig` and
`JudgeParts`, or called with its options.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from clawrl_gym.config import HintConfig
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Verdict, VerdictDetail, VerdictKind
from clawrl_gym.judge.hints import choose
from clawrl_gym.judge.interface import Case, Judge

_SHARE_OF_TIME = 0.9
"""Share of the judge's deadline; a later source gives no hints and costs no verdict."""
_log = logging.getLogger(__name__)


class HintSource(Protocol):
    """Teaches in words what a next state says about the turn before it."""

    async def hints(self, case: Case) -> Sequence[str]:
        """Hints for a case; empty when there is nothing to teach. May raise or be slow."""
        ...


class HintedJudge:
    """A judge whose verdicts bring the hints of a source instead of its own."""

    def __init__(
        self, judge: Judge, source: HintSource, config: HintConfig, timeout_s: float
    ) -> None:
        """`timeout_s`: the judge's deadline."""
        self._judge = judge
        self._source = source
        self._config = config
        self._timeout_s = timeout_s * _SHARE_OF_TIME

    @property
    def kind(self) -> VerdictKind:
        return self._judge.kind

    async def judge(self, case: Case) -> Verdict:
        verdict, candidates = await asyncio.gather(self._judge.judge(case), self._candidates(case))
        if not isinstance(verdict, Verdict):  # for the judge's border to tell
            return verdict
        next_state = [text_of(message) for message in case.next_state]
        hints = choose(candidates, next_state, self._config)
        added: VerdictDetail = {
            "hints": hints.accepted,
            "refused": hints.refused,
            "hints_asked": len(candidates),
        }
        return replace(verdict, detail=verdict.detail | added)

    async def _candidates(self, case: Case) -> Sequence[str]:
        try:
            async with asyncio.timeout(self._timeout_s):
                return [str(hint).strip() for hint in await self._source.hints(case)]
        except Exception as error:  # noqa: BLE001 (a source that fails must not cost the verdict)
            _log.warning("no hints on turn %d: %s: %s", case.turn_id, type(error).__name__, error)
            return []
