"""What a person says about the reply before, in any of the declared languages, or that it is not
understood.

Each language in which the words may be reads them by its own rules. Where they contradict each
other, or where the language is not a declared one, nothing is said: the judge abstains. Where none
of the rules holds, an answer that resembles complaints (`resemblance.py`) is a weak -1, any other
an abstention; so is a rule's verdict that the likeness contradicts. Only a rule that holds makes a
neutral or a good verdict.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from clawrl_gym.config import JudgeConfig
from clawrl_gym.core.types import VerdictDetail
from clawrl_gym.judge.interface import Finding
from clawrl_gym.judge.language import (
    ENGLISH,
    Probable,
    declared,
    probabilities,
    readings,
    words_of,
)
from clawrl_gym.judge.resemblance import (
    COMPLAINT,
    NO_COMPLAINT,
    PRAISE,
    PRAISE_WITH_MORE,
    Resemblance,
    shipped,
)
from clawrl_gym.judge.spelling import spelt
from clawrl_gym.judge.user_rules import Hit, opening_of, restates

_LETTER = re.compile(r"[^\W\d_]")
_FEW_WORDS = 4
"""An answer of no more may be too short to tell its language."""
_UNDECIDED = 0.4
"""Probability up to which the likeliest language is a guess."""
_MATCHED_CHARS = 80
_SENTENCE_END = re.compile(r"[.!?\n。\uff01\uff1f…]")
_FEW_SIGNS = 6
"""More than so many say something beside the praise that a sentence begins with."""
_LANGUAGE = "language"
_NONE = "none"
_RESEMBLES = "resembles"


class Speech:
    """Reads a person's answers."""

    def __init__(
        self,
        config: JudgeConfig,
        probable: Probable = probabilities,
        likeness: Callable[[], Resemblance] = shipped,
    ) -> None:
        self._languages = declared(config)
        self._probable = probable
        self._lasting_weight = config.lasting_weight
        self._resembling_weight = config.resembling_weight
        self._likeness = likeness

    def find(self, text: str, request: str, reply: str) -> Finding:
        """The value of an answer, and the rule that gave it; None where it is not understood."""
        opening = opening_of(text)
        after_question = reply.rstrip(' \n*_"').endswith("?")
        read, hits = self._read(opening, after_question)
        decided = {code: hit for code, hit in hits.items() if not hit.otherwise}
        values = {hit.value for hit in decided.values()}
        if len(values) > 1 and values != {0, -1}:
            return _unknown(_NONE, f"{' and '.join(decided)} say different things")
        if decided:
            code = min(decided, key=lambda each: decided[each].value)
            hit = decided[code]
            if read and self._is_unlike(code, hit, opening, self._logit(text, request, reply)):
                if not hit.lasting:
                    return _unknown(_NONE, f"{hit.rule} holds, and the whole is not like it")
                hit = replace(hit, value=min(hit.value, 0))  # what is wanted from now on stays
            return self._known(code, hit)
        read = read or self._as_before(opening, request)
        if read and restates(text, request):
            return Finding(-1, {"rule": "restated"})
        for code, hit in hits.items():
            return self._known(code, hit)
        if read and not after_question and self._resembles(text, request, reply):
            detail: VerdictDetail = {"rule": _RESEMBLES, "said": opening[:_MATCHED_CHARS]}
            return Finding(-1, detail, self._resembling_weight)
        if read:
            return _unknown(_NONE, f"no rule of {' or '.join(read)} knows what was said")
        return _unknown(_LANGUAGE, "its language is not told, or not one of judge.languages")

    def _resembles(self, text: str, request: str, reply: str) -> bool:
        return self._resembling_weight > 0 and self._logit(text, request, reply) > COMPLAINT

    def _is_unlike(self, code: str, hit: Hit, opening: str, logit: float) -> bool:
        """Whether the whole of an answer speaks against the rule that holds."""
        if hit.value == 0:
            return False
        if hit.value == -1:
            return logit < NO_COMPLAINT
        return logit > self._praise_bound(code, hit, opening)

    def _praise_bound(self, code: str, praise: Hit, opening: str) -> float:
        """The logit up to which praise is believed, by how its sentence goes on."""
        hit: Hit | None = praise
        more = "\n".join(map(spelt, opening.splitlines()))
        while hit is not None and hit.value == 1:
            if hit.opens:
                return PRAISE if hit is praise else COMPLAINT  # then two rules say the same
            _, _, after = more.partition(spelt(hit.words))
            more = _SENTENCE_END.split(after, 1)[0].strip(",;:- ")
            if len(more) <= _FEW_SIGNS:
                return PRAISE
            hit = self._hit(code, more, False)
        return PRAISE_WITH_MORE

    def _logit(self, text: str, request: str, reply: str) -> float:
        return self._likeness().logit(text, request, reply)

    def _read(self, opening: str, after_question: bool) -> tuple[list[str], dict[str, Hit]]:
        """The languages it is in, and what holds in any."""
        if not _LETTER.search(opening):  # thumbs and smiles
            hit = self._hit(ENGLISH, opening, after_question)
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

    def _hit(self, code: str, opening: str, after_question: bool) -> Hit | None:
        language = self._languages.get(code)
        return None if language is None else language.rules.find(opening, after_question)


def _unknown(rule: str, reason: str) -> Finding:
    return Finding(None, {"rule": rule, "reason": reason})
