"""The terminal agent: one bash block a reply, its output comes back as a user message."""

from __future__ import annotations

import re
from typing import Self

from clawrl_gym.agents.agent import Action, ParseFailure
from clawrl_gym.agents.text import TextAgent
from clawrl_gym.config import AgentConfig
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Message

SYSTEM = (
    "You work in a Linux shell. Reply with one bash block. Its output comes back to you. "
    "When the task is done, run submit."
)
FORM = (
    "\n\nEvery reply looks like this, with one command or several in the block:\n\n"
    "```bash\nls -l\n```\n\nAnd the last one like this:\n\n```bash\nsubmit\n```"
)
"""Description of the reply's form for a policy that does not know it."""

_BLOCK = re.compile(r"```(?:bash|sh)?[ \t]*\n(.*?)\n?```", re.DOTALL)


class TerminalAgent(TextAgent):
    """Replies hold exactly one fenced block; anything around it is free text."""

    ending = "submit"

    def __init__(self, system: str | None = None, *, show_form: bool = False) -> None:
        super().__init__()
        usual = SYSTEM + FORM if show_form else SYSTEM
        self._system = usual if system is None else system

    @classmethod
    def from_config(cls, config: AgentConfig) -> Self:
        return cls(config.system, show_form=config.show_form)

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
