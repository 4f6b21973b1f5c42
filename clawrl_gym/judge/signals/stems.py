"""Words and numbers by which an answer is compared with the request and the reply.

A word is known again by its first letters, Chinese and Japanese ones by pairs of signs.
"""

from __future__ import annotations

import re
import unicodedata

from clawrl_gym.judge.signals.spelling import spelt

READ_CHARS = 2000
"""Characters of a text that are read."""
LEAST_STEMS = 3
"""A reply of fewer is not compared."""
STEM_LETTERS = 5
SHORTEST = 4
"""Letters of a word that is compared."""
WORD = re.compile(r"[^\W\d_]+")
HAN_OR_KANA = re.compile("[\u3041-\u30ff\u3400-\u9fff]+")
HIRAGANA = re.compile("[\u3041-\u309f]+")
NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_THOUSANDS = re.compile(r"[.,](?=\d{3}\b)")


def stems_of(text: str) -> set[str]:
    """Beginnings of its longer words, and pairs of signs that are not grammar alone."""
    stems: set[str] = set()
    for word in WORD.findall(spelt(text)):
        for run in HAN_OR_KANA.findall(word):
            pairs = {run[at : at + 2] for at in range(max(len(run) - 1, 1))}
            stems.update(pair for pair in pairs if not HIRAGANA.fullmatch(pair))
        letters = HAN_OR_KANA.sub(" ", word).split()
        stems.update(part[:STEM_LETTERS] for part in letters if len(part) >= SHORTEST)
    return stems


def numbers_of(text: str) -> set[str]:
    """The numbers of a text, in one spelling."""
    plain = unicodedata.normalize("NFKC", text[:READ_CHARS])
    numbers = (_THOUSANDS.sub("", number) for number in NUMBER.findall(plain))
    return {number.replace(",", ".").lstrip("0") for number in numbers}
