"""What a person's answer says about the reply before it.

Only the opening is read, clause by clause. Quotations, code, and text pasted behind a colon are
left out: they are what the person talks about, not what the person says. The request said once more
is a correction too: the reply did not do it.
"""

from __future__ import annotations

import difflib
import re
import unicodedata

from clawrl_gym.config import JudgeConfig, ReplyRule
from clawrl_gym.judge.interface import Finding
from clawrl_gym.judge.patterns import Words, compiled

_KEY = "judge.words"
_READ_CHARS = 4000
"""Of an answer, before its quotations are taken out."""
_OPENING_CHARS = 300
_STRAIGHT = str.maketrans("\u2018\u2019\u02bc\u201c\u201d\u00ab\u00bb", '\'\'\'""""')
_QUOTED = re.compile(
    r"```.*?(?:```|\Z)"
    r"|`[^`\n]*`"
    r"|^[ \t]*>.*?$"
    r'|"[^"]{0,2000}"'
    r"|(?<!\w)'[^'\n]{1,200}'(?!\w)"
    r"|<\|[^|>\n]{1,40}\|>",  # control tokens, spelt out
    re.DOTALL | re.MULTILINE,
)
_CLAUSE_END = re.compile(r"(?<=[.!?;,:])\s+|\s*\n\s*|\s+-+\s+|\s+(?=but\b)")
_NO_WEIGHT = r"{no_weight}(?:[,.!;]+ *| +|$)"
_PASTING = re.compile(r"\w:$")
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
_SIMILAR = 0.8
"""Two spellings at least so similar are one word, mistyped."""
_LONGEST = 1.5
"""A request said again has grown by no more than this factor, and one word."""


class UserRules:
    """The configured rules, and the request said again."""

    def __init__(self, config: JudgeConfig) -> None:
        words = config.words
        has_no_weight = bool(words.get("no_weight"))
        self._no_weight = compiled(_NO_WEIGHT, words, _KEY) if has_no_weight else re.compile("")
        self._rules = [_UserRule(name, rule, words) for name, rule in config.replies.items()]

    def find(self, text: str, request: str, reply: str) -> Finding:
        """The value of an answer, and the rule that gave it."""
        opening = own_words(text)[:_OPENING_CHARS]
        clauses = [(clause, self._weighty(clause)) for clause in clauses_of(opening)]
        after_question = reply.rstrip(' \n*_"').endswith("?")
        findings: dict[int, Finding] = {}
        for rule in self._rules:
            words = rule.finds(opening, clauses, after_question)
            if words is not None:
                finding = Finding(rule.value, {"rule": rule.name, "said": words})
                findings.setdefault(rule.value, finding)
        for value in (0, -1, 1):
            if value in findings:
                return findings[value]
        if restates(text, request):
            return Finding(-1, {"rule": "restated"})
        return Finding(0, {"rule": "none"})

    def _weighty(self, clause: str) -> str:
        """The clause without the words of no weight that it begins with."""
        while (match := self._no_weight.match(clause)) and match.end():
            clause = clause[match.end() :]
        return clause


class _UserRule:
    """One compiled rule."""

    def __init__(self, name: str, rule: ReplyRule, words: Words) -> None:
        self.name = name
        self.value = rule.value
        self._first = rule.first
        self._after_question = rule.after_question
        self._patterns = [compiled(pattern, words, _KEY) for pattern in rule.patterns]
        self._unless = [compiled(pattern, words, _KEY) for pattern in rule.unless]

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
                return None if excepted else words[:80]
            if self._first and weighty.strip(f".,!; {_GAP}"):
                return None
        return None

    def _begins(self, clause: str) -> str | None:
        matches = (pattern.match(clause) for pattern in self._patterns)
        return next((match.group() for match in matches if match), None)


def own_words(text: str) -> str:
    """What a person says in a text: quotations left out, straight quotation marks."""
    plain = unicodedata.normalize("NFKC", text[:_READ_CHARS]).translate(_STRAIGHT)
    return _QUOTED.sub(f" {_GAP} ", plain).strip()


def clauses_of(opening: str) -> list[str]:
    """The clauses up to a colon: what follows it is pasted."""
    clauses = []
    for clause in _CLAUSE_END.split(opening):
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
