"""Turns of one episode -> sequences: turns whose ids extend each other become one segment.

Invariant: the ids that the policy sampled are the ids that are trained on; nothing is tokenised
here. Where a prompt does not extend what came before, a new segment begins (a fork) and the reason
is counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from clawrl_gym.core.pictures import pictures_of, text_of
from clawrl_gym.core.types import INTERRUPTED, Message, Turn
from clawrl_gym.dialogue.delta import shared_prefix

T = TypeVar("T")
ForkReason = Literal["template", "retoken", "edited", "temperature"]
Decode = Callable[[list[int]], str]


@dataclass(frozen=True, slots=True)
class Segment:
    """One sequence of ids with the streams that the engine reported, all of length T."""

    ids_T: list[int]
    mask_T: list[bool]
    """True where the policy sampled the token in a trainable turn and its log-prob is known."""
    logprobs_T: list[float]
    """Behaviour log-probs; 0.0 where the mask is False."""
    versions_T: list[int]
    """Weight version of each sampled token; -1 where the mask is False."""
    turns_T: list[int]
    """`Turn.index` of the turn that sampled each token; -1 where the mask is False."""
    turn_indices: list[int]
    """`Turn.index` of the turns inside, in order."""
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Start and length of a turn's sampled tokens, by `Turn.index`."""
    pictures: tuple[str, ...] = ()
    """Hashes of the pictures in the ids, in their order."""
    picture_counts: dict[int, int] = field(default_factory=dict)
    """Number of pictures in a turn's prompt, by `Turn.index`; left out: none."""
    temperature: float | None = None
    """Temperature of its sampled tokens; None: the run's own."""


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The segments of one episode, with counts of merges and forks."""

    sequences: list[Segment]
    merged: int
    """Turns that extended the segment before them."""
    forks: Counter[ForkReason]
    """Reasons of turns that did not: `retoken` the same reply in other ids, `template` the same
    conversation rendered otherwise, `edited` another conversation, `temperature` sampled at another
    one."""


def merge_turns(turns: Sequence[Turn], decode: Decode | None = None) -> MergeResult:
    """Merge the main turns, in order; side turns and interrupted ones are left out.

    `decode` (ids -> text) makes the fork reasons exact; without it they follow from the place where
    the ids part and from the messages.
    """
    segments: list[_GrowingSegment] = []
    merged = 0
    forks: Counter[ForkReason] = Counter()
    for turn in turns:
        if turn.kind != "main" or turn.finish_reason == INTERRUPTED:
            continue
        if segments and segments[-1].is_extended_by(turn):
            merged += 1
        else:
            if segments:
                forks[_fork_reason(segments[-1], turn, decode)] += 1
            segments.append(_GrowingSegment(turn))
        segments[-1].append(turn)
    return MergeResult([growing.segment for growing in segments], merged, forks)


class _GrowingSegment:
    """A segment whose lists grow in place, turn by turn."""

    def __init__(self, first: Turn) -> None:
        self.segment = Segment([], [], [], [], [], [])
        self.sampled_T: list[bool] = []
        """True where the policy sampled the token, also without a log-prob."""
        self.last = first
        self.has_trainable = False
        """Whether a turn inside is trained on, so that its temperature is the segment's."""

    def is_extended_by(self, turn: Turn) -> bool:
        ids_T = self.segment.ids_T
        return self.fits_temperature(turn) and turn.prompt_ids_T[: len(ids_T)] == ids_T

    def fits_temperature(self, turn: Turn) -> bool:
        """Whether one temperature fits everything that is trained on."""
        if turn.untrainable or not self.has_trainable:
            return True
        return turn.temperature == self.segment.temperature

    def append(self, turn: Turn) -> None:
        sampled = len(turn.sampled_ids_T)
        lengths = [sampled, len(turn.logprobs_T), len(turn.versions_T)]
        if len(set(lengths)) != 1:
            raise ValueError(
                f"turn {turn.index} of session {turn.session_id!r}: got {lengths} sampled ids, "
                "log-probs and versions, expected equal numbers"
            )
        segment = self.segment
        added_ids_T = turn.prompt_ids_T[len(segment.ids_T) :]
        added = len(added_ids_T)  # a prompt can be long: nothing below looks at its tokens
        logprobs_T = [math.nan if p is None else p for p in turn.logprobs_T]
        is_finite_T = [not turn.untrainable and math.isfinite(p) for p in logprobs_T]
        self.sampled_T += [False] * added + [True] * sampled
        segment.ids_T.extend(added_ids_T + turn.sampled_ids_T)
        segment.mask_T.extend([False] * added + is_finite_T)
        segment.logprobs_T.extend([0.0] * added + _where(is_finite_T, logprobs_T, 0.0))
        segment.versions_T.extend([-1] * added + _where(is_finite_T, turn.versions_T, -1))
        sampled_by_T = _where(is_finite_T, [turn.index] * sampled, -1)
        segment.turns_T.extend([-1] * added + sampled_by_T)
        segment.turn_indices.append(turn.index)
        segment.spans[turn.index] = (len(segment.ids_T) - sampled, sampled)
        pictures = pictures_of(turn.messages)
        if pictures:
            segment.picture_counts[turn.index] = len(pictures)
        temperature = segment.temperature
        if not turn.untrainable and not self.has_trainable:
            temperature, self.has_trainable = turn.temperature, True
        self.segment = replace(segment, pictures=pictures, temperature=temperature)
        self.last = turn


def _where(mask_T: list[bool], values_T: list[T], otherwise: T) -> list[T]:
    return [v if is_true else otherwise for v, is_true in zip(values_T, mask_T, strict=True)]


def _fork_reason(growing: _GrowingSegment, turn: Turn, decode: Decode | None) -> ForkReason:
    """Why a turn is a fork: by temperature and conversation, then text, then first different id."""
    if not growing.fits_temperature(turn):
        return "temperature"
    prompt_T = turn.prompt_ids_T
    if not _continues(growing.last, turn.messages):
        return "edited"
    if decode is not None:
        return (
            "retoken" if decode(prompt_T).startswith(decode(growing.segment.ids_T)) else "template"
        )
    fork = shared_prefix(growing.segment.ids_T, prompt_T)
    if fork == len(prompt_T):  # the new prompt is only a beginning of what was there
        return "edited"
    return "retoken" if growing.sampled_T[fork] else "template"


def _continues(previous: Turn, messages: list[Message]) -> bool:
    """Whether the messages continue the previous request and its reply."""
    old = previous.messages
    if messages[: len(old)] != old:
        return False
    reply = messages[len(old)] if len(messages) > len(old) else None
    if reply is None or reply.get("role") != "assistant":
        return True
    return text_of(reply).strip() == text_of(previous.reply).strip()
