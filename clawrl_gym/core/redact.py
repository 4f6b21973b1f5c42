"""Keys and tokens out of the log: of every record this process makes, whoever logs it.

A record is cleaned when it is made, before any handler sees it: its message, its arguments and the
text of its traceback. Known secrets go by their letters, others by how they are written.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Iterable
from typing import Any

HIDDEN = "[hidden]"
_SHORTEST = 6
"""Shorter secrets would blot out ordinary words."""
_QUOTE = r"['\"]?"
_PREFIXED = r"\g<1>" + HIDDEN
_PATTERNS = (
    (re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]{6,}"), _PREFIXED),
    (
        re.compile(rf"(?i)\b(authorization{_QUOTE}\s*[:=]\s*{_QUOTE}basic\s+)[\w+/=-]+"),
        _PREFIXED,
    ),
    (re.compile(rf"(?i)\b(api[-_]?key{_QUOTE}\s*[:=]\s*{_QUOTE})[^\s'\",;&)]{{6,}}"), _PREFIXED),
    (re.compile(r"\b(?:sk-[\w-]{16,}|hf_[A-Za-z0-9]{20,})"), HIDDEN),
    (re.compile(r"(://[^/\s:@]*:)[^/\s@]+(?=@)"), _PREFIXED),
)
_Factory = Callable[..., logging.LogRecord]


class Redactor:
    """Makes log records that hold no secret."""

    def __init__(self, make: _Factory) -> None:
        self._make = make
        self._secrets: tuple[str, ...] = ()

    def add(self, secrets: Iterable[str | None]) -> None:
        """Hide these too, the longest first."""
        hidden = {*self._secrets, *(s for s in secrets if s and len(s) >= _SHORTEST)}
        self._secrets = tuple(sorted(hidden, key=len, reverse=True))

    def clean(self, text: str) -> str:
        """The text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._make(*args, **kwargs)
        self._clean_message(record)
        if record.exc_info and record.exc_info[1] is not None:
            text = "".join(traceback.format_exception(record.exc_info[1])).rstrip()
            cleaned = self.clean(text)
            if cleaned != text:  # handlers format `exc_info` themselves, so it must go
                record.exc_info, record.exc_text = None, cleaned
        if record.stack_info:
            record.stack_info = self.clean(record.stack_info)
        return record

    def _clean_message(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except (TypeError, ValueError, KeyError):  # wrong arguments: logging reports it by itself
            return
        cleaned = self.clean(text)
        if cleaned != text:
            record.msg, record.args = cleaned, ()


def install(secrets: Iterable[str | None] = ()) -> Redactor:
    """Clean all records from now on; called again, it only learns more secrets."""
    current = logging.getLogRecordFactory()
    redactor = current if isinstance(current, Redactor) else Redactor(current)
    redactor.add(secrets)
    logging.setLogRecordFactory(redactor)
    return redactor
