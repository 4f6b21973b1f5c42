"""Training data of the tiny policy: conversations, as token ids with a mask over the replies.

A source yields fresh conversations forever; recipes for further skills add sources, nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from clawrl_gym.core.types import Json, Message, Tool
from tools.tiny_policy.tokenizer import END, START, unmarked, untrained

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True, slots=True)
class Conversation:
    """A demonstration: the assistant messages in it are imitated."""

    messages: list[Message]
    family: str
    tools: list[Tool] | None = None
    """Offered to the model, in OpenAI's form."""
    unlearned: frozenset[int] = frozenset()
    """Places of assistant messages that are shown as mistakes and not imitated."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A conversation as ids; the mask is True on the replies, their end token included."""

    ids_T: list[int]
    mask_T: list[bool]


class Source(Protocol):
    """A source of demonstrations."""

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Fresh training conversations, endlessly; the same seed gives the same ones."""
        ...


@dataclass(frozen=True, slots=True)
class Mixture:
    """Several sources, each taken with the probability that its weight gives it."""

    sources: tuple[tuple[Source, float], ...]

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Fresh conversations of all sources, endlessly."""
        chance = random.Random(seed)
        streams = [source.conversations(seed + n) for n, (source, _) in enumerate(self.sources)]
        weights = [weight for _, weight in self.sources]
        while True:
            (stream,) = chance.choices(streams, weights)
            yield next(stream)


def render(
    tokenizer: PreTrainedTokenizerFast,
    messages: Sequence[Message],
    tools: Sequence[Json] | None = None,
    *,
    ask: bool = False,
) -> str:
    """The text of a conversation; `ask` ends it where the next reply begins."""
    return str(
        tokenizer.apply_chat_template(
            list(messages), tools=tools, tokenize=False, add_generation_prompt=ask
        )
    )


def texts_of(conversations: Iterable[Conversation]) -> list[str]:
    """Texts of rendered conversations, for training a tokenizer."""
    blank = untrained()
    return [
        piece
        for conversation in conversations
        for piece in unmarked(render(blank, conversation.messages, conversation.tools))
    ]


def encode(
    tokenizer: PreTrainedTokenizerFast, conversations: Sequence[Conversation]
) -> list[Encoded]:
    """Ids and masks of a batch."""
    texts = [
        render(tokenizer, conversation.messages, conversation.tools)
        for conversation in conversations
    ]
    header_T = tokenizer(f"{START}assistant\n", add_special_tokens=False)["input_ids"]
    end = tokenizer.convert_tokens_to_ids(END)
    batch = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return [
        Encoded(ids_T, _reply_mask(ids_T, header_T, end, _learned(conversation)))
        for conversation, ids_T in zip(conversations, batch, strict=True)
    ]


def _learned(conversation: Conversation) -> list[bool]:
    """Whether each reply is imitated."""
    return [
        place not in conversation.unlearned
        for place, message in enumerate(conversation.messages)
        if message["role"] == "assistant"
    ]


def _reply_mask(
    ids_T: list[int], header_T: list[int], end: int, learned: Sequence[bool]
) -> list[bool]:
    """True from behind each learned reply's header up to and including its end token."""
    mask_T = [False] * len(ids_T)
    inside = False
    replies = iter(learned)
    learn = False
    for position, token in enumerate(ids_T):
        if inside:
            mask_T[position] = learn
            inside = token != end
        else:
            first = position + 1 - len(header_T)
            inside = first >= 0 and ids_T[first : position + 1] == header_T
            learn = next(replies) if inside else learn
    return mask_T


def drawn(ids: Mapping[str, Sequence[str]], shares: Mapping[str, int], seed: int) -> Iterator[str]:
    """Ids of tasks, endlessly: a family by its share (1 where none is named), then one of its."""
    chance = random.Random(seed)
    families = list(ids)
    weights = [shares.get(family, 1) for family in families]
    while True:
        (family,) = chance.choices(families, weights)
        yield ids[family][chance.randrange(len(ids[family]))]
