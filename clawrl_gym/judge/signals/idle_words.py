"""Words of a tool's result that speak of failures and tell none: "0 errors", "error rate: 0.2", and
those that the call itself names, as in the result of `grep ERROR app.log` or of `kill_process`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_FAULT = (
    r"(?:errors?|errored|failures?|failed|failing|fails?|exceptions?|faults?|crash(?:es)?|broken"
    r"|problems?|issues?|conflicts?|violations?|vulnerabilit(?:y|ies)|fehler|erreurs?|errores"
    r"|erros|errori|ошибок|ошибки)"
)
_COUNT_BEFORE = (
    rf"(?<!by )\b(?:0|no|zero|none|without(?: any)?|keine?|sans|sin|sem|nessun|без)[ \t]+"
    rf"(?:(?!such\b|more\b|longer\b|other\b)\w+[ \t]+)?{_FAULT}\b(?![ \t]+(?:to|with)\b)"
)
_COUNT_AFTER = (
    rf"\b{_FAULT}[\"']?[ \t]*[:=]\s*[\"'(]?"
    r"(?:0(?![\d.]*[1-9])|none|null|nil|n/a|false|empty|\[\]|\{\}|keine?|aucune?|ninguno)"
    r"(?![\w.]|[ \t]+[a-z])[\"')]?"
)
_MEASURE = (
    r"\berror[ \t]+(?:rate|ratio|margin|bars?|bounds?|norm|std)\b(?![ \t]+(?:limit|exceed))"
    r"|\berrors?[ \t]*[:=][ \t]*[+-]?\d*\.\d+(?:e[+-]?\d+)?%?(?![\w.])"
)
_NO_FAILURE = re.compile("|".join((_COUNT_BEFORE, _COUNT_AFTER, _MEASURE)), re.IGNORECASE)
_TROUBLE = re.compile(
    r"(?<![^\W_])(?:E[A-Z]{4,12}(?![^\W_])|[45]\d\d(?!\d)|(?i:err|error|fail|exception|fatal|panic"
    r"|crash|kill|abort|cancel|reject|deny|deni|refus|declin|block|timeout|invalid|missing|forbid"
    r"|conflict|terminat|stop|interrupt|wrong|broken|traceback|warn|skip|expir|ignor)[^\W_]*)"
)
"""Words that stand for a failure themselves; those of exit codes are not among them."""
_QUOTED = re.compile(r'(?<=[\w)\]:,] )(?:"[^"\n]{1,200}"|“[^”\n]{1,200}”|«[^»\n]{1,200}»)')
"""Quotations in a text, such as the title of a commit."""
_STEM_CHARS = 4
_MAX_NAMED_CHARS = 300
"""Longest argument whose words count as named: a longer one is what the call carries."""
_IN_PLACE = "it"
_UNREADABLE = "invalid"
"""The tool that opencode runs in place of a call that it cannot read."""


def named_by(name: str, arguments: object) -> frozenset[str]:
    """Stems of the words for a failure that a call's name and its short arguments have."""
    texts = (name if name != _UNREADABLE else "", *_texts(arguments))
    return frozenset(stem(word) for text in texts for word in _words(text))


def without_idle(text: str, named: frozenset[str], command: str = "") -> str:
    """The text, with another word where it speaks of failures and tells none.

    Nor do lines that `command` prints by itself, as in `test -f a || echo 'not found'`.
    """
    if command:
        lines = text.split("\n")
        text = "\n".join("" if line.strip() and line.strip() in command else line for line in lines)
    text = _NO_FAILURE.sub(_IN_PLACE, _QUOTED.sub(_quotation, text))
    if not named:
        return text
    return _TROUBLE.sub(
        lambda match: _IN_PLACE if stem(match.group()) in named else match.group(), text
    )


def _quotation(match: re.Match[str]) -> str:
    """Remove a quotation: its words for failures are somebody else's."""
    return _TROUBLE.sub(_IN_PLACE, match.group())


def _words(text: str) -> Iterable[str]:
    return (match.group() for match in _TROUBLE.finditer(text))


def _texts(value: object, depth: int = 0) -> Iterable[str]:
    if isinstance(value, str):
        yield from [value] if len(value) <= _MAX_NAMED_CHARS else []
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(value)
    elif depth < 3 and isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner, depth + 1)


def stem(word: str) -> str:
    """The part of a word that it shares with its other forms: cancel, cancelled."""
    return word.lower()[:_STEM_CHARS].replace("y", "i")
