"""Patterns of rules: regular expressions that call lists of alternatives by name, in braces."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from clawrl_gym.core.errors import ConfigError

Words = Mapping[str, Sequence[str]]
"""Alternatives by name."""

_NAME = re.compile(r"\{([a-z_]+)\}")
_MAX_WORDS = 100
"""In one pattern, those inside of words included."""


def compiled(pattern: str, words: Words, key: str) -> re.Pattern[str]:
    """The pattern with its words filled in; upper and lower case are the same to it.

    Raises ConfigError for a word that is not among those of `key`.
    """
    text, depth = pattern, 0
    while match := _NAME.search(text):
        name, depth = match.group(1), depth + 1
        if name not in words or depth > _MAX_WORDS:
            raise ConfigError(
                f"got {{{name}}} in the pattern {pattern!r}, expected one of {key}: "
                f"{', '.join(sorted(words)) or 'none'} (and none that holds itself)"
            )
        text = text[: match.start()] + f"(?:{'|'.join(words[name])})" + text[match.end() :]
    return re.compile(text, re.IGNORECASE)
