"""Surroundings of a chat: a system message and tools that must not confuse the policy.

OpenClaw sends dozens of pages; the chat template's digest leaves a line and a few signatures.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from clawrl_gym.core.types import Message, Tool
from clawrl_gym.envs.conversation.tools import READ, WRITE

PLAIN = 0.4
"""Share of chats with nothing around them but the tools that they need."""
OPENCLAW = "You are a personal assistant running inside OpenClaw."
_SYSTEMS = (
    OPENCLAW,
    OPENCLAW,
    "You are a helpful assistant.",
    "You are a friendly assistant. Answer the user.",
    "Help the user with files and sums.",
    "Be brief.",
)
_DISTRACTORS = (
    ("apply_patch", "input"),
    ("edit", "path", "edits"),
    ("exec", "command"),
    ("ls",),
    ("process", "action"),
    ("search", "query"),
    ("browser", "url"),
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The messages before the first one of the user, and the tools that are offered."""

    before: list[Message]
    tools: list[Tool]


def draw_surroundings(chance: random.Random, needed: Sequence[Tool]) -> Surroundings:
    """Draw nothing but the needed tools, or those of a personal assistant."""
    if chance.random() < PLAIN:
        return Surroundings([], list(needed))
    before: list[Message] = []
    if chance.random() < 0.8:
        before = [{"role": "system", "content": chance.choice(_SYSTEMS)}]
    if not needed and chance.random() < 0.3:
        return Surroundings(before, [])
    distractors = [
        _tool(*distractor) for distractor in chance.sample(_DISTRACTORS, chance.randrange(4))
    ]
    tools = [READ, WRITE, *distractors]
    if chance.random() < 0.5:
        chance.shuffle(tools)
    return Surroundings(before, tools)


def _tool(name: str, *parameters: str) -> Tool:
    return {
        "type": "function",
        "function": {"name": name, "parameters": {"required": list(parameters)}},
    }
