"""Answers in what was said: what is boxed, the last number, texts that count as the same."""

from __future__ import annotations

import re
from fractions import Fraction

_BOX = "\\boxed{"
_MAX_NUMBER_CHARS = 400
_MAX_EXPONENT = 400
_NUMBER = re.compile(
    r"(?<!\w)(?<!\d\.)-?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:e[+-]?\d+)?(?:/\d+(?!\.?\d))?",
    re.IGNORECASE,
)
_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_AROUND = re.compile(r"\\(?:text|mathrm|mathbf)\{([^{}]*)\}")
_SPARE = ("\\$", "$", "\\%", "%", "\\,", "\\!", "\\ ", "{,}")


def boxed(text: str) -> str | None:
    r"""Content of the last `\boxed{...}`; None without one that is closed."""
    start = text.rfind(_BOX)
    if start < 0:
        return None
    begin, depth = start + len(_BOX), 1
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[begin:at].strip()
    return None


def last_number(text: str) -> Fraction | None:
    """The last number of a text."""
    numbers = _NUMBER.findall(_plain(text))
    return number_of(numbers[-1]) if numbers else None


def number_of(text: str) -> Fraction | None:
    """The number that a text is, such as 1,234.5 or 3/4 or x = 7; None for anything else."""
    plain = _plain(text).strip().rstrip(".")
    if "=" in plain:
        plain = plain.rpartition("=")[2].strip()
    if len(plain) > _MAX_NUMBER_CHARS or _NUMBER.fullmatch(plain) is None:
        return None
    top, _, bottom = plain.replace(",", "").lower().partition("/")
    exponent = top.partition("e")[2] or "0"
    if len(exponent) > 5 or abs(int(exponent)) > _MAX_EXPONENT or (bottom and int(bottom) == 0):
        return None
    return Fraction(top) / int(bottom or "1")


def same_text(text: str, expected: str) -> bool:
    """Whether two texts are the same but for case, spaces and what they end with."""
    return _even(text) == _even(expected)


def says(text: str, phrase: str) -> bool:
    """Whether a text holds another one as whole words: 15 does not say 5."""
    begin = r"(?<![\w.])" if phrase[:1].isdigit() else r"(?<!\w)"
    end = r"(?!\w|[.,]\d)" if phrase[-1:].isdigit() else r"(?!\w)"
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    words = r"\s+".join(re.escape(word) for word in phrase.replace(",", "").split())
    pattern = r"\s+".join(re.escape(word) for word in phrase.split())
    return any(
        re.search(begin + form + end, where, re.IGNORECASE) is not None
        for form, where in ((pattern, text), (words, plain))
    )


def _even(text: str) -> str:
    return " ".join(_AROUND.sub(r"\1", text).split()).rstrip(".!").casefold()


def _plain(text: str) -> str:
    """A text without what only sets it; fractions as 3/4."""
    text = _FRACTION.sub(r"\1/\2", _AROUND.sub(r"\1", text)).replace("\u2212", "-")
    for spare in _SPARE:
        text = text.replace(spare, "")
    return text
