"""What the gateway acknowledged, written down by whoever it was acknowledged to.

    agent=tests.chaos.ledger:LedgerAgent agent.options.agent=terminal agent.options.file=PATH

The agent of a worker gets each reply exactly once, as soon as the gateway has answered: a line in a
file of our own outlives any kill, and knows nothing of the store.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from clawrl_gym.agents.agent import Action, Agent, ParseFailure
from clawrl_gym.config import AgentConfig
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.plugins import AGENTS
from clawrl_gym.core.types import Message, Tool


def digest_of(reply: Message) -> str:
    """The same of a reply as a worker got it and as the store has it."""
    calls = [
        (call["function"]["name"], call["function"]["arguments"])
        for call in reply.get("tool_calls") or ()
    ]
    words = json.dumps([text_of(reply), calls], sort_keys=True)
    return blake2b(words.encode(), digest_size=8).hexdigest()


def acknowledged(file: Path) -> Counter[str]:
    """How often each reply was acknowledged."""
    if not file.exists():
        return Counter()
    return Counter(line for line in file.read_text().split() if len(line) == 16)


class LedgerAgent:
    """Another agent, whose replies are noted down."""

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)

        agent: str
        """Whose work it does."""
        file: Path

    def __init__(self, options: Options) -> None:
        self._agent: Agent = AGENTS.resolve(options.agent).build(AgentConfig(type=options.agent))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(options.file, flags, 0o600)

    def messages(self, observations: Sequence[str], replies: Sequence[Message]) -> list[Message]:
        return self._agent.messages(observations, replies)

    def tools(self, env_tools: Sequence[Tool]) -> list[Tool]:
        return self._agent.tools(env_tools)

    def instructions(self, env_tools: Sequence[Tool]) -> str:
        return self._agent.instructions(env_tools)

    def action(self, reply: Message) -> Action | ParseFailure:
        os.write(self._file, f"{digest_of(reply)}\n".encode())
        return self._agent.action(reply)
