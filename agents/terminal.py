"""The terminal agent: one bash block a reply, its output comes back as a user message."""

from __future__ import annotations

import re
from collections.abc import Sequence

from clawrl_gym.agents.base import Action, ParseFailure, Tool
from clawrl_gym.types import Message

SYSTEM = (
    "You work in a Linux shell. Reply with one bash block. Its output comes back to you. "
    "When the task is done, run submit."
)

_BLOCK = re.compile(r"```(?:bash|sh)?[ \t]*\n(.*?)\n?```", re.DOTALL)


class TerminalAgent:
    """Replies hold exactly one fenced block; anything around it is free text."""

    def __init__(self, system: str | None = None) -> None:
        self._system = SYSTEM if system is None else system

    def messages(self, observations: Sequence[str], replies: Sequence[Message]) -> list[Message]:
        turns: list[Message] = [{"role": "system", "content": self._system}]
        for observation, reply in zip(observations, replies, strict=False):
            turns += [{"role": "user", "content": observation}, reply]
        return [*turns, {"role": "user", "content": observations[len(replies)]}]

    def tools(self, offered: Sequence[Tool]) -> list[Tool]:
        """None: all is said in text."""
        return []

    def action(self, reply: Message) -> Action | ParseFailure:
        blocks = _BLOCK.findall(reply.get("content") or "")
        if len(blocks) != 1:
            return ParseFailure(
                f"got {len(blocks)} bash blocks, expected exactly one: ```bash, the command, ```"
            )
        return Action(blocks[0])


def reply_text(command: str) -> str:
    """The reply that asks for `command`; inverse of `TerminalAgent.action`."""
    return f"```bash\n{command}\n```"
