"""The declared language of a person's words, and the rules of each language.

Three signs, in this order. The script: kana are Japanese, letters that no declared language has
rule all of them out. A library (py3langid) compares the text with most languages that are written
much. And the words: a text of which most is neither among a language's common words nor what its
rule has matched is not read in that language, so a loan word ("super", "ok") in another one says
nothing. A text that nobody can place is not understood, and never a reward.

The rules of English are `judge.words` and `judge.replies`; each other language is a file in
`languages/`, of the same form.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import yaml
from pydantic import Field, ValidationError

from clawrl_gym.config import JudgeConfig, ReplyRule
from clawrl_gym.config.judge import Regex
from clawrl_gym.config.part import Part
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.plain_yaml import plain_values
from clawrl_gym.judge.signals.user_rules import UserRules, Writing

ENGLISH = "en"
_FOLDER = Path(__file__).parent / "languages"
_COMPARED = (
    "af ar az be bg bn bs ca cs cy da de el en eo es et eu fa fi fr ga gu he hi hr hu hy id is it "
    "ja jv ka kk km kn ko la lt lv mk ml mn mr ms mt my ne nl no pa pl pt ro ru si sk sl sq sr sv "
    "sw ta te tg th tl tr uk ur uz vi yo zh zu"
)
"""Languages among which the library chooses. Near relatives that are seldom written (Galician,
Luxembourgish, Wu) are left out: next to them no short text is certain."""
_CLEAR = 0.5
"""Probability from which on the library alone decides."""
_NEAR = 0.5
"""A language at least so likely, compared with the likeliest one, may be the text's."""
_KNOWN_IF_NEAR = 0.5
_KNOWN_IF_FAR = 0.75
"""Share of the words that must then be its own, if the library finds it near, or does not."""
_PHRASE_WORDS = 3
"""A match of no more words is a phrase of its language."""
_KANA = re.compile(r"[\u3041-\u30ff\uff66-\uff9f]")
_HAN = re.compile(r"[\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_FEW_HAN = 6
"""Most characters of an answer that may be Japanese without kana."""
_HAN_WORTH = 3
"""Letters of an alphabet that one Han character stands for."""
_CYRILLIC = re.compile(r"[\u0400-\u052f]")
_LATIN = re.compile(r"[A-Za-z\u00aa\u00ba\u00c0-\u024f\u1e00-\u1eff]")
_LETTER = re.compile(r"[^\W\d_]")
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019.][^\W\d_]+)*")
_NAMED = re.compile(r"\S*(?:://|@|\w\.\w|[/\\_=<>{}])\S*")
"""Addresses, names of files and code: in no language."""
_STRANGE_SHARE = 0.2
"""Share of letters in scripts of no declared language from which nothing is read."""
_LETTERS = {
    "en": "",
    "de": "äöüß",
    "fr": "àâæçéèêëîïôœùûüÿ",
    "es": "áéíñóúü",
    "pt": "ãáàâçéêíóôõúü",
}
"""Letters beside a to z. A word in lower case with any other letter is in another language."""
_NOT_RUSSIAN = re.compile(r"[^\u0410-\u044f\u0401\u0451'.\u2019]")


class LanguageFile(Part):
    """One language: how it is written, and what a person's answers in it say."""

    fold: dict[str, str] = Field(default_factory=dict)
    """Spellings that are the same: what stands left is read as what stands right."""
    spaces: bool = True
    """False: words stand side by side."""
    common: str = ""
    """Frequent words. A text that has few of them is not read in this language."""
    words: dict[str, tuple[Regex, ...]] = Field(default_factory=dict)
    replies: dict[str, ReplyRule] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Language:
    """A declared language, ready to read with."""

    code: str
    rules: UserRules
    writing: Writing
    common: frozenset[str]

    def knows(self, text: str, matched: str) -> float:
        """The share of a text's words that are common ones, or stand in what a rule matched.

        Names and numbers count for nothing.
        """
        words = [
            self.writing.folded(word)
            for at, word in enumerate(words_of(text))
            if at == 0 or not word[:1].isupper()
        ]
        spoken = words_of(self.writing.folded(matched))
        if len(spoken) > _PHRASE_WORDS:  # such a match holds words that no rule names
            spoken = []
        mine = self.common | set(spoken)
        begun = tuple(spoken[-1:])  # the match may end within its last word
        known = [word in mine or word.startswith(begun) for word in words]
        return sum(known) / len(words) if words else 1.0

    def speaks(self, text: str) -> bool:
        """Whether at least half of a text's words are common ones. A script without spaces is sign
        enough."""
        return not self.writing.spaces or self.knows(text, "") >= _KNOWN_IF_NEAR


