"""The usual reward functions, by the names that `env.reward` takes.

They are called like anybody's own: with what their parameters name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from types import MappingProxyType

_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?|[-+]?\.\d+")
_FENCE = re.compile(r"```(?:json)?\s*\n(.*)\n\s*```", re.DOTALL)
_LONGEST_EXPONENT = 400
"""Larger exponents are no numbers that anybody means."""


def exact(reply: str, answer: object) -> bool:
    """The reply is the answer, apart from white space around it."""
    return reply.strip() == str(answer).strip()


def contains(reply: str, answer: object) -> bool:
    """The answer stands in the reply as words of its own, in small or capital letters."""
    wanted = str(answer).strip()
    if not wanted:
        raise ValueError("got an empty answer, which stands in every reply")
    return re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", reply, re.IGNORECASE) is not None


def number(reply: str, answer: object) -> bool:
    """The last number of the reply equals the last number of the answer: 1,000 equals 1000.0."""
    wanted = _last_number(str(answer))
    if wanted is None:
        raise ValueError(f"got the answer {str(answer)[:100]!r}, expected one with a number")
    return _last_number(reply) == wanted


def regex(reply: str, pattern: str) -> bool:
    """The pattern matches somewhere in the reply."""
    return re.search(pattern, reply) is not None


def is_json(reply: str, keys: Sequence[str] = ()) -> bool:
    """The reply, or the fenced block that it is, is JSON; with `keys`, an object that has them."""
    text = reply.strip()
    fenced = _FENCE.fullmatch(text)
    try:
        value = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return False
    return not keys or (isinstance(value, Mapping) and set(keys) <= set(value))


def length(reply: str, most: int = 1000) -> float:
    """1 for at most so many characters, less in proportion for more: 0.5 for twice as many."""
    if most < 1:
        raise ValueError(f"got most={most}, expected at least 1")
    return min(1.0, most / max(1, len(reply)))


BUILTIN: Mapping[str, Callable[..., object]] = MappingProxyType(
    {
        "exact": exact,
        "contains": contains,
        "number": number,
        "regex": regex,
        "json": is_json,
        "length": length,
    }
)


def _last_number(text: str) -> Decimal | None:
    found = _NUMBER.findall(text)
    if not found:
        return None
    try:
        value = Decimal(found[-1].replace(",", ""))
    except InvalidOperation:
        return None
    return value if abs(value.adjusted()) < _LONGEST_EXPONENT else None
