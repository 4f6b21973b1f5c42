"""A person's verdict on the reply before, in any of the declared languages, or that it is not
understood.

Each language in which the words may be reads them by its own rules. Where they contradict each
other, or where the language is not a declared one, nothing is said: the judge abstains. A rule's -1
or +1 counts where the whole answer is also like a complaint or like praise (`resemblance.py`). What
no rule knows and is surely like one is a weak verdict, anything else an abstention. After a
question of the reply a complaint needs both: what comes then mostly answers it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from clawrl_gym.config import JudgeConfig
from clawrl_gym.core.types import VerdictDetail
from clawrl_gym.judge.interface import Finding
from clawrl_gym.judge.signals.language import (
    ENGLISH,
    Probable,
    declared,
    probabilities,
    readings,
    words_of,
)
from clawrl_gym.judge.signals.resemblance import (
    COMPLAINT,
    COMPLAINT_AFTER_QUESTION,
    COMPLAINT_BY_RULE,
    NO_COMPLAINT,
    PRAISE,
    PRAISE_BY_RULE,
    Likeness,
    Odds,
    asks,
    shipped,
)
from clawrl_gym.judge.signals.user_rules import Hit, opening_of, restates

_LETTER = re.compile(r"[^\W\d_]")
_FEW_WORDS = 4
"""An answer of no more may be too short to tell its language."""
_UNDECIDED = 0.4
"""Probability up to which the likeliest language is a guess."""
_MATCHED_CHARS = 80
_LANGUAGE = "language"
_NONE = "none"
_RESEMBLES = "resembles"


class Speech:
    """Reads a person's answers."""

    def __init__(
        self,
        config: JudgeConfig,
        probable: Probable = probabilities,
        likeness: Callable[[], Likeness] = shipped,
    ) -> None:
        self._languages = declared(config)
        self._probable = probable
        self._lasting_weight = config.lasting_weight
        self._resembling_weight = config.resembling_weight
        self._likeness = likeness

    def find(self, text: str, request: str, reply: str) -> Finding:
        """The value of an answer, and the rule that gave it; None where it is not understood."""
        opening, asked = opening_of(text), asks(reply)
        read, hits = self._read(opening, asked)
        decided = {code: hit for code, hit in hits.items() if not hit.otherwise}
        values = {hit.value for hit in decided.values()}
        if len(values) > 1 and values != {0, -1}:
            return _unknown(_NONE, f"{' and '.join(decided)} say different things")
        code = min(decided, key=lambda each: decided[each].value, default=None)
        if code is None:
            read = read or self._as_before(opening, request)
            if read and restates(text, request):
                return Finding(-1, {"rule": "restated"})
            code = next(iter(hits), None)
        hit = None if code is None else hits[code]
        if not read:
            if code is not None and hit is not None:  # thumbs and smiles
                return self._known(code, hit)
            return _unknown(_LANGUAGE, "its language is not told, or not one of judge.languages")
        value = _value(hit, self._odds(text, request, reply, hit), asked)
        if value is None and hit is not None and not asked:
            value = self._without_its_beginning(opening, request, reply, hit)
        if value == 1 and any(self._languages[each].rules.takes_back(opening) for each in read):
            value = None
        if code is not None and hit is not None:
            return self._of_rule(code, hit, value, opening)
        is_guess = value == 1 and not self._is_certain(opening, read)
        if value is None or is_guess or not self._resembling_weight:
            return _unknown(_NONE, f"no rule of {' or '.join(read)} knows what was said")
        return self._resembling(value, opening)

    def _without_its_beginning(
        self, opening: str, request: str, reply: str, hit: Hit
    ) -> Literal[-1] | None:
        """-1 where the words of a -1 rule are a complaint by themselves: the "no" before them,
        which begins many other answers, must not hide them."""
        at = opening.lower().find(hit.words.lower())
        if hit.value != -1 or at <= 0:
            return None
        odds = self._odds(opening[at:], request, reply, hit)
        return -1 if odds.complaint > COMPLAINT_BY_RULE else None

    def _odds(self, text: str, request: str, reply: str, hit: Hit | None) -> Odds:
        return self._likeness().odds(text, request, reply, hit)

    def _of_rule(self, code: str, hit: Hit, value: Literal[-1, 1] | None, opening: str) -> Finding:
        """The finding for an answer for which a rule holds, and the value that the whole is
        like."""
        if hit.value == 0 and not hit.otherwise and value == 1:
            value = None  # a rule of 0 is an exception to praise
        corrects = hit.lasting and hit.value == -1 and value is None
        if value == hit.value or (hit.value == 0 and value is None) or corrects:
            return self._known(code, hit)
        if value is not None and self._resembling_weight and not (hit.lasting and value == 1):
            return self._resembling(value, opening, hit.lasting)
        if hit.lasting:  # what is wanted from now on stays
            return self._known(code, replace(hit, value=0))
        return _unknown(_NONE, f"{hit.rule} holds, and the whole is not like it")

    def _resembling(self, value: Literal[-1, 1], opening: str, lasting: bool = False) -> Finding:
        detail: VerdictDetail = {"rule": _RESEMBLES, "said": opening[:_MATCHED_CHARS]}
        if lasting:
            detail["lasting"] = True
        return Finding(value, detail, self._resembling_weight)

    def _read(self, opening: str, after_question: bool) -> tuple[list[str], dict[str, Hit]]:
        """The languages it is in, and what holds in any."""
        if not _LETTER.search(opening):  # thumbs and smiles
            language = self._languages.get(ENGLISH)
            hit = None if language is None else language.rules.find(opening, after_question)
            return [], {} if hit is None else {ENGLISH: hit}
        read: list[str] = []
        hits: dict[str, Hit] = {}
        for code, needed in readings(opening, self._languages, self._probable).items():
            language = self._languages[code]
            hit = language.rules.find(opening, after_question)
            known = language.knows(opening, "" if hit is None else hit.words) if needed else 1.0
            if known < needed:
                continue
            read.append(code)
            if hit is not None and not (hit.otherwise and known < 1):
                hits[code] = hit
        return read, hits

    def _is_certain(self, opening: str, read: list[str]) -> bool:
        """Whether an answer is surely in one of these languages: the library is clear, and half of
        the words are known. Romanised Hindi with "thanks" in it looks like English to both."""
        needed = readings(opening, self._languages, self._probable)
        return any(
            not needed.get(code, 1.0) and self._languages[code].speaks(opening) for code in read
        )

    def _as_before(self, opening: str, request: str) -> list[str]:
        """The request's language, for an answer too short to tell its own. No rule reads it."""
        if not 0 < len(words_of(opening)) <= _FEW_WORDS:
            return []
        if max(self._probable(opening).values(), default=0) > _UNDECIDED:
            return []
        asked = readings(opening_of(request), self._languages, self._probable)
        may_be = readings(opening, self._languages, self._probable)
        return [code for code, needed in asked.items() if not needed and code in may_be]

    def _known(self, code: str, hit: Hit) -> Finding:
        detail: VerdictDetail = {"rule": hit.rule, "said": hit.words[:_MATCHED_CHARS]}
        if code != ENGLISH:
            detail["language"] = code
        if hit.lasting:
            detail["lasting"] = True
        is_mild = hit.lasting and hit.value == -1
        return Finding(hit.value, detail, self._lasting_weight if is_mild else 1.0)


def _value(hit: Hit | None, odds: Odds, asked: bool) -> Literal[-1, 1] | None:
    """The side that an answer resembles; None: neither, or not surely enough."""
    ruled = None if hit is None else hit.value
    complaint = COMPLAINT_BY_RULE if ruled == -1 else COMPLAINT
    if asked:
        complaint = COMPLAINT_AFTER_QUESTION if ruled == -1 else math.inf
    if odds.complaint > complaint:
        return -1
    if ruled == 1:
        is_praise = odds.praise > PRAISE_BY_RULE and odds.complaint < NO_COMPLAINT
    else:
        is_praise = odds.praise > PRAISE
    return 1 if is_praise else None


def _unknown(rule: str, reason: str) -> Finding:
    return Finding(None, {"rule": rule, "reason": reason})
