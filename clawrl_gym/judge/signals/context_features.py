"""Features of what an answer takes up from the request and the reply before it, in any language.

Who complains names what the reply did ("delete?? those were the originals"), what it left out of
the request ("under 60, I said"), or another number than its own; who continues mostly speaks of
something else. A word is known again by its first letters, Chinese and Japanese ones by pairs of
signs. Long replies share words with any answer by chance, so what they share counts less.
"""

from __future__ import annotations

import re
import unicodedata

from clawrl_gym.judge.signals.stems import LEAST_STEMS, READ_CHARS, numbers_of, stems_of

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
"""Names of the values, in order."""
_ANSWER_CHARS = 300
_PLENTY_STEMS = 60
"""A reply of more shares words by chance."""
_QUOTATION = re.compile(
    '["\u201c\u201d\u201e\u00ab\u300c\u300e]'
    '([^"\u201c\u201d\u201e\u00ab\u00bb\u300c\u300d\u300e\u300f]{2,200})'
    '["\u201c\u201d\u00bb\u300d\u300f]'
)
_SURPRISE = re.compile(r"[?!]\s?[?!]")


def context_features(text: str, request: str, reply: str) -> list[float] | None:
    """A value for each of NAMES; None where the reply has too few words to compare."""
    reply_stems, request_stems = stems_of(reply[:READ_CHARS]), stems_of(request[:READ_CHARS])
    if len(reply_stems) < LEAST_STEMS:
        return None
    text = unicodedata.normalize("NFKC", text[:_ANSWER_CHARS])
    stems, numbers = stems_of(text), numbers_of(text)
    reply_numbers, request_numbers = numbers_of(reply), numbers_of(request)
    of_reply, of_request = stems & reply_stems - request_stems, stems & request_stems - reply_stems
    of_both = stems & reply_stems & request_stems
    weight = min(1.0, _PLENTY_STEMS / len(reply_stems))
    part = weight / max(len(stems), 1)
    fresh = numbers - reply_numbers - request_numbers
    is_question = "?" in text
    quoted = (stems_of(quotation) for quotation in _QUOTATION.findall(text))
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
