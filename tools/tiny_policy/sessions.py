"""Demonstrations of longer sessions: several conversations, one after the other.

A live chat continues where an episode ends; what was said before must not put the policy off.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clawrl_gym.core.types import Message
from clawrl_gym.envs.conversation.tools import READ, WRITE
from tools.tiny_policy.conversations import Conversation, Source


@dataclass(frozen=True, slots=True)
class LongSessions:
    """Two or three conversations of a source in one; the last one names its family."""

    source: Source

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Fresh sessions, endlessly, from the seed alone."""
        chance = random.Random(seed)
        stream = self.source.conversations(seed)
        while True:
            yield joined([next(stream) for _ in range(chance.choice((2, 2, 3)))])


def joined(parts: Sequence[Conversation]) -> Conversation:
    """One conversation with the surroundings of the first, and the tools that all need."""
    messages: list[Message] = []
    unlearned: set[int] = set()
    for part in parts:
        for place, message in enumerate(part.messages):
            if message["role"] == "system" and messages:
                continue
            if place in part.unlearned:
                unlearned.add(len(messages))
            messages.append(message)
    tools_of_first = parts[0].tools or []
    names = {tool["function"]["name"] for tool in tools_of_first}
    missing = [tool for tool in (READ, WRITE) if tool["function"]["name"] not in names]
    calls = any("tool_calls" in message for message in messages)
    tools = [*tools_of_first, *missing] if calls else tools_of_first
    return Conversation(messages, parts[-1].family, tools or None, frozenset(unlearned))
