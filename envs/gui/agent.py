"""The agent for web pages: a reply's actions become one, pages come back as text and pictures.

`native`: the policy server's own tool calls. `text`: the actions are described in the system
message and written as lines. Only the newest pictures stay in the messages: what a page looked like
long ago costs thousands of tokens and says little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from clawrl_gym.config import AgentConfig
from clawrl_gym.core.types import ContentPart, Message, Tool
from clawrl_gym.envs.conversation.agent import ConversationAgent
from clawrl_gym.envs.gui.schema import in_words
from clawrl_gym.envs.parts import decode_parts
from clawrl_gym.envs.toolcall.agent import Protocol

SYSTEM = (
    "You use web pages to do what is asked. What can be acted on has a number. When it is done, "
    "say so with done, or with answer where something is asked; when it cannot be done, give up."
)
LEFT_OUT = "(an older picture is left out here)"


class GuiAgent(ConversationAgent):
    """Observations are pages, or the results of the reply's calls with the page in the last."""

    def __init__(
        self, system: str | None = None, protocol: Protocol = "native", images: int = 3
    ) -> None:
        """`images`: newest pictures that stay in the messages."""
        super().__init__(SYSTEM if system is None else system)
        self._is_text = protocol == "text"
        self._images = images

    @classmethod
    def from_config(cls, config: AgentConfig) -> Self:
        return cls(config.system, config.protocol, config.images)

    def messages(self, observations: Sequence[str], replies: Sequence[Message]) -> list[Message]:
        turns = super().messages(observations, replies)
        return [*self._with_newest_pictures(turns)]

    def tools(self, env_tools: Sequence[Tool]) -> list[Tool]:
        return [] if self._is_text else list(env_tools)

    def instructions(self, env_tools: Sequence[Tool]) -> str:
        """End of the system message: protocol `text` describes the actions there."""
        return "\n\n".join(map(in_words, env_tools)) if self._is_text else ""

    def _with_newest_pictures(self, turns: Sequence[Message]) -> Iterator[Message]:
        """The messages with their pictures as parts, older ones as a short text."""
        contents = [_content(message) for message in turns]
        left = sum(_is_picture(part) for content in contents for part in content) - self._images
        for message, content in zip(turns, contents, strict=True):
            if not content:
                yield message
                continue
            parts = list[ContentPart]()
            for part in content:
                older = _is_picture(part) and left > 0
                left -= older
                parts.append({"type": "text", "text": LEFT_OUT} if older else part)
            has_picture = any(map(_is_picture, parts))
            text = "\n".join(part["text"] for part in parts if part["type"] == "text")
            yield {**message, "content": parts if has_picture else text}


def _content(message: Message) -> list[ContentPart]:
    """The parts of what came back with pictures; nothing for any other message."""
    content = message.get("content")
    if message.get("role") not in ("user", "tool") or not isinstance(content, str):
        return []
    parts = decode_parts(content)
    return [] if isinstance(parts, str) else parts


def _is_picture(part: ContentPart) -> bool:
    return part["type"] == "image_url"
