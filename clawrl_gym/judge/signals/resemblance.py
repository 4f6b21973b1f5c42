"""Resemblance of an answer to complaints about the reply or praise of it, in whatever words.

One softmax regression of three classes: complaint, praise, and anything else. Most of what people
say is of the third class, so its written examples are many: new requests, answers to a question of
the reply, acknowledgements, bad words about others. Its features are the letters of a text (n-grams
of 1 to 5 letters, words, and words near each other), its phrases whatever endings they have
(`phrases.py`), what its words mean (`concepts.py`) and whose they are, the request's or the reply's
(`taken_up.py`, `context_features.py`), the rule that holds, and whether the reply asked something;
hashed into one table for all languages. `python -m tools.complaints` fits it to written answers,
and shows by cross-validation what the bounds below cost. It does not know what is true.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from clawrl_gym.judge.signals.concepts import concepts
from clawrl_gym.judge.signals.context_features import context_features
from clawrl_gym.judge.signals.phrases import phrases
from clawrl_gym.judge.signals.spelling import spelt
from clawrl_gym.judge.signals.taken_up import taken_up
from clawrl_gym.judge.signals.user_rules import Hit, opening_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

WEIGHTS = Path(__file__).parent / "complaints.npz"
_LETTER_PLACES = 1 << 18
_MEANING_PLACES = 1 << 16
_PHRASE_PLACES = 1 << 18
_SCRIPT_PLACES = 1 << 17
_FIRST_PHRASE = _LETTER_PLACES + _MEANING_PLACES
_FIRST_SCRIPT = _FIRST_PHRASE + _PHRASE_PLACES
_FIRST_CONTEXT = _FIRST_SCRIPT + _SCRIPT_PLACES
_CONTEXT_PLACES = 1 << 6
_FIRST_SITUATION = _FIRST_CONTEXT + _CONTEXT_PLACES
_SITUATION_PLACES = 1 << 15
SIZE = _FIRST_SITUATION + _SITUATION_PLACES
"""Size of the table."""
COMPLAINT_BY_RULE = 0.5
"""Log-odds of a complaint above which a rule's -1 is believed."""
COMPLAINT = 1.75
"""Log-odds above which an answer is a complaint without a rule."""
COMPLAINT_AFTER_QUESTION = 7.0
"""The same of a rule's -1 after a question of the reply: "no" is an answer there."""
PRAISE_BY_RULE = -2.5
"""Log-odds of praise above which a rule's +1 is believed: praise may be meant otherwise."""
NO_COMPLAINT = 0.0
"""Log-odds of a complaint below which it is."""
PRAISE = 0.5
"""Log-odds above which an answer is praise without a rule."""
_LONGEST = 5
"""Letters of an n-gram."""
_NEAR = 4
"""Words from one to another that is near."""
_MEANING_LENGTH = 0.6
"""Length of the vector of meanings; that of the letters is 1."""
_TAKEN_UP_LENGTH = 0.6
"""Length of the vector of whose the words are."""
_PHRASE_LENGTH = 0.6
_SCRIPT_SHARE = 0.6
"""Weight of a meaning in one script, as a share of its weight in all."""
_SCRIPTS = (("kana", re.compile("[\u3041-\u30ff]")), ("han", re.compile("[\u3400-\u9fff]")),
            ("cyrillic", re.compile("[\u0400-\u04ff]")))  # fmt: skip
_CONTEXT_SHARE = 0.3
_SITUATION_LENGTH = 0.8
_ANSWER_LENGTH = 0.6
_LONG = 7
"""Bits of the number of words; longer answers are not told apart."""
_FIRST_WORDS = 6
_STEM_LETTERS = 5
_EAST = re.compile("[\u3041-\u30ff\u3400-\u9fff]")
_READ_CHARS = 160
_PASTED = re.compile(r"(?<=\w) ?:\s.*", re.DOTALL)
"""Text behind a colon."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Odds:
    """Log-odds of an answer."""

    complaint: float
    praise: float


class Likeness(Protocol):
    """Tells what an answer is like."""

    def odds(self, text: str, request: str, reply: str, hit: Hit | None) -> Odds:
        """Log-odds for a person's answer. `hit`: the rule that holds for it."""
        ...


