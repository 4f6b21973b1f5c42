"""The difference between a turn and the one before it, so that long conversations are cheap to
store.

Clients send the whole conversation each time, with changes: a block that is there for one request
only, a system message whose tail carries the time. A turn is therefore stored as a node with a
base, the turn of its conversation that was stored before it, and holds only what it adds:

- Ids: a beginning of the base's, then own ids with runs of the base among them.
- Messages: a beginning of the base's, then a list in which an object is a message and an array
  stands for what the base has: `[start, stop]` are messages of it; `[at, head, tail, text]` is its
  message `at` with `text` between the first `head` and the last `tail` characters of its content.
  The base's messages count its reply as their last one.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from clawrl_gym.core.types import Message

_PROBE = 32
"""Ids by which a run of the base is found; shorter runs are not worth storing."""
_MAX_PROBES = 64
_MIN_EDITED = 256
"""Characters of a content below which a change is stored as a whole message."""


class IdsDelta(NamedTuple):
    """Ids as a difference from the base's."""

    shared: int
    """Number of leading ids of the base that they share."""
    own_ids: Sequence[int]
    runs: Sequence[Sequence[int]]
    """Runs of the base: the number of own ids before each, its start in the base, its length."""


class MessagesDelta(NamedTuple):
    """Messages as a difference from the base's."""

    shared: int
    """Number of leading messages of the base that they share."""
    entries: str
    """The messages after them, as a JSON list."""


@dataclass(slots=True)
class Transcript:
    """The conversation after a turn; it grows in place, so that a long one is cheap."""

    ids_T: list[int] = field(default_factory=list)
    """Ids of prompt and reply."""
    messages: list[Message] = field(default_factory=list)
    """Messages of the request, and the reply."""
    prompt_length: int = 0
    """Number of the ids that are the prompt."""

    def extend(
        self, ids: IdsDelta, sampled_ids_T: list[int], messages: MessagesDelta, reply: Message
    ) -> None:
        """Extend it to the turn that was stored with these differences from this one."""
        patch_ids(self.ids_T, ids.shared, ids.own_ids, ids.runs)
        self.prompt_length = len(self.ids_T)
        self.ids_T += sampled_ids_T
        patch_messages(self.messages, messages.shared, json.loads(messages.entries))
        self.messages.append(reply)


def shared_prefix(old: Sequence[object], new: Sequence[object]) -> int:
    """Number of leading items that are equal."""
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


def shared_suffix(old: Sequence[object], new: Sequence[object]) -> int:
    """Number of trailing items that are equal."""
    return shared_prefix(old[::-1], new[::-1])


def diff_ids(base: array[int], new: array[int]) -> IdsDelta:
    """`new` as a length of the base's beginning, own ids, and runs of the base among them."""
    prefix = shared_prefix(base, new)
    own_ids, end = array("i"), prefix
    runs: list[tuple[int, int, int]] = []
    for position, base_start, length in _shared_runs(base, new, prefix):
        own_ids += new[end:position]
        runs.append((len(own_ids), base_start, length))
        end = position + length
    return IdsDelta(prefix, own_ids + new[end:], runs)


def patch_ids(
    ids: list[int], shared: int, own_ids: Sequence[int], runs: Sequence[Sequence[int]]
) -> None:
    """The inverse of `diff_ids`: turn the base's ids, in place, into the new ones."""
    if not runs:
        ids[shared:] = own_ids
        return
    patched: list[int] = []
    end = 0
    for position, base_start, length in runs:
        patched += own_ids[end:position]
        patched += ids[base_start : base_start + length]
        end = position
    patched += own_ids[end:]
    ids[shared:] = patched


def _shared_runs(base: array[int], new: array[int], start: int) -> Iterator[tuple[int, int, int]]:
    """Runs that both have from `start` on, in order: place in `new`, place in `base`, length."""
    step = max(_PROBE, (len(base) - start) // _MAX_PROBES)
    new_bytes = new.tobytes()
    at = base_end = new_end = start
    while at + _PROBE <= len(base) and new_end + _PROBE <= len(new):
        position = _position_of(base[at : at + _PROBE], new_bytes, new_end)
        if position is None:
            at += step
            continue
        before = shared_suffix(base[base_end:at], new[new_end:position])
        length = shared_prefix(base[at:], new[position:])
        yield position - before, at - before, before + length
        at = base_end = at + length
        new_end = position + length


def _position_of(probe: array[int], id_bytes: bytes, start: int) -> int | None:
    """Position of the first occurrence of the probe's ids from `start` on; None without one."""
    size, needle = probe.itemsize, probe.tobytes()
    offset = id_bytes.find(needle, start * size)
    while offset % size and offset > 0:
        offset = id_bytes.find(needle, offset + 1)
    return None if offset < 0 else offset // size


def diff_messages(base: list[str], new: list[str]) -> MessagesDelta:
    """The difference of messages, each as its JSON text; texts are equal only when messages are."""
    base_at = prefix = shared_prefix(base, new)
    base_positions = {text: position for position, text in enumerate(base)}
    entries: list[str] = []
    new_at = prefix
    while new_at < len(new):
        text = new[new_at]
        is_next = base_at < len(base) and base[base_at] == text
        start = base_at if is_next else base_positions.get(text)
        if start is not None:
            length = shared_prefix(base[start:], new[new_at:])
            entries.append(f"[{start}, {start + length}]")
            base_at, new_at = start + length, new_at + length
            continue
        edit = _edit(base[base_at], text, base_at) if base_at < len(base) else None
        entries.append(edit or text)
        base_at, new_at = base_at + (edit is not None), new_at + 1
    return MessagesDelta(prefix, f"[{', '.join(entries)}]")


def patch_messages(messages: list[Message], shared: int, entries: Sequence[object]) -> None:
    """The inverse of `diff_messages`: turn the base's messages, in place, into the new ones."""
    patched: list[Message] = []
    for entry in entries:
        match entry:
            case [int(start), int(stop)]:
                patched += messages[start:stop]
            case [int(at), int(head), int(tail), str(text)]:
                content = str(messages[at]["content"] or "")
                text = content[:head] + text + content[len(content) - tail :]
                patched.append({**messages[at], "content": text})
            case _:
                patched.append(cast(Message, entry))
    messages[shared:] = patched


def _edit(base_text: str, text: str, at: int) -> str | None:
    """The message as an edit of the base's content; None where that saves little."""
    if min(len(base_text), len(text)) < _MIN_EDITED:
        return None
    base: Message = json.loads(base_text)
    message: Message = json.loads(text)
    old, new = base.get("content"), message.get("content")
    if not isinstance(old, str) or not isinstance(new, str):
        return None
    if _without_content(base) != _without_content(message):
        return None
    head = shared_prefix(old, new)
    tail = shared_suffix(old[head:], new[head:])
    if 2 * (head + tail) < len(new):
        return None
    return json.dumps([at, head, tail, new[head : len(new) - tail]])


def _without_content(message: Message) -> str:
    """The message without its content, in its own order."""
    return json.dumps({**message, "content": None})
