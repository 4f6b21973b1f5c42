"""Remove keys and tokens from everything that people are shown: logs, views, errors,
configurations.

A secret is known by its name (`gateway.key`, `OPENAI_API_KEY`), wherever it stands: a field of a
configuration, an option of somebody's class, an argument of a command, a variable of the
environment. A log record is cleaned when it is made, before any handler sees it: its message, its
arguments and the text of its traceback. Known secrets are found by their text, others by their
form.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

HIDDEN = "[hidden]"
_SHORTEST = 6
"""Fewest characters of a secret; shorter ones would blot out ordinary words."""
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
_SECRET_NAME = re.compile(
    r"(?:^|[._-])(?:key|api_?key|(?:access_?|auth_?)?token|secret|password|passwd|authorization"
    r"|credentials?)$",
    re.IGNORECASE,
)
_NO_SECRETS = ("", "none", "null", HIDDEN)
"""Values that stand where no key is needed."""
_SHORTEST_OF_ENVIRONMENT = 12
"""The same for a variable: many programs' variables have such a name and hold a common word."""
_Factory = Callable[..., logging.LogRecord]


def is_secret(name: str) -> bool:
    """Whether a field, an option, an argument or a variable of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def hidden(value: Any, name: str = "") -> Any:
    """The same plain value, at any depth, with `[hidden]` in place of every secret."""
    if isinstance(value, Mapping):
        return {key: hidden(entry, str(key)) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [hidden(entry, name) for entry in value]
    return HIDDEN if isinstance(value, str) and _is_a_secret(value, name) else value


def secrets_in(value: Any, name: str = "") -> Iterator[str]:
    """The secrets that a plain value holds, at any depth."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from secrets_in(entry, str(key))
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from secrets_in(entry, name)
    elif isinstance(value, str) and _is_a_secret(value, name):
        yield value


def hidden_argument(argument: str) -> str:
    """An argument KEY=VALUE of a command as it may be shown."""
    name, equals, value = argument.partition("=")
    return f"{name}={HIDDEN}" if equals and _is_a_secret(value, name) else clean(argument)


def _is_a_secret(value: str, name: str) -> bool:
    return is_secret(name) and value not in _NO_SECRETS


def secrets_of_process(arguments: Iterable[str], environment: Mapping[str, str]) -> Iterator[str]:
    """The secrets that a command was given, on its line and by variables."""
    for argument in arguments:
        name, _, value = argument.partition("=")
        if is_secret(name):
            yield value
    for name, value in environment.items():
        if is_secret(name) and len(value) >= _SHORTEST_OF_ENVIRONMENT:
            yield value


class Redactor:
    """Makes log records without secrets."""

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


def clean(text: str) -> str:
    """A text for people, without the secrets that this process knows of."""
    factory = logging.getLogRecordFactory()
    redactor = factory if isinstance(factory, Redactor) else Redactor(factory)
    return redactor.clean(text)


def install(secrets: Iterable[str | None] = ()) -> Redactor:
    """Clean all records from now on; called again, it only learns more secrets."""
    current = logging.getLogRecordFactory()
    redactor = current if isinstance(current, Redactor) else Redactor(current)
    redactor.add(secrets)
    logging.setLogRecordFactory(redactor)
    return redactor