class Resemblance:
    """Weights of features, and what they say of an answer."""

    def __init__(self, weights_FK: NDArray[Any], bias_K: NDArray[Any]) -> None:
        """K: complaint and praise, each against anything else."""
        self.weights_FK, self.bias_K = weights_FK, bias_K

    def odds(self, text: str, request: str = "", reply: str = "", hit: Hit | None = None) -> Odds:
        features = features_of(text, request, reply, hit)
        rows_FK = self.weights_FK[list(features)].astype("float64")
        complaint, praise = map(float, list(features.values()) @ rows_FK + self.bias_K)
        return Odds(complaint - _softplus(praise), praise - _softplus(complaint))


def _softplus(logit: float) -> float:
    return max(logit, 0.0) + math.log1p(math.exp(-abs(logit)))


def asks(reply: str) -> bool:
    """Whether a reply ends with a question."""
    return reply.rstrip(' \n*_"').endswith(("?", "\uff1f"))


def compared(text: str) -> str:
    """The part of an answer that is compared: text behind a colon is pasted."""
    return _PASTED.sub("", opening_of(text))


def features_of(
    text: str, request: str = "", reply: str = "", hit: Hit | None = None
) -> dict[int, float]:
    """Places in the table with their values; never none."""
    text = compared(text)
    plain = spelt(text[:_READ_CHARS]).strip()
    meanings = concepts(spelt).features(plain)
    features = dict(_spread(set(_letters(plain)), 0, _LETTER_PLACES, 1.0))
    script = next((name for name, signs in _SCRIPTS if signs.search(plain)), "latin")
    taken = taken_up(text[:_READ_CHARS], request, reply)
    for grams, length in ((meanings, _MEANING_LENGTH), (taken, _TAKEN_UP_LENGTH)):
        own = {f"{script} {gram}" for gram in grams}
        _add(features, _spread(grams, _LETTER_PLACES, _MEANING_PLACES, length))
        _add(features, _spread(own, _FIRST_SCRIPT, _SCRIPT_PLACES, _SCRIPT_SHARE * length))
    _add(features, _spread(phrases(plain), _FIRST_PHRASE, _PHRASE_PLACES, _PHRASE_LENGTH))
    context = context_features(text, request, reply) or ()
    features.update((_FIRST_CONTEXT + at, _CONTEXT_SHARE * v) for at, v in enumerate(context) if v)
    asked = asks(reply)
    situation = {*_situation(plain, asked, bool(reply)), *_of_rule(hit, asked)}
    _add(features, _spread(situation, _FIRST_SITUATION, _SITUATION_PLACES, _SITUATION_LENGTH))
    if asked:
        answered = {f"asked {gram}" for gram in (*meanings, *_words_asked(plain))}
        _add(features, _spread(answered, _FIRST_SITUATION, _SITUATION_PLACES, _ANSWER_LENGTH))
    return features


def _situation(plain: str, asked: bool, replied: bool) -> Iterator[str]:
    words = len(plain) // 2 + 1 if _EAST.search(plain) else len(plain.split())
    size = min(words.bit_length(), _LONG)
    yield f"{size} long"
    yield f"{size} long, asked {asked}"
    yield f"asked {asked}, replied {replied}"


def _of_rule(hit: Hit | None, asked: bool) -> Iterator[str]:
    if hit is None:
        yield "no rule"
        return
    yield f"rule {hit.rule}"
    yield f"value {hit.value}, lasting {hit.lasting}, otherwise {hit.otherwise}"
    yield f"value {hit.value}, asked {asked}"


def _words_asked(plain: str) -> Iterator[str]:
    words = plain.split()[:_FIRST_WORDS]
    yield from (f"word {word[:_STEM_LETTERS]}" for word in words)
    yield from (f"first {word}" for word in words[:1])
    yield f"all {plain}"


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
        return Resemblance(arrays["weights_FK"], arrays["bias_K"])
