"""What a client adds to a conversation for one request only, and does not keep.

It is left out where conversations are matched and from next states; what is recorded of a request,
and what the policy sees, stays as it was sent.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from typing import Any

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.types import Message

_GAP = ".*?"
"""In a pattern: whatever stands between a block's two ends."""


class Transient:
    """The blocks of `live.transient`.

    A pattern is a block's beginning, `.*?` and its end, or one expression without `.*?`. The ends
    are looked for one after the other, so that a hostile text costs no more than its length.
    """

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        """Raises ConfigError for a pattern that is no regular expression."""
        self._blocks = [_block(pattern) for pattern in patterns]

    def stable(self, messages: list[Message]) -> list[Message]:
        """The messages without transient blocks; one that held nothing else is gone.

        Blocks are looked for in user messages only: a tool result or a reply that quotes one is
        what it is. A block whose end is missing stays.
        """
        kept = (self._stable(message) for message in messages)
        return [message for message in kept if message is not None]

    def _stable(self, message: Message) -> Message | None:
        content = message.get("content")
        if message.get("role") != "user" or not content:
            return message
        rest = self._rest_of_parts(content) if isinstance(content, list) else self._rest(content)
        if rest is content:
            return message
        return {**message, "content": rest} if rest else None

    def _rest(self, text: str) -> str:
        """`text` itself when it holds no block."""
        rest = text
        for begin, end in self._blocks:
            rest = _without(rest, begin, end)
        return text if rest is text else rest.strip()

    def _rest_of_parts(self, parts: list[Any]) -> list[Any]:
        """The parts themselves when they hold no block; a text that was nothing else is gone."""
        kept = []
        for part in parts:
            text = part.get("text") or ""
            rest = self._rest(text)
            if rest or rest is text:
                kept.append(part if rest is text else {**part, "text": rest})
        return parts if all(map(operator.is_, kept, parts)) and len(kept) == len(parts) else kept


def compiled(pattern: str, key: str) -> re.Pattern[str]:
    """Raises ConfigError naming the configuration's key."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"{key}: got {pattern!r}, expected a regular expression ({error})"
        ) from None


def _block(pattern: str) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
    begin, gap, end = pattern.partition(_GAP)
    if "" in (begin, end if gap else begin):
        raise ConfigError(
            f"live.transient: got {pattern!r}, expected a beginning and an end around '{_GAP}'"
        )
    key = "live.transient"
    return compiled(begin, key), compiled(end, key) if gap else None


def _without(text: str, begin: re.Pattern[str], end: re.Pattern[str] | None) -> str:
    """`text` itself when it holds no block."""
    kept: list[str] = []
    at = 0
    while (found := begin.search(text, at)) is not None:
        last = found if end is None else end.search(text, found.end())
        if last is None or last.end() == found.start():
            break
        kept.append(text[at : found.start()])
        at = last.end()
    return "".join([*kept, text[at:]]) if at else text
