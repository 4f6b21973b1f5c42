"""How much an answer resembles complaints, whatever words it uses.

A logistic regression over the letters of a text (n-grams of 1 to 5 letters, words, and words that
stand near each other), over its phrases whatever endings they have (`phrases.py`), over what its
words mean (`concepts.py`) and over whose they are, the request's or the reply's (`taken_up.py`),
hashed into one table for all languages; then one over its
logit and how much the answer takes up of the request and the reply (`context_features.py`). Made by
`python -m tools.complaints` from written answers and exchanges; `complaints.npz` holds its weights.
It does not know what is true, so its word is weak: rules go before it, but for those that it
contradicts.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Collection, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawrl_gym.judge.concepts import concepts
from clawrl_gym.judge.context_features import context_features
from clawrl_gym.judge.phrases import phrases
from clawrl_gym.judge.spelling import spelt
from clawrl_gym.judge.taken_up import taken_up
from clawrl_gym.judge.user_rules import opening_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

WEIGHTS = Path(__file__).parent / "complaints.npz"
_LETTER_PLACES = 1 << 18
_MEANING_PLACES = 1 << 16
_PHRASE_PLACES = 1 << 18
_SCRIPT_PLACES = 1 << 17
_FIRST_PHRASE = _LETTER_PLACES + _MEANING_PLACES
_FIRST_SCRIPT = _FIRST_PHRASE + _PHRASE_PLACES
SIZE = _FIRST_SCRIPT + _SCRIPT_PLACES
"""Of the table."""
COMPLAINT = 0.5
"""Logit above which an answer resembles complaints; `bench/judge_unseen.py` says how often."""
PRAISE = -0.25
"""Logit above which a rule's +1 is not believed: praise may be meant otherwise."""
PRAISE_WITH_MORE = -2.5
"""The same of praise that goes on with what the rule has not read, as irony does."""
NO_COMPLAINT = -1.25
"""Logit below which a rule's -1 is not believed."""
UNTOLD = -1.0
"""A logit that speaks for nothing and against no rule."""
_LONGEST = 5
"""Letters of an n-gram."""
_NEAR = 4
"""Words from one to another that is near."""
_MEANING_LENGTH = 0.6
"""Of the vector of meanings; that of the letters is 1."""
_TAKEN_UP_LENGTH = 0.6
"""Of the vector of whose the words are."""
_PHRASE_LENGTH = 0.6
_SCRIPT_SHARE = 0.6
"""Of a meaning's value: what it counts for in one script, beside what it counts for in all."""
_SCRIPTS = (("kana", re.compile("[\u3041-\u30ff]")), ("han", re.compile("[\u3400-\u9fff]")),
            ("cyrillic", re.compile("[\u0400-\u04ff]")))  # fmt: skip
_READ_CHARS = 160
_PASTED = re.compile(r"(?<=\w) ?:\s.*", re.DOTALL)
"""What stands behind a colon."""
_WORD = re.compile(r"\w+")


class Resemblance:
    """Weights of features, and what they say of a text."""

    def __init__(
        self, weights_F: NDArray[Any], bias: float, context_K: NDArray[Any] | None = None
    ) -> None:
        """`context_K`: a constant, then what counts for the text's own logit and for each of
        `context_features.NAMES`; without them nothing but the text is read."""
        self.arrays = weights_F, bias, context_K
        """What makes it again."""

    def logit(self, text: str, request: str = "", reply: str = "") -> float:
        """Of the probability that an answer is a complaint about the reply."""
        weights_F, bias, context_K = self.arrays
        features = features_of(compared(text), request, reply)
        alone = float(weights_F[list(features)].astype("float64") @ list(features.values())) + bias
        context = None if context_K is None else context_features(text, request, reply)
        if context_K is None or context is None:
            return alone
        return float(context_K @ [1.0, alone, *context])


def compared(text: str) -> str:
    """What of an answer is compared: what follows a colon is pasted."""
    return _PASTED.sub("", opening_of(text))


def features_of(text: str, request: str = "", reply: str = "") -> dict[int, float]:
    """Places in the table with their values; never none."""
    plain = spelt(text[:_READ_CHARS]).strip()
    features = dict(_spread(set(_letters(plain)), 0, _LETTER_PLACES, 1.0))
    script = next((name for name, signs in _SCRIPTS if signs.search(plain)), "latin")
    taken = taken_up(text[:_READ_CHARS], request, reply)
    for grams, length in (
        (concepts(spelt).features(plain), _MEANING_LENGTH),
        (taken, _TAKEN_UP_LENGTH),
    ):
        own = {f"{script} {gram}" for gram in grams}
        _add(features, _spread(grams, _LETTER_PLACES, _MEANING_PLACES, length))
        _add(features, _spread(own, _FIRST_SCRIPT, _SCRIPT_PLACES, _SCRIPT_SHARE * length))
    _add(features, _spread(phrases(plain), _FIRST_PHRASE, _PHRASE_PLACES, _PHRASE_LENGTH))
    return features


def _add(features: dict[int, float], more: Iterator[tuple[int, float]]) -> None:
    for place, value in more:
        features[place] = features.get(place, 0.0) + value


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
    hashed = {first + zlib.crc32(gram.encode(errors="replace")) % places for gram in grams}
    value = length / math.sqrt(max(len(hashed), 1))
    return ((place, value) for place in sorted(hashed))


@cache
def shipped() -> Resemblance:
    """The one that comes with the package."""
    import numpy as np

    with np.load(WEIGHTS) as arrays:
        return Resemblance(arrays["weights_F"], float(arrays["bias"]), arrays["context_K"])
