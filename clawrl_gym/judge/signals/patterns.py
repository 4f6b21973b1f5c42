"""Patterns of rules: regular expressions that call lists of alternatives by name, in braces."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence

from clawrl_gym.core.errors import ConfigError

Words = Mapping[str, Sequence[str]]
"""Alternatives by name."""

_NAME = re.compile(r"\{([a-z_]+)\}")
_ESCAPE = re.compile(r"(\\.)")
_MAX_WORDS = 100
"""Most words in one pattern, those inside of words included."""


def compiled(
    pattern: str, words: Words, key: str, fold: Callable[[str], str] = str
) -> re.Pattern[str]:
    """The pattern with its words filled in; upper and lower case are the same to it.

    `fold`: the spelling of the texts that it is for. Raises ConfigError for a word that is not
    among those of `key`.
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
    return _compiled(_folded(text, fold))


@functools.lru_cache(4096)  # judges of one process share theirs; `re` remembers 512
def _compiled(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


def _folded(pattern: str, fold: Callable[[str], str]) -> str:
    r"""Escapes (`\S`) stay as they are."""
    return "".join(part if part.startswith("\\") else fold(part) for part in _ESCAPE.split(pattern))
