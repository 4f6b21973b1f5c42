"""Whether an answer asks once more for what was asked before: the reply did not do it."""

from __future__ import annotations

import difflib
import re

_READ_CHARS = 4000
_WORD = re.compile(r"\w+(?:[./'-]\w+)*|[-+*/=<>%^]")
_FILLER = re.compile(
    "a|again|also|am|an|and|are|asked|at|be|but|can|could|do|does|for|get|give|have|hey|hi|i|i'd|"
    "i'm|in|is|it|just|like|me|meant|my|no|now|of|oh|ok|okay|on|once|one|please|really|repeat|"
    "said|same|so|still|tell|than|that|the|then|there|this|time|to|try|want|wanted|was|we|well|"
    "what|what's|would|yes|you|your"
)
_LEAST = 3
"""Words that a request must have to be known again."""
_SIMILAR = 0.8
"""Two spellings at least so similar are one word, mistyped."""
_LONGEST = 1.5
"""A request said again has grown by no more than this factor, and one word."""


def restates(text: str, request: str) -> bool:
    """Whether the text is the request in the same words, or holds every word of weight in it.

    Numbers, signs and names (what is not in lower case) must be the same, other words may have
    slips of the pen; so the same kind of request with another number is another request.
    """
    again, first = _words(text), _words(request)
    if _lower(again) == _lower(first):
        return len(first) >= _LEAST
    names = {word.lower() for word in (*again[1:], *first[1:]) if not word.islower()}
    weighty, given = _weighty(first), _weighty(again)
    if len(weighty) < _LEAST or len(given) > _LONGEST * len(weighty) + 1:
        return False
    others = given - weighty - names
    return all(word in given or (word not in names and _mistyped(word, others)) for word in weighty)


def _words(text: str) -> list[str]:
    return _WORD.findall(text[:_READ_CHARS].replace("\u2019", "'"))


def _lower(words: list[str]) -> list[str]:
    return [word.lower() for word in words]


def _weighty(words: list[str]) -> set[str]:
    return {word for word in _lower(words) if not _FILLER.fullmatch(word)}


def _mistyped(word: str, others: set[str]) -> bool:
    if len(word) < 4:
        return False
    return any(difflib.SequenceMatcher(None, word, other).ratio() >= _SIMILAR for other in others)
