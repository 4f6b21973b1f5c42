"""Long histories: head and tail are kept, the middle is left out.

A cut is a leap: much is left out at once, and then the history only grows again. So requests
extend each other between two cuts, which is what makes their turns one sequence to train on and
lets the policy server reuse what it has read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Message, TextPart

HEAD_TURNS = 2
"""First turns that are kept, with the system message and the task, while there is room."""
_LEAP = 0.6
"""Share of the room that a cut leaves."""
_CUTS_AT_ONCE = 16
"""Bound on what one refused request may be asked again."""


class HeadTail:
    """The part of one episode's history that the policy reads.

    A turn here is a reply with what came back to it: a reply never loses its observation, and
    results never their calls.
    """

    def __init__(self, max_chars: int | None = None) -> None:
        """`max_chars`: longest history; None: only what `tighten` is called for is cut."""
        self._room = max_chars
        self._head = HEAD_TURNS
        self._out = 0
        """Turns after the head that are left out."""
        self._tightened = 0

    def view(self, messages: Sequence[Message]) -> list[Message]:
        """The messages to send, at most the room where the newest turn alone leaves it."""
        self._tightened = 0
        if self._room is not None and size_chars(self._cut(messages)) > self._room:
            self._leap(messages, self._room * _LEAP)
        return self._cut(messages)

    def tighten(self, messages: Sequence[Message]) -> list[Message] | None:
        """A shorter view of messages that the policy refused; None when nothing can be cut."""
        refused = size_chars(self._cut(messages))
        self._tightened += 1
        self._leap(messages, refused * _LEAP)
        shorter = self._cut(messages)
        if self._tightened > _CUTS_AT_ONCE or size_chars(shorter) >= refused:
            return None
        self._room = refused - 1
        return shorter

    def _leap(self, messages: Sequence[Message], room: float) -> None:
        """Leave out as many of the oldest turns after the head as must be; then of the head."""
        turns = _turns(messages)[1:]
        while size_chars(self._cut(messages)) > room:
            if self._head + self._out < len(turns) - 1:
                self._out += 1
            elif self._head and len(turns) > 1:
                self._head = min(self._head, len(turns) - 1) - 1
                self._out = len(turns) - 1 - self._head
            else:
                return

    def _cut(self, messages: Sequence[Message]) -> list[Message]:
        task, *turns = _turns(messages)
        if not self._out:
            return list(messages)
        head = [message for turn in [task, *turns[: self._head]] for message in turn]
        tail = [message for turn in turns[self._head + self._out :] for message in turn]
        return [*_noted(head, self._out), *tail]


def size_chars(messages: Sequence[Message]) -> int:
    """Characters of what is said and called; pictures count as a word."""
    return sum(_size(message) for message in messages)


def _size(message: Message) -> int:
    calls = message.get("tool_calls")
    length = len(text_of(message)) + len(message.get("reasoning_content") or "")
    return length + (len(json.dumps(calls)) if calls else 0)


def _turns(messages: Sequence[Message]) -> list[list[Message]]:
    """Messages before the first reply, then each reply with what came back."""
    turns: list[list[Message]] = [[]]
    for message in messages:
        if message.get("role") == "assistant":
            turns.append([])
        turns[-1].append(message)
    return turns


def _noted(head: list[Message], count: int) -> list[Message]:
    """The note belongs to the last thing that the user said: roles keep alternating."""
    note = f"({count} {'turn was' if count == 1 else 'turns were'} left out here)"
    last = head[-1]
    if last.get("role") != "user":
        return [*head, {"role": "user", "content": note}]
    content = last.get("content")
    if isinstance(content, list):
        note_part: TextPart = {"type": "text", "text": note}
        return [*head[:-1], {**last, "content": [*content, note_part]}]
    noted: Message = {**last, "content": f"{content or ''}\n\n{note}"}
    return [*head[:-1], noted]
