"""Choice of the trained turn of an ended session without a verdict's sample, or the reason for
none.

Pure: it decides, `LiveCollector` acts. The formula is in `live_collector.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass

from clawrl_gym.config import LiveConfig
from clawrl_gym.core.types import INTERRUPTED, Turn, Verdict
from clawrl_gym.dialogue.merging import Segment, merge_turns

_NEVER = (INTERRUPTED, "abort", "error")
"""Finish reasons of replies that are never trained on."""


@dataclass(frozen=True, slots=True)
class SessionEvidence:
    """An ended session: its turns in order and what came back."""

    turns: list[Turn]
    unanswered: set[int]
    """Ids of turns without a next state."""
    verdicts: Mapping[int, Verdict]
    """The effective verdict of each turn that has one, by id."""
    hinted: Set[int] = frozenset()
    """Ids of turns with hints that the algorithm follows."""
    reward_weight: float = 1.0
    """Reward weight of the algorithm; 0: it follows hints alone."""

    @property
    def unjudged(self) -> bool:
        """Whether a turn with a next state has no verdict yet."""
        return any(
            turn.id not in self.unanswered and turn.id not in self.verdicts for turn in self._main
        )

    @property
    def _main(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.kind == "main"]

    def weakest(self, config: LiveConfig, version: int) -> Turn | str | None:
        """The turn that the guarantee trains, else why there is none.

        None: a clear verdict or a hint is there, whose own sample is on the way.
        """
        main = self._main
        if not main:
            return "only side turns" if self.turns else "no turn"
        signalled = [t for t in main if t.id not in self.unanswered or t.id in self.verdicts]
        if not signalled:
            return "no next state"
        obstacles = [untrainable_because(turn, config, version) for turn in signalled]
        usable = [turn for turn, why in zip(signalled, obstacles, strict=True) if why is None]
        if not usable:
            return Counter(why for why in obstacles if why is not None).most_common(1)[0][0]
        if any(turn.id in self.hinted for turn in usable):
            return None
        if not self.reward_weight:
            return "no hint"
        if any(self._reward(turn) for turn in usable):
            return None
        if not config.weak_reward:
            return "no clear verdict"
        doubts = {doubt_about(self.verdicts.get(turn.id or 0)) for turn in signalled}
        return next((why for why in _DOUBTS if why in doubts), usable[-1])

    def _reward(self, turn: Turn) -> float | None:
        verdict = self.verdicts.get(turn.id or 0)
        return None if verdict is None else verdict.reward


def doubt_about(verdict: Verdict | None) -> str | None:
    """Why a turn's verdict forbids to reinforce its session weakly; None when it is neutral: what
    came back was understood, and nothing in it speaks against the reply."""
    if verdict is None:
        return "not judged"
    detail = verdict.detail
    if verdict.reward is None:
        return "language not understood" if detail.get("rule") == "language" else "not understood"
    if verdict.reward < 0:
        return "complaint"
    if detail.get("lasting"):
        return "wish for the future"
    against = -1 in (detail.get("votes") or ()) or detail.get("rule") == -1
    return "votes differ" if against else None


_DOUBTS = (
    "complaint",
    "language not understood",
    "not understood",
    "not judged",
    "votes differ",
    "wish for the future",
)
"""The first one that holds is why a session yields nothing."""


def unclear_because(verdict: Verdict, reward_weight: float) -> str | None:
    """Why a verdict's reward teaches nothing; None when it does."""
    if not verdict.reward:
        return "abstained" if verdict.reward is None else "neutral"
    if not math.isfinite(verdict.reward):
        return "not a number"
    return None if reward_weight else "no hint"


def untrainable_because(turn: Turn, config: LiveConfig, version: int) -> str | None:
    """Why a turn is not trained on whatever its verdict; None when it can be."""
    if turn.kind != "main":
        return "side turn"
    if turn.finish_reason in _NEVER:
        return "interrupted"
    if turn.untrainable:
        return f"sampled with {turn.untrainable}"
    if turn.finish_reason == "length" and not config.train_truncated:
        return "truncated"
    if not turn.prompt_ids_T:
        return "no prompt"
    if len({len(turn.sampled_ids_T), len(turn.logprobs_T), len(turn.versions_T)}) != 1:
        return "log-probs do not fit"
    versions = [
        sampled_by
        for sampled_by, logprob in zip(turn.versions_T, turn.logprobs_T, strict=True)
        if logprob is not None and math.isfinite(logprob)
    ]
    if not versions:
        return "no known log-prob"
    return "stale" if version - min(versions) > config.max_staleness else None


def segment_of(turn: Turn) -> Segment:
    """The segment of a turn that `untrainable_because` lets pass: that turn alone."""
    return merge_turns([turn]).sequences[0]
