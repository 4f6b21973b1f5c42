"""How much an answer resembles complaints, whatever words it uses.

A logistic regression over the letters of a text: n-grams of 1 to 5 letters, words, and words that
stand near each other, hashed into one table for all languages. Made by `python -m tools.complaints`
from written answers; `complaints.npz` holds its weights. It knows nothing of what was asked or
replied, so its word is weak: rules go before it, but for those that it strongly contradicts.
"""

from __future__ import annotations

import math
import re
import unicodedata
import zlib
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

WEIGHTS = Path(__file__).parent / "complaints.npz"
SIZE = 1 << 18
"""Of the table."""
COMPLAINT = 1.0
"""Logit above which an answer resembles complaints; `python -m tools.complaints` says how often."""
CONTRADICTS = 2.5
"""Logit from which on, above or below 0, a rule's +1 or -1 is not believed."""
_LONGEST = 5
"""Letters of an n-gram."""
_NEAR = 4
"""Words from one to another that is near."""
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
        features = features_of(text)
        weights_F, bias = self.arrays
        return float(weights_F[features].sum(dtype="float64")) / math.sqrt(len(features)) + bias


def features_of(text: str) -> list[int]:
    """Places in the table, each once; never none."""
    plain = _SPACES.sub(" ", _DIGITS.sub("0", _folded(text[:_READ_CHARS]))).strip()
    framed = f"^{plain}$"
    grams = {
        framed[at : at + size]
        for size in range(1, _LONGEST + 1)
        for at in range(len(framed) - size + 1)
    }
    words = _WORD.findall(plain)
    grams.update(f"1 {word}" for word in words)
    grams.update(f"2 {word} {after}" for word, after in pairwise(words))
    grams.update(
        f"near {word} {later}"
        for at, word in enumerate(words)
        for later in words[at + 2 : at + 1 + _NEAR]
    )
    grams.update(f"first {word}" for word in words[:1])
    return sorted({zlib.crc32(gram.encode(errors="replace")) % SIZE for gram in grams})


def _folded(text: str) -> str:
    """Small letters without accents, in their usual width."""
    parts = unicodedata.normalize("NFKD", text).lower()
    return "".join(letter for letter in parts if not unicodedata.combining(letter))


@cache
def shipped() -> Resemblance:
    """The one that comes with the package."""
    import numpy as np

    with np.load(WEIGHTS) as arrays:
        return Resemblance(arrays["weights_F"], float(arrays["bias"]))
