"""Turns of one episode -> sequences: turns whose ids extend each other become one segment.

Invariant: the ids that the policy sampled are the ids that are trained on; nothing is tokenised
here. Where a prompt does not extend what came before, a new segment begins (a fork) and the reason
is counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from clawrl_gym.types import Message, Turn

ForkReason = Literal["template", "retoken", "edited"]
Decode = Callable[[list[int]], str]


@dataclass(frozen=True, slots=True)
class Segment:
    """One sequence of ids with the streams that vLLM reported, all of length T."""

    ids_T: list[int]
    mask_T: list[bool]
    """True where the policy sampled the token and its log-prob is known."""
    logprobs_T: list[float]
    """0.0 where the mask is False."""
    versions_T: list[int]
    """-1 where the mask is False."""
    turn_indices: list[int]
    """`Turn.index` of the turns inside, in order."""


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The segments of one episode and how they came about."""

    sequences: list[Segment]
    merged: int
    """Turns that extended the segment before them."""
    forks: Counter[ForkReason]
    """Why turns did not: `retoken` the same reply in other ids, `template` the same conversation
    rendered otherwise, `edited` another conversation."""


def merge_turns(turns: Sequence[Turn], decode: Decode | None = None) -> MergeResult:
    """Merge the main turns, in order; side turns are left out.

    `decode` (ids -> text) makes the fork reasons exact; without it they are told by where the ids
    part and by the messages.
    """
    segments: list[_Open] = []
    merged = 0
    forks: Counter[ForkReason] = Counter()
    for turn in turns:
        if turn.kind != "main":
            continue
        if segments and segments[-1].is_extended_by(turn):
            merged += 1
        else:
            if segments:
                forks[_fork_reason(segments[-1], turn, decode)] += 1
            segments.append(_Open(turn))
        segments[-1].append(turn)
    return MergeResult([segment.close() for segment in segments], merged, forks)


class _Open:
    """A segment that may still grow."""

    def __init__(self, first: Turn) -> None:
        self.ids_T: list[int] = []
        self.sampled_T: list[bool] = []
        self.logprobs_T: list[float | None] = []
        self.versions_T: list[int] = []
        self.turn_indices: list[int] = []
        self.last = first

    def is_extended_by(self, turn: Turn) -> bool:
        return turn.prompt_ids_T[: len(self.ids_T)] == self.ids_T

    def append(self, turn: Turn) -> None:
        given = turn.prompt_ids_T[len(self.ids_T) :]
        self.ids_T += given + turn.sampled_ids_T
        self.sampled_T += [False] * len(given) + [True] * len(turn.sampled_ids_T)
        self.logprobs_T += [None] * len(given) + turn.logprobs_T
        self.versions_T += [-1] * len(given) + turn.versions_T
        lengths = [len(s) for s in (self.ids_T, self.logprobs_T, self.versions_T)]
        if len(set(lengths)) != 1:
            raise ValueError(
                f"turn {turn.index} of session {turn.session_id!r}: got {lengths} sampled ids, "
                "log-probs and versions so far, expected equal numbers"
            )
        self.turn_indices.append(turn.index)
        self.last = turn

    def close(self) -> Segment:
        logprobs_T = [math.nan if p is None else p for p in self.logprobs_T]
        mask_T = [math.isfinite(p) for p in logprobs_T]
        return Segment(
            self.ids_T,
            mask_T,
            [p if known else 0.0 for p, known in zip(logprobs_T, mask_T, strict=True)],
            [v if known else -1 for v, known in zip(self.versions_T, mask_T, strict=True)],
            self.turn_indices,
        )


def _fork_reason(segment: _Open, turn: Turn, decode: Decode | None) -> ForkReason:
    """Conversation first, then text, then the place of the first different id."""
    prompt_T = turn.prompt_ids_T
    if not _continues(segment.last, turn.messages):
        return "edited"
    if decode is not None:
        return "retoken" if decode(prompt_T).startswith(decode(segment.ids_T)) else "template"
    parted = next(
        (i for i, (a, b) in enumerate(zip(segment.ids_T, prompt_T, strict=False)) if a != b),
        len(prompt_T),
    )
    if parted == len(prompt_T):  # the new prompt is only a beginning of what was there
        return "edited"
    return "retoken" if segment.sampled_T[parted] else "template"


def _continues(previous: Turn, messages: list[Message]) -> bool:
    """Do the messages go on from the previous request and its reply?"""
    old = previous.messages
    if messages[: len(old)] != old:
        return False
    reply = messages[len(old)] if len(messages) > len(old) else None
    if reply is None or reply.get("role") != "assistant":
        return True
    return (reply.get("content") or "").strip() == (previous.reply.get("content") or "").strip()
