"""The text agent: for any environment with text in and text out; the whole reply is the action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from clawrl_gym.agents.agent import Action, ParseFailure
from clawrl_gym.config import AgentConfig
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Message, Tool


class TextAgent:
    """Observations are user messages; the reply, stripped, is the action.

    Agents that read their action out of the reply's text extend it.
    """

    def __init__(self, system: str | None = None) -> None:
        self._system = system
        """None, or empty: there is no system message."""

    @classmethod
    def from_config(cls, config: AgentConfig) -> Self:
        return cls(config.system)

    def messages(self, observations: Sequence[str], replies: Sequence[Message]) -> list[Message]:
        turns: list[Message] = []
        if self._system:
            turns.append({"role": "system", "content": self._system})
        for observation, reply in zip(observations, replies, strict=False):
            turns += [{"role": "user", "content": observation}, reply]
        return [*turns, {"role": "user", "content": observations[len(replies)]}]

    def tools(self, env_tools: Sequence[Tool]) -> list[Tool]:
        """None: all is said in text."""
        return []

    def instructions(self, env_tools: Sequence[Tool]) -> str:
        """None: the action is the reply itself."""
        return ""

    def action(self, reply: Message) -> Action | ParseFailure:
        return Action(text_of(reply).strip())
