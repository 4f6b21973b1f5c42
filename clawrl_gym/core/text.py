"""Text from outside as valid Unicode: from clients, environments, tools and judges.

A Python string can hold half a surrogate pair, which UTF-8 cannot: clients that cut at UTF-16 units
send it as a JSON escape, and `os.listdir` puts one in the place of each byte that it cannot read.
Such a half, and each byte that is not UTF-8, becomes U+FFFD here. Valid text is passed on
unchanged, NUL and zero-width marks included: everything behind this module takes them. Replacements
are counted by sender.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections import Counter
from typing import Any, Literal

REPLACEMENT = "\ufffd"
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""A JSON escape of half a surrogate pair."""
MOST_CHARS = 4 << 20
"""Longest text, in characters, that anything but a client may send: beyond any model's context."""
Sender = Literal["client", "environment", "agent", "judge"]
SENDERS: tuple[Sender, ...] = ("client", "environment", "agent", "judge")


class Replacements:
    """Counts of replaced halves and bytes, by sender. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Sender] = Counter()

    def add(self, sender: Sender, count: int) -> None:
        if count:
            with self._lock:
                self._counts[sender] += count

    def counts(self) -> dict[Sender, int]:
        """Counts since the process began, of all senders."""
        with self._lock:
            return {sender: self._counts[sender] for sender in SENDERS}

    @property
    def total(self) -> int:
        return sum(self.counts().values())


replacements = Replacements()
"""The counts of this process, unless somebody keeps their own."""


def is_whole(text: str) -> bool:
    """Whether a text has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def valid_text(text: str, sender: Sender, counts: Replacements = replacements) -> str:
    """The text, with two halves that belong together joined and every other half replaced."""
    if is_whole(text):
        return text
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    counts.add(sender, whole.count(REPLACEMENT) - text.count(REPLACEMENT))
    return whole


def valid_json(value: Any, sender: Sender, counts: Replacements = replacements) -> Any:
    """A JSON value with all its texts valid, names of fields included. Any: it is JSON.

    Raises TypeError or ValueError for what is not JSON, RecursionError where it is nested too
    deeply.
    """
    text = json.dumps(value, ensure_ascii=False)
    return value if is_whole(text) else json.loads(valid_text(text, sender, counts))


def valid_escapes(text: str, sender: Sender, counts: Replacements = replacements) -> str:
    """A text that may be JSON, such as the arguments of a call, with valid escapes too."""
    if not _HALF.search(text):
        return text
    try:
        value = json.loads(text)
        valid = valid_json(value, sender, counts)
    except (ValueError, RecursionError):
        return text
    return text if valid is value else json.dumps(valid)


def read_text(raw: bytes, sender: Sender) -> str:
    """The text of a JSON document, in UTF-8 or whatever its first bytes say; without its mark."""
    encoding = json.detect_encoding(raw)
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError:
        text = raw.decode(encoding, "replace")
        sent = raw.count(REPLACEMENT.encode("utf-8")) if encoding.startswith("utf-8") else 0
        replacements.add(sender, text.count(REPLACEMENT) - sent)
        return text


def read_json(raw: bytes, sender: Sender) -> Any:
    """The JSON in these bytes, with valid texts. Any: it is JSON.

    Raises ValueError for what is not JSON, RecursionError where it is nested too deeply.
    """
    text = read_text(raw, sender)
    value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    return valid_json(value, sender) if _HALF.search(text) else value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large for a number")
    return number
