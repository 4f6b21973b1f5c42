"""The pieces in which an engine under load sends a reply: tokens merged, their text early or late.

One output of vLLM's may hold several tokens, and one delta several kinds of content. A parser holds
text back, so that a piece may have ids without text and, later, text of more ids than its own. The
end comes with the last text or after it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from clawrl_gym.inference.generation import Delta, ToolCallDelta

_SIZES = (0, 1, 1, 1, 2, 2, 3, 5, 8, 40)
_HELD_BACK = 0.2
"""Share of the pieces whose text comes with a later one."""


@dataclass(frozen=True, slots=True)
class Split:
    """Where a piece begins and ends in the ids and in the deltas of its reply."""

    ids: slice
    deltas: slice


def splits(
    first: int, count: int, draw: random.Random, border: int | None = None
) -> Iterator[Split]:
    """Pieces of the ids from `first` to before `count`. At `border` one ends, with all its text:
    there a policy may die."""
    at, told = first, first
    while at < count:
        end = min(at + draw.choice(_SIZES), count)
        if border is not None and at < border <= end:
            end = border
        is_held = end != border and draw.random() < _HELD_BACK
        text_end = told if is_held else end
        yield Split(slice(at, end), slice(told, text_end))
        at, told = end, text_end
    if told < count or first == count or draw.random() < 0.5:
        yield Split(slice(count, count), slice(told, count))


def one_by_one(first: int, count: int) -> Iterator[Split]:
    """A piece an id, with its text."""
    for at in range(first, count):
        yield Split(slice(at, at + 1), slice(at, at + 1))
    if first == count:
        yield Split(slice(count, count), slice(count, count))


def joined(deltas: Iterable[Delta]) -> Delta:
    """Deltas as one, with one part for each call."""
    whole: Delta = {}
    calls: dict[int, ToolCallDelta] = {}
    for delta in deltas:
        if delta.get("content"):
            whole["content"] = whole.get("content", "") + delta["content"]
        if delta.get("reasoning_content"):
            thoughts = whole.get("reasoning_content", "")
            whole["reasoning_content"] = thoughts + delta["reasoning_content"]
        for part in delta.get("tool_calls", ()):
            before = calls.get(part["index"])
            calls[part["index"]] = part if before is None else _with_more(before, part)
    if calls:
        whole["tool_calls"] = [*calls.values()]
    return whole


def with_calls_last(deltas_T: Sequence[Delta]) -> list[Delta]:
    """The same reply from a parser that tells calls when all of them can be read."""
    calls: list[Delta] = [{"tool_calls": d["tool_calls"]} for d in deltas_T if "tool_calls" in d]
    said: list[Delta] = [{} if "tool_calls" in delta else delta for delta in deltas_T]
    return [*said[:-1], joined([said[-1], *calls])]


def _with_more(before: ToolCallDelta, part: ToolCallDelta) -> ToolCallDelta:
    arguments = f"{before['function']['arguments']}{part['function']['arguments']}"
    return {**before, "function": {**before["function"], "arguments": arguments}}
