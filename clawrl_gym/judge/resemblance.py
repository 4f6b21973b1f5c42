"""How much an answer resembles complaints, whatever words it uses.

A logistic regression over the letters of a text (n-grams of 1 to 5 letters, words, and words that
stand near each other) and over what its words mean (`concepts.py`), hashed into one table for all
languages. Made by `python -m tools.complaints` from written answers; `complaints.npz` holds its
weights. It knows nothing of what was asked or replied, so its word is weak: rules go before it, but
for those that it contradicts.
"""

from __future__ import annotations

import math
import re
import unicodedata
import zlib
from collections.abc import Collection, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawrl_gym.judge.concepts import concepts
from clawrl_gym.judge.language import single_signs

if TYPE_CHECKING:
    from numpy.typing import NDArray

WEIGHTS = Path(__file__).parent / "complaints.npz"
_LETTER_PLACES = 1 << 18
_MEANING_PLACES = 1 << 16
SIZE = _LETTER_PLACES + _MEANING_PLACES
"""Of the table."""
COMPLAINT = 0.5
"""Logit above which an answer resembles complaints; `bench/judge_unseen.py` says how often."""
CONTRADICTS = 1.0
"""Logit from which on, above or below 0, a rule's +1 or -1 is not believed."""
_LONGEST = 5
"""Letters of an n-gram."""
_NEAR = 4
"""Words from one to another that is near."""
_MEANING_LENGTH = 0.6
"""Of the vector of meanings; that of the letters is 1."""
_READ_CHARS = 160
_DIGITS = re.compile(r"\d+")
_SPACES = re.compile(r"\s+")
_WORD = re.compile(r"\w+")


class Resemblance:
    """Weights of features, and what they say of a text."""

    def __init__(self, weights_F: NDArray[Any], bias: float) -> None:
        self.arrays = weights_F, bias
        """What makes it again."""

    def logit(self, text: str) -> float:
        """Of the probability that it is a complaint."""
        weights_F, bias = self.arrays
        features = features_of(text)
        return float(weights_F[list(features)].astype("float64") @ list(features.values())) + bias


def features_of(text: str) -> dict[int, float]:
    """Places in the table with their values; never none."""
    plain = spelt(text[:_READ_CHARS]).strip()
    features = dict(_spread(set(_letters(plain)), 0, _LETTER_PLACES, 1.0))
    meanings = concepts(spelt).features(plain)
    features.update(_spread(meanings, _LETTER_PLACES, _MEANING_PLACES, _MEANING_LENGTH))
    return features


def spelt(text: str) -> str:
    """Small letters without accents, in their usual width; one number for all; simplified signs."""
    parts = unicodedata.normalize("NFKD", text).lower().replace("\u2019", "'")
    bare = "".join(letter for letter in parts if not unicodedata.combining(letter))
    return _SPACES.sub(" ", _DIGITS.sub("0", bare.translate(_simplified())))


def _letters(plain: str) -> Iterator[str]:
    framed = f"^{plain}$"
    for size in range(1, _LONGEST + 1):
        yield from (framed[at : at + size] for at in range(len(framed) - size + 1))
    words = _WORD.findall(plain)
    yield from (f"1 {word}" for word in words)
    yield from (f"2 {word} {after}" for word, after in pairwise(words))
    for at, word in enumerate(words):
        yield from (f"near {word} {later}" for later in words[at + 2 : at + 1 + _NEAR])
    yield from (f"first {word}" for word in words[:1])


def _spread(
    grams: Collection[str], first: int, places: int, length: float
) -> Iterator[tuple[int, float]]:
    """A vector of this length with the same value in the place of each gram."""
    taken = {first + zlib.crc32(gram.encode(errors="replace")) % places for gram in grams}
    value = length / math.sqrt(max(len(taken), 1))
    return ((place, value) for place in sorted(taken))


@cache
def _simplified() -> dict[int, str]:
    return single_signs("zh")


@cache
def shipped() -> Resemblance:
    """The one that comes with the package."""
    import numpy as np

    with np.load(WEIGHTS) as arrays:
        return Resemblance(arrays["weights_F"], float(arrays["bias"]))