class Probable(Protocol):
    """An estimate of a text's possible languages."""

    def __call__(self, text: str) -> Mapping[str, float]:
        """Probabilities by ISO 639-1 code."""
        ...


def declared(config: JudgeConfig) -> dict[str, Language]:
    """The languages of `judge.languages`, by code. Raises ConfigError."""
    return {code: _language(code, config) for code in config.languages}


def single_signs(code: str) -> dict[int, str]:
    """A language's signs that are read as others, for str.translate."""
    return {ord(sign): same for sign, same in _file(code).fold.items() if len(sign) == 1}


def _language(code: str, config: JudgeConfig) -> Language:
    file = _file(code)
    words, replies = (
        (config.words, config.replies) if code == ENGLISH else (file.words, file.replies)
    )
    writing = Writing(tuple(file.fold.items()), file.spaces, plain=code == ENGLISH)
    spoken = words_of(" ".join(each for alternatives in words.values() for each in alternatives))
    common = frozenset(map(writing.folded, [*file.common.split(), *spoken]))
    return Language(code, UserRules(words, replies, writing), writing, common)


def shipped() -> list[str]:
    """Codes of the languages that come with the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


@cache
def _file(code: str) -> LanguageFile:
    path = _FOLDER / f"{code}.yaml"
    if not path.is_file():
        raise ConfigError(
            f"got judge.languages with {code!r}, expected some of {', '.join(shipped())}"
        )
    try:
        return LanguageFile.model_validate(plain_values(path.read_text("utf-8")))
    except (ValidationError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from error


def readings(text: str, codes: Iterable[str], probable: Probable) -> dict[str, float]:
    """The languages among `codes` in which a text may be, the likeliest first.

    With each the share of the text's words that it must know for that: none where the script or the
    library is clear.
    """
    plain = _NAMED.sub(" ", unicodedata.normalize("NFKC", text))
    letters = len(_LETTER.findall(plain))
    kana, han = len(_KANA.findall(plain)), len(_HAN.findall(plain))
    cyrillic, latin = len(_CYRILLIC.findall(plain)), len(_LATIN.findall(plain))
    have = set(codes)
    if letters - kana - han - cyrillic - latin > _STRANGE_SHARE * letters:
        return {}
    if (kana + han) * _HAN_WORTH >= latin + cyrillic and kana + han:
        codes = ("ja",) if kana else ("zh", "ja") if han <= _FEW_HAN else ("zh",)
        return {code: 0.0 for code in codes if code in have}
    if any(_is_foreign(word, have) for word in words_of(plain)):
        return {}
    candidates = ("ru",) if cyrillic > latin else tuple(_LETTERS)
    return _by_library(plain, [code for code in candidates if code in have], probable)


def _is_foreign(word: str, have: set[str]) -> bool:
    """Whether a word, but for names, has letters that no declared language has."""
    if _CYRILLIC.search(word):
        return _NOT_RUSSIAN.search(word) is not None
    letters = unicodedata.normalize("NFC", word)
    mine = {letter for code in have for letter in _LETTERS.get(code, "")}
    return word.islower() and any(
        _LATIN.match(letter) and not letter.isascii() and letter not in mine for letter in letters
    )


def _by_library(text: str, codes: list[str], probable: Probable) -> dict[str, float]:
    found = probable(text)
    most = max(found.values(), default=1.0)
    needed: dict[str, float] = {}
    for code in sorted(codes, key=lambda code: -found.get(code, 0.0)):
        share = found.get(code, 0.0)
        if share >= _CLEAR:
            needed[code] = 0.0
        else:
            needed[code] = _KNOWN_IF_NEAR if share >= _NEAR * most else _KNOWN_IF_FAR
    return needed


def words_of(text: str) -> list[str]:
    """Words of letters."""
    return _WORD.findall(text)


def probabilities(text: str) -> Mapping[str, float]:
    """Probabilities by py3langid."""
    return dict(_identifier().rank(text.lower()))


def load_languages() -> None:
    """Read the model of languages, which takes a second. Blocks; any thread, before it is needed
    on an event loop."""
    _identifier()


class _Identifier(Protocol):
    def rank(self, text: str) -> list[tuple[str, float]]: ...


@cache
def _identifier() -> _Identifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(_COMPARED.split())
    loaded: _Identifier = identifier
    return loaded
