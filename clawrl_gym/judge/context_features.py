"""What an answer takes up of the request and of the reply before it, in any language.

Who complains names what the reply did ("delete?? those were the originals"), what it left out of
the request ("under 60, I said"), or another number than its own; who goes on mostly speaks of
something else. A word is known again by its first letters, Chinese and Japanese ones by pairs of
signs. Long replies share words with any answer by chance, so what they share counts less.
"""

from __future__ import annotations

import re
import unicodedata

from clawrl_gym.judge.spelling import spelt

NAMES = (
    "words of the reply",
    "share of words of the reply",
    "words of the request",
    "share of words of the request",
    "words of both",
    "words of neither",
    "a number",
    "a number of the reply",
    "a number of the request",
    "another number than the reply's",
    "a number after none",
    "a question",
    "a question with words of the reply",
    "a question with words of the request",
    "a quotation of the reply",
    "signs of surprise",
    "an unfinished sentence",
)
"""Of the values, in their order."""
_ANSWER_CHARS = 300
_READ_CHARS = 2000
"""Of the request and of the reply."""
_LEAST_STEMS = 3
"""A reply of fewer is not compared."""
_PLENTY_STEMS = 60
"""A reply of more shares words by chance."""
_STEM_LETTERS = 5
_SHORTEST = 4
"""Letters of a word that is compared."""
_WORD = re.compile(r"[^\W\d_]+")
_HAN_OR_KANA = re.compile("[\u3041-\u30ff\u3400-\u9fff]+")
_HIRAGANA = re.compile("[\u3041-\u309f]+")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_THOUSANDS = re.compile(r"[.,](?=\d{3}\b)")
_QUOTATION = re.compile(
    '["\u201c\u201d\u201e\u00ab\u300c\u300e]'
    '([^"\u201c\u201d\u201e\u00ab\u00bb\u300c\u300d\u300e\u300f]{2,200})'
    '["\u201c\u201d\u00bb\u300d\u300f]'
)
_SURPRISE = re.compile(r"[?!]\s?[?!]")


def context_features(text: str, request: str, reply: str) -> list[float] | None:
    """A value for each of NAMES; None where the reply has too few words to compare."""
    reply_stems, request_stems = _stems(reply[:_READ_CHARS]), _stems(request[:_READ_CHARS])
    if len(reply_stems) < _LEAST_STEMS:
        return None
    text = unicodedata.normalize("NFKC", text[:_ANSWER_CHARS])
    stems, numbers = _stems(text), _numbers(text)
    reply_numbers, request_numbers = _numbers(reply), _numbers(request)
    of_reply, of_request = stems & reply_stems - request_stems, stems & request_stems - reply_stems
    of_both = stems & reply_stems & request_stems
    weight = min(1.0, _PLENTY_STEMS / len(reply_stems))
    part = weight / max(len(stems), 1)
    fresh = numbers - reply_numbers - request_numbers
    is_question = "?" in text
    quoted = (_stems(quotation) for quotation in _QUOTATION.findall(text))
    return [
        weight * bool(of_reply),
        part * len(of_reply),
        weight * bool(of_request),
        part * len(of_request),
        weight * bool(of_both),
        float(bool(stems) and not of_reply | of_request | of_both),
        float(bool(numbers)),
        weight * bool(numbers & reply_numbers - request_numbers),
        weight * bool(numbers & request_numbers - reply_numbers),
        float(bool(fresh and reply_numbers)),
        float(bool(fresh and not reply_numbers)),
        float(is_question),
        weight * (is_question and bool(of_reply)),
        weight * (is_question and bool(of_request)),
        float(any(words and words <= reply_stems for words in quoted)),
        float(bool(_SURPRISE.search(text))),
        float("..." in text),
    ]


def _stems(text: str) -> set[str]:
    """Beginnings of its longer words, and pairs of signs that are not grammar alone."""
    stems: set[str] = set()
    for word in _WORD.findall(spelt(text)):
        for run in _HAN_OR_KANA.findall(word):
            pairs = {run[at : at + 2] for at in range(max(len(run) - 1, 1))}
            stems.update(pair for pair in pairs if not _HIRAGANA.fullmatch(pair))
        letters = _HAN_OR_KANA.sub(" ", word).split()
        stems.update(part[:_STEM_LETTERS] for part in letters if len(part) >= _SHORTEST)
    return stems


def _numbers(text: str) -> set[str]:
    """In one way of writing."""
    plain = unicodedata.normalize("NFKC", text[:_READ_CHARS])
    numbers = (_THOUSANDS.sub("", number) for number in _NUMBER.findall(plain))
    return {number.replace(",", ".").lstrip("0") for number in numbers}
