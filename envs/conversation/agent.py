"""The conversation agent: a chat with tools, as any OpenAI client holds it.

What is said is the action; tool calls become the environment's JSON form, and their results come
back as messages of the role `tool`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from clawrl_gym.agents.agent import Action, ParseFailure
from clawrl_gym.agents.tool_calls import (
    Reply,
    calls_of,
    decode,
    encode,
    message_of,
    messages_after,
)
from clawrl_gym.config import AgentConfig
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Message, Tool


class ConversationAgent:
    """Observations are what the user says, or the results of the reply's tool calls."""

    ending: str | None = None
    """None: each task ends its episode."""

    def __init__(self, system: str | None = None) -> None:
        self._system = system

    @classmethod
    def from_config(cls, config: AgentConfig) -> Self:
        return cls(config.system)

    def messages(self, observations: Sequence[str], replies: Sequence[Message]) -> list[Message]:
        turns: list[Message] = []
        if self._system:
            turns.append({"role": "system", "content": self._system})
        turns.append({"role": "user", "content": observations[0]})
        for reply, observation in zip(replies, observations[1:], strict=True):
            turns += [reply, *self._messages_after(reply, observation)]
        return turns

    def tools(self, env_tools: Sequence[Tool]) -> list[Tool]:
        return list(env_tools)

    def instructions(self, env_tools: Sequence[Tool]) -> str:
        """None: the API brings the tools."""
        return ""

    def action(self, reply: Message) -> Action | ParseFailure:
        return Action(encode(Reply(text_of(reply).strip(), calls_of(reply))))

    def reply(self, action: str) -> Message:
        """The reply that asks for an action; inverse of `action`, for demonstrations."""
        return message_of(decode(action))

    def _messages_after(self, reply: Message, observation: str) -> list[Message]:
        return messages_after(reply, observation)
