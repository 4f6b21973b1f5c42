"""What a turn adds to the turn before it, so that a long conversation stays cheap.

Clients send the whole conversation each time, with changes: a block that is there for one request
only, a system message whose tail carries the time. Ids are a beginning of the base, then own ids
with runs of the base woven in. Messages are a beginning of the base's, then a list in which an
object is a message and an array stands for what the base has: `[start, stop]` are messages of it;
`[at, head, tail, text]` is its message `at` with `text` between the first `head` and the last
`tail` characters of its content. The base's messages count its reply as their last one.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from clawrl_gym.core.types import Message

Copy = tuple[int, int, int]
"""Before how many own ids it stands; start in the base; length."""
_PROBE = 32
"""Ids by which a run of the base is found; shorter runs are not worth it."""
_MAX_PROBES = 64
_MIN_EDITED = 256
"""Characters of a content below which a change is stored as a whole message."""


def shared_prefix(old: Sequence[Any], new: Sequence[Any]) -> int:
    """How many leading items are equal."""
    low, high = 0, min(len(old), len(new))
    if old[:high] == new[:high]:
        return high
    while low < high:  # slices are compared in C: far faster than item by item
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def shared_suffix(old: Sequence[Any], new: Sequence[Any]) -> int:
    """How many trailing items are equal."""
    return shared_prefix(old[::-1], new[::-1])


def split_ids(base: array[int], new: array[int]) -> tuple[int, array[int], list[Copy]]:
    """`new` as a length of the base's beginning, own ids, and runs of the base among them."""
    prefix = shared_prefix(base, new)
    own, copies, told = array("i"), [], prefix
    for at, start, count in _runs(base, new, prefix):
        own += new[told:at]
        copies.append((len(own), start, count))
        told = at + count
    return prefix, own + new[told:], copies


def weave_ids(ids: list[int], prefix: int, own: list[int], copies: Sequence[Sequence[int]]) -> None:
    """The inverse of `split_ids`: turn the base's ids, in place, into those told against it."""
    if not copies:
        ids[prefix:] = own
        return
    woven, told = [], 0
    for at, start, count in copies:
        woven += own[told:at]
        woven += ids[start : start + count]
        told = at
    ids[prefix:] = woven + own[told:]


def _runs(base: array[int], new: array[int], begin: int) -> Iterator[tuple[int, int, int]]:
    """Runs that both have from `begin` on, in order: place in `new`, place in `base`, length."""
    step = max(_PROBE, (len(base) - begin) // _MAX_PROBES)
    told = new.tobytes()
    at = after_base = after_new = begin
    while at + _PROBE <= len(base) and after_new + _PROBE <= len(new):
        found = _find(told, base[at : at + _PROBE], after_new)
        if found is None:
            at += step
            continue
        back = shared_suffix(base[after_base:at], new[after_new:found])
        count = shared_prefix(base[at:], new[found:])
        yield found - back, at - back, back + count
        at = after_base = at + count
        after_new = found + count


def _find(told: bytes, probe: array[int], begin: int) -> int | None:
    size, needle = probe.itemsize, probe.tobytes()
    found = told.find(needle, begin * size)
    while found % size and found > 0:
        found = told.find(needle, found + 1)
    return None if found < 0 else found // size


def split_messages(base: list[str], new: list[str]) -> tuple[int, str]:
    """`new` as a count of the base's first messages and the JSON list of what follows them.

    All messages are given as JSON texts, which are equal only when the messages are.
    """
    at = prefix = shared_prefix(base, new)
    places = {text: place for place, text in enumerate(base)}
    items: list[str] = []
    told = prefix
    while told < len(new):
        text = new[told]
        found = at if at < len(base) and base[at] == text else places.get(text)
        if found is not None:
            count = shared_prefix(base[found:], new[told:])
            items.append(f"[{found}, {found + count}]")
            at, told = found + count, told + count
            continue
        edited = _edit(base[at], text, at) if at < len(base) else None
        items.append(edited or text)
        at, told = at + (edited is not None), told + 1
    return prefix, f"[{', '.join(items)}]"


def weave_messages(messages: list[Message], prefix: int, items: list[Any]) -> None:
    """The inverse of `split_messages`: turn the base's messages, in place, into the next ones."""
    woven: list[Message] = []
    for item in items:
        match item:
            case [start, stop]:
                woven += messages[start:stop]
            case [at, head, tail, text]:
                content = messages[at]["content"] or ""
                kept = content[:head] + text + content[len(content) - tail :]
                edited: Any = {**messages[at], "content": kept}
                woven.append(edited)
            case _:
                woven.append(item)
    messages[prefix:] = woven


def _edit(base_text: str, text: str, at: int) -> str | None:
    """The message as a change in the content of the base's; None where that saves little."""
    if min(len(base_text), len(text)) < _MIN_EDITED:
        return None
    base, message = json.loads(base_text), json.loads(text)
    old, new = base.get("content"), message.get("content")
    if not isinstance(old, str) or not isinstance(new, str) or _rest(base) != _rest(message):
        return None
    head = shared_prefix(old, new)
    tail = shared_suffix(old[head:], new[head:])
    if 2 * (head + tail) < len(new):
        return None
    return json.dumps([at, head, tail, new[head : len(new) - tail]])


def _rest(message: dict[str, Any]) -> str:
    """All but the content, in the message's own order."""
    return json.dumps(message | {"content": None})
