"""What the tiny policy is trained on: conversations, as token ids with a mask over the replies.

A source yields fresh conversations forever; recipes for further skills add sources, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from clawrl_gym.policy.tiny.tokenizer import END, START
from clawrl_gym.types import Message


@dataclass(frozen=True, slots=True)
class Conversation:
    """A demonstration: every assistant message in it is imitated."""

    messages: list[Message]
    family: str


@dataclass(frozen=True, slots=True)
class Encoded:
    """A conversation as ids; the mask is True on the replies, their end token included."""

    ids_T: list[int]
    mask_T: list[bool]


class Source(Protocol):
    """Where demonstrations come from."""

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Fresh training conversations, endlessly; the same seed gives the same ones."""
        ...


def render(tokenizer: Any, messages: Sequence[Message], *, ask: bool = False) -> str:
    """The text of a conversation; `ask` ends it where the next reply begins."""
    return str(
        tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=ask)
    )


def encode(tokenizer: Any, conversations: Sequence[Conversation]) -> list[Encoded]:
    """Ids and masks of a batch."""
    texts = [render(tokenizer, conversation.messages) for conversation in conversations]
    header_T = tokenizer(f"{START}assistant\n", add_special_tokens=False)["input_ids"]
    end = tokenizer.convert_tokens_to_ids(END)
    batch = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return [Encoded(ids_T, _reply_mask(ids_T, header_T, end)) for ids_T in batch]


def _reply_mask(ids_T: list[int], header_T: list[int], end: int) -> list[bool]:
    """True from behind each assistant header up to and including its end token."""
    mask_T = [False] * len(ids_T)
    inside = False
    for position, token in enumerate(ids_T):
        if inside:
            mask_T[position] = True
            inside = token != end
        else:
            first = position + 1 - len(header_T)
            inside = first >= 0 and ids_T[first : position + 1] == header_T
    return mask_T
