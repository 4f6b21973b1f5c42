"""What a person's answer says about the reply before it.

Only the opening is read, clause by clause. Quotations, code, and text pasted behind a colon are
left out: they are what the person talks about, not what the person says.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence

from clawrl_gym.config import JudgeConfig, ReplyRule
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.judge.interface import Finding
from clawrl_gym.judge.restated import restates

Words = Mapping[str, Sequence[str]]
"""Alternatives by name."""

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
_NAMED = re.compile(r"\{([a-z_]+)\}")
_MAX_WORDS = 100
"""In one pattern, those inside of words included."""
_PASTING = re.compile(r"\w:$")
_GAP = "_"
"""Stands for a quotation."""


class Replies:
    """The configured rules, and the request said again."""

    def __init__(self, config: JudgeConfig) -> None:
        known = config.words.get("no_weight")
        self._no_weight = _compiled(_NO_WEIGHT, config.words) if known else re.compile("")
        self._rules = [_Rule(name, rule, config.words) for name, rule in config.replies.items()]

    def find(self, text: str, request: str, reply: str) -> Finding:
        """The value of an answer, and what told it."""
        opening = spoken(text)[:_OPENING_CHARS]
        clauses = [(clause, self._weighty(clause)) for clause in clauses_of(opening)]
        asked = reply.rstrip(' \n*_"').endswith("?")
        found: dict[int, Finding] = {}
        for rule in self._rules:
            words = rule.finds(opening, clauses, asked)
            if words is not None:
                finding = Finding(rule.value, {"rule": rule.name, "said": words})
                found.setdefault(rule.value, finding)
        for value in (0, -1, 1):
            if value in found:
                return found[value]
        if restates(text, request):
            return Finding(-1, {"rule": "restated"})
        return Finding(0, {"rule": "none"})

    def _weighty(self, clause: str) -> str:
        """The clause without the words of no weight that it begins with."""
        while (match := self._no_weight.match(clause)) and match.end():
            clause = clause[match.end() :]
        return clause


class _Rule:
    """One compiled rule."""

    def __init__(self, name: str, rule: ReplyRule, words: Words) -> None:
        self.name = name
        self.value = rule.value
        self._first = rule.first
        self._after_question = rule.after_question
        self._patterns = [_compiled(pattern, words) for pattern in rule.patterns]
        self._unless = [_compiled(pattern, words) for pattern in rule.unless]

    def finds(self, opening: str, clauses: list[tuple[str, str]], asked: bool) -> str | None:
        """The words that tell it; None when it does not hold. Clauses come whole and weighty."""
        if asked and not self._after_question:
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


def _compiled(pattern: str, words: Words) -> re.Pattern[str]:
    """The pattern with its words spelt out. Raises ConfigError for a word that is not there."""
    spelt, depth = pattern, 0
    while named := _NAMED.search(spelt):
        name, depth = named.group(1), depth + 1
        if name not in words or depth > _MAX_WORDS:
            raise ConfigError(
                f"got {{{name}}} in the pattern {pattern!r}, expected one of judge.words: "
                f"{', '.join(sorted(words)) or 'none'} (and none that holds itself)"
            )
        spelt = spelt[: named.start()] + f"(?:{'|'.join(words[name])})" + spelt[named.end() :]
    return re.compile(spelt, re.IGNORECASE)


def spoken(text: str) -> str:
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
