"""The SWE agent: a thought and one bash block a reply, its output comes back as a user message.

The protocol is mini-swe-agent's: every command is its own process, and the submit mark as first
line of a command's output ends the episode.
"""

from __future__ import annotations

import re

from clawrl_gym.agents.agent import Action, ParseFailure
from clawrl_gym.agents.text import TextAgent
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Message
from clawrl_gym.envs.swe.rows.instance import SUBMIT_MARK

SYSTEM = (
    "Fix the issue in this repository. Reply with one bash block. Its output comes back to you. "
    f"When it is fixed, run `echo {SUBMIT_MARK}`."
    """

The issue is the first message; the repository is your working directory. Every reply is a THOUGHT \
about what to do next, and then exactly one block:

```bash
your command here
```

- Every command runs in a new shell in the repository: directories and variables do not last. \
Write `cd folder && command`.
- Look at the code, reproduce the issue, fix its cause, and run the tests.
- Change the source, not the tests: tests are restored before your work is checked.
- Long outputs lose their middle. Print parts: `sed -n '10,60p' file`, `grep -n word -r .`
- Edit with `sed -i`, or write whole files with `cat > file <<'EOF'`. Nobody types for you: \
no editors, pagers or prompts.
"""
    f"- When the issue is fixed, run `echo {SUBMIT_MARK}` alone. Nothing can be changed after it."
)
"""Instructions; the first line is enough for a policy that reads no more."""

_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_BASH = frozenset(("bash", "sh", "shell", "mswea_bash_command"))


class SweAgent(TextAgent):
    """Replies hold exactly one bash block outside of what the model thinks to itself."""

    def __init__(self, system: str | None = None) -> None:
        super().__init__()
        self._system = SYSTEM if system is None else system

    def action(self, reply: Message) -> Action | ParseFailure:
        commands = _bash_blocks(_without_thinking(text_of(reply)))
        if len(commands) != 1:
            return ParseFailure(
                f"got {len(commands)} bash blocks, expected exactly one: ```bash, the command, ```"
            )
        if not commands[0].strip():
            return ParseFailure("got an empty bash block, expected a command in it")
        return Action(commands[0])

    def reply(self, action: str) -> Message:
        return {"role": "assistant", "content": reply_text(action)}


def reply_text(command: str) -> str:
    """The reply that asks for `command`; inverse of `SweAgent.action`."""
    fence = "```"
    while any(line.startswith(fence) for line in command.split("\n")):
        fence += "`"
    return f"{fence}bash\n{command}\n{fence}"


def _without_thinking(content: str) -> str:
    """The content without thinking, which templates open in the prompt or leave in the reply."""
    return _THINKING.sub("", content).rpartition("</think>")[2]


def _bash_blocks(text: str) -> list[str]:
    """The fenced blocks of bash; a block ends at a fence as long as its own, or never."""
    blocks: list[str] = []
    fence = ""
    lines: list[str] | None = None
    for line in text.replace("\r\n", "\n").split("\n"):
        ticks = len(line) - len(line.lstrip("`"))
        if not fence:
            if ticks >= 3 and "`" not in line[ticks:]:
                fence = line[:ticks]
                lines = [] if line[ticks:].strip().lower() in _BASH else None
        elif ticks >= len(fence) and not line[ticks:].strip():
            if lines is not None:
                blocks.append("\n".join(lines))
            fence = ""
        elif lines is not None:
            lines.append(line)
    return blocks
