"""Special tokens inside texts that people, tools and models wrote: they stay text.

A tokenizer reads `<|im_end|>` as the control token wherever it stands, so a message could end
itself and go on in another role. Before the chat template writes a message, each such text becomes
one private character; afterwards the character becomes the text's own ids, spelt in ordinary
tokens. The model reads what was written, to the letter, and what the template writes is untouched.

Special is what the tokenizer calls special, and what is written like it (`<|...|>`; some tokenizers
call their role marks ordinary). `<think>` or `<tool_call>` are not: they end no message, and
prompts and histories rightly contain them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Protocol, TypeVar, cast

T = TypeVar("T")
_FIRST, _LAST = 0xF0000, 0xFFFFD  # a plane for private use: no tokenizer has words in it
_MASK = re.compile(f"[{chr(_FIRST)}-{chr(_LAST)}]")
_WRITTEN_LIKE_ONE = re.compile(r"<[|｜].+[|｜]>")  # noqa: RUF001


class AddedToken(Protocol):
    """A token beside the vocabulary."""

    @property
    def content(self) -> str: ...
    @property
    def special(self) -> bool: ...


class Tokenizer(Protocol):
    """The used part of a Hugging Face tokenizer."""

    @property
    def all_special_tokens(self) -> list[str]: ...
    @property
    def added_tokens_decoder(self) -> Mapping[int, AddedToken]: ...
    def __call__(
        self, texts: list[str], *, add_special_tokens: bool
    ) -> Mapping[str, list[list[int]]]: ...


class SpecialTokenMask:
    """Takes the special tokens of one tokenizer out of texts, and puts them back as plain ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        added = tokenizer.added_tokens_decoder
        texts = set(tokenizer.all_special_tokens)
        texts |= {t.content for t in added.values() if t.special or _like_one(t.content)}
        longest_first = sorted(filter(None, texts), key=len, reverse=True)
        # one alternative of another form would make the search a thousand times slower
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._tokenizer = tokenizer
        self._added_ids = frozenset(added)
        self._plain_ids: dict[str, list[int]] = {}

    def mask(self, json_value: T, masks: dict[str, str]) -> T:
        """JSON with a character in place of each special text; `masks` collects them by text."""
        return cast(T, self._mask(json_value, masks))  # of the same form

    def _mask(self, value: object, masks: dict[str, str]) -> object:
        if isinstance(value, str):
            if not value.isascii():  # a character that could pass for a mask is masked itself
                value = _MASK.sub(lambda match: _character(match[0], masks), value)
            return self._pattern.sub(lambda match: _character(match[0], masks), value)
        if isinstance(value, list):
            return [self._mask(item, masks) for item in value]
        if isinstance(value, dict):
            return {self._mask(k, masks): self._mask(v, masks) for k, v in value.items()}
        return value

    def ids(self, text: str, masks: dict[str, str]) -> list[int]:
        """The ids of a text with masks; its own special tokens become control tokens."""
        texts = {character: text for text, character in masks.items()}
        plain = self._encode(_MASK.split(text))
        ids = list(next(plain))
        for character, part in zip(_MASK.findall(text), plain, strict=True):
            ids += self._spell(texts[character])
            ids += part
        return ids

    def _spell(self, text: str) -> list[int]:
        """A special text in ordinary tokens: in two parts, else character by character."""
        if text not in self._plain_ids:
            ids = [*chain.from_iterable(self._encode([text[:1], text[1:]]))]
            if not self._added_ids.isdisjoint(ids):
                ids = [*chain.from_iterable(self._encode(list(text)))]
            self._plain_ids[text] = ids
        return self._plain_ids[text]

    def _encode(self, texts: list[str]) -> Iterator[list[int]]:
        """Encode texts in one call: a call for each text would be slow."""
        filled = [text for text in texts if text]
        tokenizer = self._tokenizer
        ids = iter(tokenizer(filled, add_special_tokens=False)["input_ids"] if filled else [])
        return (next(ids) if text else [] for text in texts)


def _like_one(text: str) -> bool:
    return _WRITTEN_LIKE_ONE.fullmatch(text) is not None


def _character(text: str, masks: dict[str, str]) -> str:
    if text not in masks:
        if len(masks) > _LAST - _FIRST:
            raise ValueError("the texts hold more different private characters than can be read")
        masks[text] = chr(_FIRST + len(masks))
    return masks[text]
