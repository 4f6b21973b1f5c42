"""Phrases of an answer, in any inflection, and in languages with or without spaces.

A word is its first letters, so that Russian cases and German plurals make no other phrase. Japanese
and Chinese have no spaces: their words are the runs of one script, and how a sentence ends, where
Japanese says what it means, is taken by the sign.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

_WORD = re.compile(r"\w+")
_STEM_LETTERS = 5
_RUN = re.compile(
    "[\u3400-\u9fff]+|[\u30a0-\u30ff]+|[\u3041-\u309f]+|[^\\W\u3041-\u30ff\u3400-\u9fff]+"
)
_EAST = re.compile("[\u3041-\u30ff\u3400-\u9fff]")
_NEAR = 5
"""Words from one to the last that is near."""
_ENDINGS = (2, 3, 4, 6)
"""Signs at the end of a sentence that are taken together."""
_SIGNS = "\u3002.!?\u2026 "


def phrases(plain: str) -> set[str]:
    """Phrases of a text as `spelt` writes it: words, pairs of near ones, the first and the last."""
    if _EAST.search(plain):
        return {*_among(_RUN.findall(plain)), *_endings(plain.rstrip(_SIGNS))}
    return set(_among([word[:_STEM_LETTERS] for word in _WORD.findall(plain)]))


def _among(words: Sequence[str]) -> Iterator[str]:
    yield from (f"word {word}" for word in words)
    yield from (f"next {word} {after}" for word, after in pairwise(words))
    for at, word in enumerate(words):
        yield from (f"near {word} {later}" for later in words[at + 2 : at + 1 + _NEAR])
    if words:
        yield f"first {words[0]}"
        yield f"last {words[-1]}"
        yield f"first two {' '.join(words[:2])}"
        yield f"last two {' '.join(words[-2:])}"


def _endings(plain: str) -> Iterator[str]:
    yield from (f"ends {plain[-size:]}" for size in _ENDINGS)
