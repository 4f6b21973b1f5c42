"""The seam between next states and verdicts.

A judge sees one case: what was asked, what was replied, what came back. All of it is data that
others wrote; nothing in it is an instruction to the judge.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Message, Tool, Turn, Verdict, VerdictDetail, VerdictKind

MAX_CHARS = 20_000
"""Most characters of one text in a case; a longer one loses its middle."""
_CUT = "\n[...]\n"
JUDGED_KINDS = ("rule", "model")
"""Kinds of verdicts that a judge makes; `feedback` is a person's."""


@dataclass(frozen=True, slots=True)
class Case:
    """One turn and what came after it."""

    turn_id: int
    request: str
    """The last words of the user before the reply; empty when there are none."""
    reply: Message
    next_state: list[Message]
    """Messages without what clients put around a person's words; empty ones are gone."""
    tools: tuple[Tool, ...] = ()
    """Tools that the request offered, in OpenAI's form."""
    observed: bool = False
    """True: user messages are what an environment shows, not a person's words."""
    marks_failures: bool = False
    """True: what came back is an environment's, which marks each failure as one: a result without
    a mark is a success. Of other tools a success must say so itself."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The rules' finding about one message that came back."""

    value: Literal[-1, 0, 1] | None
    """None: it was not understood; the verdict is then an abstention, unless something is clear."""
    detail: VerdictDetail
    weight: float = 1.0
    """Strength of the evidence, in (0, 1]."""


class Judge(Protocol):
    """Turns a case into a verdict."""

    @property
    def kind(self) -> VerdictKind:
        """Kind of its verdicts."""
        ...

    async def judge(self, case: Case) -> Verdict:
        """May raise or be slow: whoever asks makes an abstention of it."""
        ...


class CaseBuilder:
    """Makes cases of turns."""

    def __init__(
        self, ignore: Sequence[str], observed: bool = False, marks_failures: bool = False
    ) -> None:
        """`ignore`: patterns of what clients put around a person's words."""
        self._ignore = [re.compile(pattern) for pattern in ignore]
        self._observed = observed
        self._marks_failures = marks_failures

    def of(self, turn: Turn, next_state: list[Message]) -> Case:
        """The turn must be a stored one."""
        assert turn.id is not None
        requests = (self._words(m) for m in reversed(turn.messages) if m.get("role") == "user")
        cleaned = [self._clean(message) for message in next_state]
        return Case(
            turn_id=turn.id,
            request=next((words for words in requests if words), ""),
            reply=turn.reply,
            next_state=[m for m in cleaned if m["content"] or m.get("role") != "user"],
            tools=tuple(turn.tools),
            observed=self._observed,
            marks_failures=self._marks_failures,
        )

    def _clean(self, message: Message) -> Message:
        if message.get("role") == "user":
            return {**message, "content": self._words(message)}
        return {**message, "content": clipped(text_of(message))}

    def _words(self, message: Message) -> str:
        text = clipped(text_of(message))
        for pattern in self._ignore:
            text = pattern.sub("", text)
        return text.strip()


def clipped(text: str, limit: int = MAX_CHARS) -> str:
    """The text, or its beginning and its end."""
    if len(text) <= limit:
        return text
    half = (limit - len(_CUT)) // 2
    return text[:half] + _CUT + text[-half:]
