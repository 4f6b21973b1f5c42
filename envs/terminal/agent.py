"""The terminal agent: one bash block a reply, its output comes back as a user message."""

from __future__ import annotations

import re

from clawrl_gym.agents.agent import Action, ParseFailure
from clawrl_gym.agents.text import TextAgent
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Message

SYSTEM = (
    "You work in a Linux shell. Reply with one bash block. Its output comes back to you. "
    "When the task is done, run submit."
)

_BLOCK = re.compile(r"```(?:bash|sh)?[ \t]*\n(.*?)\n?```", re.DOTALL)


class TerminalAgent(TextAgent):
    """Replies hold exactly one fenced block; anything around it is free text."""

    ending = "submit"

    def __init__(self, system: str | None = None) -> None:
        super().__init__()
        self._system = SYSTEM if system is None else system

    def action(self, reply: Message) -> Action | ParseFailure:
        blocks = _BLOCK.findall(text_of(reply))
        if len(blocks) != 1:
            return ParseFailure(
                f"got {len(blocks)} bash blocks, expected exactly one: ```bash, the command, ```"
            )
        return Action(blocks[0])

    def reply(self, action: str) -> Message:
        return {"role": "assistant", "content": reply_text(action)}


def reply_text(command: str) -> str:
    """The reply that asks for `command`; inverse of `TerminalAgent.action`."""
    return f"```bash\n{command}\n```"
