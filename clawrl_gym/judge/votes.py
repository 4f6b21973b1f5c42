r"""Votes of a judge's model: what counts as one, and what many of them decide.

Only the answer after the reasoning is read, and only when it is whole: a model that is cut off
while it repeats its instructions has not voted. The last \boxed{} is the vote, or nothing is.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Literal, TypeVar, cast

from clawrl_gym.judge.chat_models import Completion

Value = Literal[-1, 0, 1]
T = TypeVar("T")

_VOTE = re.compile(
    r"\{\s*(?P<text>\\text\s*\{\s*)?(?P<vote>[+-]?1(?:\.0+)?|0(?:\.0+)?)\s*(?(text)\}\s*)\}"
)
_BOXED = r"\boxed"


def parse_vote(completion: Completion) -> Value | None:
    """The vote in an answer; None when there is none."""
    answer = answer_of(completion)
    return None if answer is None else last_boxed(answer)


def answer_of(completion: Completion) -> str | None:
    """What stands after the reasoning; None for an answer that is cut off or still reasons."""
    if not completion.finished:
        return None
    answer = completion.text.rpartition("</think>")[2]
    return None if "<think>" in answer else answer


def last_boxed(text: str) -> Value | None:
    r"""1, 0 or -1 in the last \boxed{} of a text; None for anything else in it."""
    _, boxed, rest = text.rpartition(_BOXED)
    match = _VOTE.match(rest) if boxed else None
    return None if match is None else cast(Value, int(float(match["vote"])))


def is_certain(votes: Sequence[Value | None], coming: int, quorum: int) -> bool:
    """Whether the majority stays what it is, however the votes that are still coming turn out."""
    valid = Counter(vote for vote in votes if vote is not None)
    if valid.total() + coming < quorum:
        return True
    if valid.total() < quorum:
        return False
    (_, most), (_, second) = [*valid.most_common(2), (0, 0)][:2]
    return most > second + coming


def majority(votes: Sequence[Value | None], quorum: int) -> Value | None:
    """The most frequent valid vote, neutral in a tie; None with fewer valid votes than `quorum`."""
    valid = Counter(vote for vote in votes if vote is not None)
    if not valid or valid.total() < quorum:
        return None
    (first, most), *second = valid.most_common(2)
    return 0 if second and second[0][1] == most else first


async def gather_until(
    coroutines: Sequence[Coroutine[None, None, T]],
    enough: Callable[[list[T], int], bool],
    timeout_s: float,
) -> list[T]:
    """Results in the order in which they came, until `enough(results, coming)` or no time is left.

    What is still open then is cancelled. None of the coroutines may raise.
    """
    coming = {asyncio.ensure_future(one) for one in coroutines}
    ends_s, results = time.monotonic() + timeout_s, list[T]()
    try:
        while coming and not enough(results, len(coming)):
            left_s = max(0.0, ends_s - time.monotonic())
            finished, coming = await asyncio.wait(
                coming, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not finished:
                break
            results += [task.result() for task in finished]
    finally:
        for task in coming:
            task.cancel()
        await asyncio.gather(*coming, return_exceptions=True)
    return results
