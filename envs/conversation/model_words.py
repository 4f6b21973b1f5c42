"""The words of an endpoint's answer, for a user or a judge that is a model."""

from __future__ import annotations

import re

from clawrl_gym.core.errors import EnvError

MAX_WORDS_CHARS = 600
_THOUGHTS = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


def words_of(
    status: int, answer: object, max_chars: int | None = MAX_WORDS_CHARS, who: str = "user"
) -> str:
    """The reply of a user's or a judge's model, without its thoughts. Raises EnvError for anything
    but words."""
    try:
        words = answer["choices"][0]["message"]["content"]  # type: ignore[index]
    except (KeyError, IndexError, TypeError):
        words = None
    if status != 200 or not isinstance(words, str):
        raise EnvError(f"the {who}'s model answered {status}: {str(answer)[:300]}")
    words = _THOUGHTS.sub("", words).strip()[:max_chars]
    if not words:
        raise EnvError(f"the {who}'s model said nothing")
    return words
