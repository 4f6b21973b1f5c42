"""The verdict of a person's answer on the reply before it, by the rules of one language.

Only the opening is read, clause by clause. Quotations, code, and text pasted behind a colon are
left out: they are what the person talks about, not what the person says. The request said once more
is a correction too: the reply did not do it. Praise that asks for amends in the same breath
("great, now put them back") says nothing.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from clawrl_gym.config import ReplyRule
from clawrl_gym.judge.signals.patterns import Words, compiled

_KEY = "judge.words"
_READ_CHARS = 4000
"""Characters of an answer that are read, before its quotations are removed."""
_OPENING_CHARS = 300
_STRAIGHT = str.maketrans(
    "\u2018\u2019\u02bc\u201c\u201d\u201e\u00ab\u00bb\u300c\u300d\u300e\u300f\u00a1\u00bf",
    "'''" + '"' * 9 + "  ",
)
_WRAPPED = re.compile(r"\s*<([a-z][\w-]{0,40})(?: [^<>]{0,200})?>(.*)</\1>\s*", re.DOTALL | re.I)
"""An element that is all of a text: some clients put a person's words in one."""
_ROLE = "(?:system|assistant|developer|tool)"
_QUOTED = re.compile(
    r"```.*?(?:```|\Z)"
    r"|`[^`\n]*`"
    r"|^[ \t]*>.*?$"
    r'|"[^"]{0,2000}"'
    r"|(?<!\w)'[^'\n]{1,200}'(?!\w)"
    # Mark-up, control tokens, and what is put into the mouth of a role
    r"|<\|(?:im_)?start[^|>\n]{0,40}\|>.*\Z|<\|[^|>\n]{1,40}\|>|\[/?INST\]"
    r"|<([a-z][\w-]{0,40})(?: [^<>]{0,200})?>.{0,2000}?</\1>"
    r"|</?[a-z][\w-]{0,40}(?: [^<>]{0,200})?/?>"
    r"|(?:^|(?<=>))[ \t]*(?:#{1,6} ?)?"
    rf"(?:\[{_ROLE}\]|{_ROLE}:)[^\n]*"
    r"|\\[a-zA-Z]+\{[^}\n]{0,200}\}",  # TeX
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
_EAST = r"\u3041-\u30ff\u3400-\u9fff"
_CLAUSE_END = (
    r"(?<=[.!?;,:])\s+|\s*\n\s*|\s+-+\s+|\s+(?={joint}\b)"
    rf"|(?<=[\u3002\u3001])|(?<=[{_EAST}][.!?;,:])"
)
_NO_WEIGHT = r"{no_weight}(?:[,.!;]+ *| +|$)"
_NO_WEIGHT_EAST = r"{no_weight}[,.!;\u3002\u3001]* *"
_NEVER = "(?!)"
_ACCENT = re.compile("[\u0300-\u036f]")
_PASTING = re.compile(r"\w ?:$")
_GAP = "_"
"""Stands for a quotation."""
_WORD = re.compile(r"\w+(?:[./'-]\w+)*|[-+*/=<>%^]")
_FILLER = re.compile(
    "a|again|also|am|an|and|are|asked|at|be|but|can|could|do|does|for|get|give|have|hey|hi|i|i'd|"
    "i'm|in|is|it|just|like|me|meant|my|no|now|of|oh|ok|okay|on|once|one|please|really|repeat|"
    "said|same|so|still|tell|than|that|the|then|there|this|time|to|try|want|wanted|was|we|well|"
    "what|what's|would|yes|you|your"
)
_LEAST = 3
"""Words that a request must have to be known again."""
_LEAST_SIGNS = 5
"""The same in Chinese and Japanese, which write without spaces."""
_HAN_OR_KANA = re.compile(f"[{_EAST}]")
_SIMILAR = 0.8
"""Two spellings at least so similar are one word, mistyped."""
_LONGEST = 1.5
"""A request said again has grown by no more than this factor, and one word."""


@dataclass(frozen=True, slots=True)
class Writing:
    """The spelling of a language, reduced so that one form stands for all."""

    fold: tuple[tuple[str, str], ...] = ()
    """Spellings that are the same."""
    spaces: bool = True
    plain: bool = False
    """True: nothing is folded."""

    def folded(self, text: str) -> str:
        """Small letters without accents. Patterns are folded as texts are."""
        if self.plain:
            return text
        parts = unicodedata.normalize("NFD", text.lower())
        bare = unicodedata.normalize("NFC", _ACCENT.sub("", parts))
        for spelling, same in self.fold:
            bare = bare.replace(spelling, same)
        return bare


@dataclass(frozen=True, slots=True)
class Hit:
    """A rule that holds."""

    rule: str
    value: Literal[-1, 0, 1]
    words: str
    """The words that it matched."""
    lasting: bool = False
    """The person wants something for the future, too."""
    otherwise: bool = False
    """No rule about the reply holds."""


class UserRules:
    """The rules of one language."""

    def __init__(self, words: Words, replies: Mapping[str, ReplyRule], writing: Writing) -> None:
        self._writing = writing
        weightless = _NO_WEIGHT if writing.spaces else _NO_WEIGHT_EAST
        no_weight = weightless if words.get("no_weight") else ""
        self._no_weight = compiled(no_weight, words, _KEY, writing.folded)
        joints = words if words.get("joint") else {"joint": ("but",)}
        self._clause_end = compiled(_CLAUSE_END, joints, _KEY, writing.folded)
        taken_back = "{taken_back}" if words.get("taken_back") else _NEVER
        self._taken_back = compiled(taken_back, words, _KEY, writing.folded)
        self._rules = [_UserRule(name, rule, words, writing) for name, rule in replies.items()]

    def takes_back(self, opening: str) -> bool:
        """Whether an answer's opening asks for amends or names a damage: it is not praise then."""
        return self._taken_back.search(self._writing.folded(opening)) is not None

    def find(self, opening: str, after_question: bool) -> Hit | None:
        """The rule that decides about an answer's opening, if any holds."""
        opening = self._writing.folded(opening)
        clauses = [
            (clause, self._weighty(clause)) for clause in clauses_of(opening, self._clause_end)
        ]
        decisive: dict[int, Hit] = {}
        lasting = otherwise = None
        for rule in self._rules:
            words = rule.finds(opening, clauses, after_question)
            if words is None:
                continue
            hit = Hit(rule.name, rule.value, words, rule.lasting, rule.otherwise)
            if rule.lasting:
                lasting = lasting or hit
            elif rule.otherwise:
                otherwise = otherwise or hit
            else:
                decisive.setdefault(rule.value, hit)
        if 1 in decisive and self._taken_back.search(opening):
            del decisive[1]
        first = next((decisive[value] for value in (0, -1, 1) if value in decisive), None)
        if lasting and first:
            return replace(first, lasting=True)
        return first or lasting or otherwise

    def _weighty(self, clause: str) -> str:
        """The clause without the words of no weight that it begins with."""
        while (match := self._no_weight.match(clause)) and match.end():
            clause = clause[match.end() :]
        return clause


class _UserRule:
    """One compiled rule."""

    def __init__(self, name: str, rule: ReplyRule, words: Words, writing: Writing) -> None:
        self.name = name
        self.value = rule.value
        self.lasting = rule.lasting
        self.otherwise = rule.otherwise
        self._first = rule.first
        self._rest_chars = rule.rest_chars
        self._after_question = rule.after_question
        self._patterns = [compiled(each, words, _KEY, writing.folded) for each in rule.patterns]
        self._unless = [compiled(each, words, _KEY, writing.folded) for each in rule.unless]

    def finds(
        self, opening: str, clauses: list[tuple[str, str]], after_question: bool
    ) -> str | None:
        """The words that match; None when it does not hold. Clauses come whole and weighty."""
        if after_question and not self._after_question:
            return None
        for clause, weighty in clauses:
            words = self._begins(clause) or self._begins(weighty)
            if words:
                excepted = any(pattern.search(opening) for pattern in self._unless)
                return None if excepted else words
            if self._first and weighty.strip(f".,!; {_GAP}"):
                return None
        return None

    def _begins(self, clause: str) -> str | None:
        matches = (pattern.match(clause) for pattern in self._patterns)
        return next((each.group() for each in matches if each and self._fits(clause, each)), None)

    def _fits(self, clause: str, match: re.Match[str]) -> bool:
        return self._rest_chars is None or len(clause) - match.end() <= self._rest_chars


def opening_of(text: str) -> str:
    """The opening of an answer, which is all that is read."""
    return own_words(text)[:_OPENING_CHARS]


def own_words(text: str) -> str:
    """A person's own words in a text: without quotations, and with straight quotation marks."""
    plain = unicodedata.normalize("NFKC", text[:_READ_CHARS]).translate(_STRAIGHT)
    while wrapped := _WRAPPED.fullmatch(plain):
        plain = wrapped[2]
    return _QUOTED.sub(f" {_GAP} ", plain).strip()


def clauses_of(opening: str, clause_end: re.Pattern[str]) -> list[str]:
    """The clauses up to a colon: what follows it is pasted."""
    clauses = []
    for clause in clause_end.split(opening):
        if clause.strip():
            clauses.append(" ".join(clause.split()))
        if _PASTING.search(clause):
            break
    return clauses


def restates(text: str, request: str) -> bool:
    """Whether the text is the request in the same words, or holds every word of weight in it.

    Numbers, signs and names (what is not in lower case) must be the same, other words may have
    slips of the pen; so the same kind of request with another number is another request.
    """
    if _in_one_piece(request) in _in_one_piece(text) and _HAN_OR_KANA.search(request):
        return _LEAST_SIGNS <= len(_in_one_piece(request)) >= len(_in_one_piece(text)) / _LONGEST
    again, first = _words(text), _words(request)
    if _lower(again) == _lower(first):
        return len(first) >= _LEAST
    names = {word.lower() for word in (*again[1:], *first[1:]) if not word.islower()}
    request_words, words = _weighty(first), _weighty(again)
    if len(request_words) < _LEAST or len(words) > _LONGEST * len(request_words) + 1:
        return False
    new = words - request_words - names
    return all(
        word in words or (word not in names and _mistyped(word, new)) for word in request_words
    )


def _in_one_piece(text: str) -> str:
    return "".join(sign for sign in text[:_READ_CHARS] if sign.isalnum())


def _words(text: str) -> list[str]:
    return _WORD.findall(text[:_READ_CHARS].replace("\u2019", "'"))


def _lower(words: list[str]) -> list[str]:
    return [word.lower() for word in words]


def _weighty(words: list[str]) -> set[str]:
    return {word for word in _lower(words) if not _FILLER.fullmatch(word)}


def _mistyped(word: str, candidates: set[str]) -> bool:
    if len(word) < 4:
        return False
    return any(
        difflib.SequenceMatcher(None, word, candidate).ratio() >= _SIMILAR
        for candidate in candidates
    )
