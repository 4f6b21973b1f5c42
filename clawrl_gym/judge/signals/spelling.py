"""One spelling for texts that are compared, whatever keyboard they were written on."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from clawrl_gym.judge.signals.language import single_signs

_DIGITS = re.compile(r"\d+")
_SPACES = re.compile(r"\s+")


def spelt(text: str) -> str:
    """Small letters without accents, in their usual width; one number for all; simplified signs."""
    parts = unicodedata.normalize("NFKD", text).lower().replace("\u2019", "'")
    bare = "".join(letter for letter in parts if not unicodedata.combining(letter))
    return _SPACES.sub(" ", _DIGITS.sub("0", bare.translate(_simplified())))


@cache
def _simplified() -> dict[int, str]:
    return single_signs("zh")
