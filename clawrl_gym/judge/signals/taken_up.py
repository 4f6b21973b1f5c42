"""The source of each word of an answer (reply, request or new), beside its meaning.

A longer word is the reply's, the request's, both's or neither's; so is a number. With the meanings
of the words around them (`concepts.py`) these are the same in every language: a question with
nothing but new words asks for more, a denial before a word of the reply speaks against it, and who
sets the request's number beside the reply's corrects it. Short words and endings are known by how
many letters stand in the request or the reply in the same order: "pro tone" says a request again.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from clawrl_gym.judge.signals.concepts import Meaning, combined, concepts
from clawrl_gym.judge.signals.spelling import spelt
from clawrl_gym.judge.signals.stems import (
    HAN_OR_KANA,
    HIRAGANA,
    LEAST_STEMS,
    NUMBER,
    READ_CHARS,
    SHORTEST,
    STEM_LETTERS,
    WORD,
    numbers_of,
    stems_of,
)

_WORD_SIGN, _NUMBER_SIGN = "@", "#"
"""First characters of the names of an answer's words and numbers; no meaning's name has them."""
_STEPS = 4
"""Shares of letters that are told apart."""
_PIECE = 3
"""Letters."""
_LONG = 63
"""Pieces; longer answers are not told apart."""
_WORDS = re.compile(r"\w+")
_MANY = 5
"""Words and numbers of an answer; more are not told apart."""


def taken_up(text: str, request: str, reply: str) -> set[str]:
    """Words and numbers by whose they are, and with the meanings near them; none where there is no
    answer, or the reply has too few words to compare."""
    reply_stems, request_stems = stems_of(reply[:READ_CHARS]), stems_of(request[:READ_CHARS])
    plain = spelt(text).strip()
    if not plain or len(reply_stems) < LEAST_STEMS:
        return set()
    marks = [
        *_of_words(plain, request_stems, reply_stems),
        *_of_numbers(text, plain, numbers_of(request), numbers_of(reply)),
    ]
    meanings = sorted([*marks, *concepts(spelt).meanings(plain)])
    features = {
        each for each in combined(meanings, plain) if _WORD_SIGN in each or _NUMBER_SIGN in each
    }
    is_question = "?" in plain
    if not is_question:
        features.update(f"no question {name}" for _, name in marks)
    whose = "".join(sorted({name for _, name in marks}))
    features.add(f"of {whose} alone, {min(len(marks), _MANY)} marks, question {is_question}")
    features.update(_covered(plain, spelt(request[:READ_CHARS]), spelt(reply[:READ_CHARS])))
    return features


def _covered(plain: str, request: str, reply: str) -> Iterator[str]:
    """Letters of an answer that stand in the request and in the reply in the same order."""
    pieces = _pieces(plain)
    if not pieces:
        return
    size = f"{min(len(pieces), _LONG).bit_length()} long, question {'?' in plain}"
    of_request, of_reply = (
        round(_STEPS * len(pieces & _pieces(text)) / len(pieces)) for text in (request, reply)
    )
    yield f"{of_request} covered by the request, {size}"
    yield f"{of_reply} covered by the reply, {size}"
    yield f"{of_request} and {of_reply} covered, {size}"
    yield f"{of_request} and {of_reply} covered"


def _pieces(plain: str) -> set[str]:
    framed = (f" {word} " for word in _WORDS.findall(plain))
    return {word[at : at + _PIECE] for word in framed for at in range(len(word) - _PIECE + 1)}


def _of_words(plain: str, request_stems: set[str], reply_stems: set[str]) -> Iterator[Meaning]:
    for word in WORD.finditer(plain):
        if not HAN_OR_KANA.match(word.group()):
            if len(word.group()) >= SHORTEST:
                stem = word.group()[:STEM_LETTERS]
                yield word.start(), _WORD_SIGN + _whose(stem, request_stems, reply_stems)
            continue
        before = ""
        for at in range(max(len(word.group()) - 1, 1)):
            pair = word.group()[at : at + 2]
            name = "" if HIRAGANA.fullmatch(pair) else _whose(pair, request_stems, reply_stems)
            if name and name != before:
                yield word.start() + at, _WORD_SIGN + name
            before = name


def _of_numbers(
    text: str, plain: str, request_numbers: set[str], reply_numbers: set[str]
) -> Iterator[Meaning]:
    """The plain text has them in the same order, and one figure for all."""
    written = NUMBER.findall(unicodedata.normalize("NFKC", text))
    for place, number in zip(NUMBER.finditer(plain), written, strict=False):
        for value in numbers_of(number):
            name = _whose(value, request_numbers, reply_numbers)
            yield place.start(), _NUMBER_SIGN + name


def _whose(piece: str, of_request: set[str], of_reply: set[str]) -> str:
    if piece in of_reply:
        return "both" if piece in of_request else "reply"
    return "request" if piece in of_request else "new"
