"""Meanings of the words of a text, under names that all languages share.

`concepts.yaml` lists words by meaning and language. What is learned about a meaning in one language
applies to the others, and to words that occur in no written answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from clawrl_gym.core.plain_yaml import plain_values

_FILE = Path(__file__).parent / "concepts.yaml"
_UNSPACED = ("zh", "ja")
_WORD = re.compile(r"[\w'-]+")
_HAN_OR_KANA = re.compile("[\u3041-\u30ff\u3400-\u9fff]")
_SIGNS = "?!"
_NEAR = 7
"""Meanings from one to another that is near."""
Meaning = tuple[int, str]
"""Position and name of a meaning."""


@dataclass(frozen=True, slots=True)
class Concepts:
    """Words and their meanings, spelt as the texts are in which they are looked for."""

    words: dict[str, tuple[str, ...]]
    beginnings: dict[str, tuple[str, ...]]
    anywhere: dict[str, tuple[str, ...]]
    longest: int
    """Letters of any of these."""

    def features(self, plain: str) -> set[str]:
        """Features that combine its meanings."""
        return combined(self.meanings(plain), plain)

    def meanings(self, plain: str) -> list[Meaning]:
        """Meanings in the order of the text."""
        return sorted(self._meanings(plain))

    def _meanings(self, plain: str) -> Iterator[Meaning]:
        matches = list(_WORD.finditer(plain))
        ends = {match.end() for match in matches}
        for start in (match.start() for match in matches):
            if _HAN_OR_KANA.match(plain, start):
                continue
            names: set[str] = set()
            for end in range(start + 1, min(len(plain), start + self.longest) + 1):
                names.update(self.beginnings.get(plain[start:end], ()))
                if end in ends:
                    names.update(self.words.get(plain[start:end], ()))
            yield from ((start, name) for name in names)
        if _HAN_OR_KANA.search(plain):
            yield from self._anywhere(plain)

    def _anywhere(self, plain: str) -> Iterator[Meaning]:
        for start in range(len(plain)):
            names: set[str] = set()
            for end in range(start + 1, min(len(plain), start + self.longest) + 1):
                names.update(self.anywhere.get(plain[start:end], ()))
            yield from ((start, name) for name in names)


def combined(meanings: Sequence[Meaning], plain: str) -> set[str]:
    """Meanings, pairs of near ones, the first and the last, and those beside a sign."""
    names = [name for _, name in meanings]
    features = {f"is {name}" for name in names}
    features.update(f"next {name} {after}" for name, after in pairwise(names))
    features.update(
        f"near {name} {later}"
        for at, (place, name) in enumerate(meanings)
        for later_place, later in meanings[at + 1 : at + _NEAR]
        if later_place != place
    )
    features.update(f"sign {sign} {name}" for sign in _SIGNS if sign in plain for name in names)
    if names:
        features.update((f"first {names[0]}", f"last {names[-1]}"))
    return features


@cache
def concepts(spelt: Callable[[str], str]) -> Concepts:
    """The concepts that come with the package, in a spelling."""
    words: dict[str, tuple[str, ...]] = {}
    beginnings: dict[str, tuple[str, ...]] = {}
    anywhere: dict[str, tuple[str, ...]] = {}
    for name, languages in plain_values(_FILE.read_text("utf-8")).items():
        for code, listed in languages.items():
            for word in listed.split():
                bare = spelt(word.rstrip("*").replace("_", " "))
                if code in _UNSPACED:
                    kind = anywhere
                else:
                    kind = beginnings if word.endswith("*") else words
                kind[bare] = (*kind.get(bare, ()), name)
    longest = max(map(len, (*words, *beginnings, *anywhere)))
    return Concepts(words, beginnings, anywhere, longest)
