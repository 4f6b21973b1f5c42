"""The agent of a data set: a prompt of several messages is a conversation that goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

from clawrl_gym.agents.text import TextAgent
from clawrl_gym.core.types import Message

_START = '{"messages": ['


def encode_messages(messages: Sequence[dict[str, str]]) -> str:
    """A prompt without its system message as an observation; inverse of `decode_messages`.

    A single message is its own text, unless that reads like the form of several.
    """
    content = messages[-1]["content"]
    if len(messages) == 1 and not content.startswith(_START):
        return content
    return json.dumps({"messages": list(messages)})


def decode_messages(observation: str) -> list[Message]:
    """The messages of an observation; whatever is not the form is one of the user."""
    if observation.startswith(_START):
        try:
            return cast("list[Message]", json.loads(observation)["messages"])
        except (ValueError, RecursionError):
            pass
    return [{"role": "user", "content": observation}]


class DatasetAgent(TextAgent):
    """The first observation may hold several messages; the reply, stripped, is the action."""

    def messages(self, observations: Sequence[str], replies: Sequence[Message]) -> list[Message]:
        turns = super().messages(observations, replies)
        at = next(index for index, turn in enumerate(turns) if turn["role"] == "user")
        return [*turns[:at], *decode_messages(observations[0]), *turns[at + 1 :]]
