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
from collections.abc import Iterator
from itertools import chain
from typing import Any, Protocol

_FIRST, _LAST = 0xF0000, 0xFFFFD  # a plane for private use: no tokenizer has words in it
_MASK = re.compile(f"[{chr(_FIRST)}-{chr(_LAST)}]")
_WRITTEN_LIKE_ONE = re.compile(r"<[|｜].+[|｜]>")  # noqa: RUF001


class Tokenizer(Protocol):
    """What is needed of a Hugging Face tokenizer."""

    @property
    def all_special_tokens(self) -> list[str]: ...
    @property
    def added_tokens_decoder(self) -> dict[int, Any]: ...
    def __call__(self, texts: list[str], *, add_special_tokens: bool) -> Any: ...


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
        self._spelt: dict[str, list[int]] = {}

    def mask(self, value: Any, found: dict[str, str]) -> Any:
        """JSON with a character in place of each special text; `found` collects text by text."""
        if isinstance(value, str):
            if not value.isascii():  # a character that could pass for a mask is masked itself
                value = _MASK.sub(lambda match: _character(match[0], found), value)
            return self._pattern.sub(lambda match: _character(match[0], found), value)
        if isinstance(value, list):
            return [self.mask(item, found) for item in value]
        if isinstance(value, dict):
            return {self.mask(k, found): self.mask(v, found) for k, v in value.items()}
        return value

    def ids(self, text: str, found: dict[str, str]) -> list[int]:
        """The ids of a text with masks; its own special tokens become control tokens."""
        meant = {character: text for text, character in found.items()}
        plain = self._encode(_MASK.split(text))
        ids = list(next(plain))
        for character, part in zip(_MASK.findall(text), plain, strict=True):
            ids += self._spell(meant[character])
            ids += part
        return ids

    def _spell(self, text: str) -> list[int]:
        """A special text in ordinary tokens: in two parts, else character by character."""
        if text not in self._spelt:
            ids = [*chain.from_iterable(self._encode([text[:1], text[1:]]))]
            if not self._added_ids.isdisjoint(ids):
                ids = [*chain.from_iterable(self._encode(list(text)))]
            self._spelt[text] = ids
        return self._spelt[text]

    def _encode(self, texts: list[str]) -> Iterator[list[int]]:
        """In one call: a call for each text would be slow."""
        some = [text for text in texts if text]
        made = iter(self._tokenizer(some, add_special_tokens=False)["input_ids"] if some else [])
        return (next(made) if text else [] for text in texts)


def _like_one(text: str) -> bool:
    return _WRITTEN_LIKE_ONE.fullmatch(text) is not None


def _character(text: str, found: dict[str, str]) -> str:
    if text not in found:
        if len(found) > _LAST - _FIRST:
            raise ValueError("the texts hold more different private characters than can be read")
        found[text] = chr(_FIRST + len(found))
    return found[text]
