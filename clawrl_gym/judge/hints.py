"""Hints of a judge's model: found in its answer, accepted or refused, and put in order.

A hint becomes part of a prompt that the policy learns from, and its words may come from whoever
wrote the next state. So it must be short, hold nothing that a chat template or a judge obeys, and
teach instead of repeating what came back.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clawrl_gym.config import HintConfig
from clawrl_gym.core.types import RefusedHint
from clawrl_gym.judge.models.chat_models import Completion
from clawrl_gym.judge.models.prompt import as_data
from clawrl_gym.judge.models.votes import answer_of, last_boxed

_BLOCK = re.compile(r"\[HINT_START\](?P<hint>(?:(?!\[HINT_START\]).)*?)\[HINT_END\]", re.DOTALL)
_SPACE = re.compile(r"\s+")
_SIGNS = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_SIGNS}]|[^\W{_SIGNS}]+")
"""A word; in scripts without spaces each sign is one."""
_JOINERS = "\u200c\u200d"
_EXCERPT_CHARS = 300
"""Characters of a refused hint that are kept."""


@dataclass(frozen=True, slots=True)
class Hints:
    """Accepted and refused hints from all answers on one turn."""

    accepted: list[str]
    """The longest first."""
    refused: list[RefusedHint]
    """Each with the hint, perhaps cut, and why."""


def parse_hint(completion: Completion) -> str | None:
    r"""The hint in an answer, or None. It needs a whole answer whose vote is \boxed{1}."""
    answer = answer_of(completion)
    blocks = [] if answer is None else list(_BLOCK.finditer(answer))
    if answer is None or not blocks or last_boxed(_BLOCK.sub(" ", answer)) != 1:
        return None
    return _SPACE.sub(" ", blocks[-1]["hint"]).strip()


def choose(hints: Iterable[str], next_state: Sequence[str], config: HintConfig) -> Hints:
    """The hints that are accepted, each once. `next_state` are the texts that came back."""
    accepted: dict[str, str] = {}
    refused: dict[str, str] = {}
    for hint in hints:
        why = fault(hint, next_state, config)
        if why is None:
            accepted.setdefault(" ".join(_words(hint)), hint)
        else:
            refused.setdefault(hint, why)
    return Hints(
        sorted(accepted.values(), key=lambda hint: (-len(hint), hint)),
        [{"hint": hint[:_EXCERPT_CHARS], "why": why} for hint, why in refused.items()],
    )


def fault(hint: str, next_state: Sequence[str], config: HintConfig) -> str | None:
    """Why a hint is refused; None for one that is accepted."""
    if len(hint) < config.min_chars:
        return f"it has {len(hint)} characters, expected at least {config.min_chars}"
    if len(hint) > config.max_chars:
        return f"it has {len(hint)} characters, expected at most {config.max_chars}"
    if any(_is_control(char) for char in hint):
        return "it has control characters"
    if as_data(hint) != hint or _imitates(hint, config.form):
        return "it has control tokens or markers"
    if "\\boxed" in hint.lower():
        return "it has the form of a vote"
    most = config.max_copied_words
    if any(_shares_run(hint, text, most) for text in next_state):
        return f"it repeats {most} words of the next state or more"
    return None


def _imitates(hint: str, form: str) -> bool:
    """Whether a hint has what a hint is put between."""
    around = (part.strip().lower() for part in form.split("{hint}"))
    return any(part and part in hint.lower() for part in around)


def _is_control(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf", "Co", "Cs") and char not in _JOINERS


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _shares_run(hint: str, text: str, length: int) -> bool:
    """Whether a run of so many words of the hint stands in the text."""
    words, where = _words(hint), f" {' '.join(_words(text))} "
    runs = (words[at : at + length] for at in range(len(words) - length + 1))
    return any(f" {' '.join(run)} " in where for run in runs)
