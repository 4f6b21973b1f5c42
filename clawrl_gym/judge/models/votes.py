r"""Votes of a judge's model: what counts as one, and what many of them decide.

Only the answer after the reasoning is read, and only when it is whole: a model that is cut off
while it repeats its instructions has not voted. The last \boxed{} is the vote, or nothing is. Where
there is none, a vote may be a field of JSON, a named number ("Score: -1"), or the last line alone
("**-1**"); an answer that names different ones has not voted.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Literal, TypeVar, cast

from clawrl_gym.judge.models.chat_models import Completion

Value = Literal[-1, 0, 1]
T = TypeVar("T")

_VOTE = re.compile(r"[+-]?1(?:\.0+)?|0(?:\.0+)?")
_BOXED = r"\boxed"
_IN_BOX = re.compile(r"\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
"""Content of a LaTeX box, with nested braces."""
_STYLE = re.compile(r"\\[a-zA-Z]+\s*\{(.*)\}", re.DOTALL)
_SPACE = re.compile(r"\\[ ,;:!]|[${}()\\~]")
"""LaTeX's forms of space and brackets."""
_SIGNS = str.maketrans({
    **dict.fromkeys("\u2212\u2013\u2014\u2010\u2011\ufe63\uff0d", "-"),
    **dict.fromkeys("\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb\u300c\u300d", '"'),
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", ""),
    "\uff0b": "+", "\uff10": "0", "\uff11": "1", "\uff1a": ":", "\uff1d": "=", "\u2192": "=",
    "\u00a0": " ", "\u3000": " ",
})  # fmt: skip
_BEGINS = re.compile(r"<(?:think|thinking|thought|reasoning)>|\[THINK\]", re.IGNORECASE)
_ENDS = re.compile(
    r"</(?:think|thinking|thought|reasoning)>|\[/THINK\]|<\|channel\|>final<\|message\|>",
    re.IGNORECASE,
)
_NAMES = (
    r"verdict|vote|score|rating|reward|judge?ment|(?:final|my)[ _](?:answer|vote|verdict|score)"
)
_FIELD_NAMES = rf"{_NAMES}|answer|value|result|label"
_FIELD = re.compile(_FIELD_NAMES, re.IGNORECASE)
_TAG = re.compile(
    rf"<(?P<name>{_FIELD_NAMES})>(?P<vote>.*?)(?:</(?P=name)>|$)", re.IGNORECASE | re.DOTALL
)
_NUMBER = r"[+-]?(?:1|0)(?:\.0+)?(?![\d.]*\d)"
_MARKS = r"[*_`\"'$()\[\]\\]*"
_NAMED = re.compile(
    rf"\b(?:{_NAMES})\b{_MARKS}(?: ?\([^()\n]*\))?{_MARKS}\s*"
    rf"(?:is|are|of|=>|->|[:=]|)?\s*{_MARKS}\s*(?P<vote>[+-]?\d+(?:\.\d+)?)"
    rf"(?P<more>{_MARKS}\s*(?:/|\||,(?=\s*[+-]?\d)|or\b|to\b|out\b|of\b|%)?)",
    re.IGNORECASE,
)
_ALONE = re.compile(
    rf"[\s>#]*{_MARKS}(?:answer{_MARKS}\s*[:=]\s*{_MARKS})?(?P<vote>{_NUMBER}){_MARKS}[.!]?{_MARKS}\s*",
    re.IGNORECASE,
)
_AROUND = "*_`\"'$()[]\\ \n"
"""Marks that may stand around a vote."""
_FENCE = re.compile(r"```\w*")
_END_TOKEN = re.compile(r"(?:<\|[^|<>\s]{1,40}\|>|</s>|<eos>|<end_of_turn>)$")
_DEEPEST = 4
"""Objects inside of objects in which a vote is looked for."""


def parse_vote(completion: Completion) -> Value | None:
    """The vote in an answer; None when there is none."""
    answer = answer_of(completion)
    if answer is None:
        return None
    return last_boxed(answer) if _BOXED in answer else _only_vote(answer)


def answer_of(completion: Completion) -> str | None:
    """The text after the reasoning; None for an answer that is cut off or still reasons."""
    if not completion.finished:
        return None
    answer = _ENDS.split(completion.text)[-1]
    return None if _BEGINS.search(answer) else answer


def last_boxed(text: str) -> Value | None:
    r"""1, 0 or -1 in the last \boxed{} of a text; None for anything else in it."""
    _, boxed, rest = text.translate(_SIGNS).rpartition(_BOXED)
    box = _IN_BOX.match(rest) if boxed else None
    if box is None:
        return None
    inside = box[1].strip()
    while style := _STYLE.fullmatch(inside):
        inside = style[1].strip()
    vote = _SPACE.sub("", inside).strip()
    return cast(Value, int(float(vote))) if _VOTE.fullmatch(vote) else None


def _only_vote(answer: str) -> Value | None:
    """The one that an answer without a box names."""
    text = _FENCE.sub("", answer.translate(_SIGNS)).strip()
    while end := _END_TOKEN.search(text):
        text = text[: end.start()].rstrip()
    fields = _json_of(text)
    found = set(_in_fields(fields) if fields is not None else _in_words(text))
    vote = found.pop() if len(found) == 1 else None
    return cast(Value, int(vote)) if vote in (-1, 0, 1) else None


def _json_of(text: str) -> object:
    """The object that stands in a text; None where there is none."""
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end < begin:
        return None
    try:
        found: object = json.loads(re.sub(r"(:\s*)\+(?=[01])", r"\1", text[begin : end + 1]))
    except (ValueError, RecursionError):
        return None
    return found


def _in_fields(fields: object, depth: int = 0) -> Iterator[float | None]:
    """The numbers of fields that a vote may have; None for one that is not a number."""
    if not isinstance(fields, dict) or depth > _DEEPEST:
        return
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _in_fields(value, depth + 1)
        elif _FIELD.fullmatch(name.strip()):
            yield _number(value)


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value) if isinstance(value, int | float | str) else None
    except ValueError:
        return None


def _in_words(text: str) -> Iterator[float | None]:
    """Numbers that are named as votes or stand in a tag, and the last line where it is one alone;
    None for one of a scale or of a choice."""
    for tag in _TAG.finditer(text):
        yield _number(tag["vote"].strip(_AROUND))
    text = _TAG.sub("\n", text)
    for match in _NAMED.finditer(text):
        more = match["more"].strip(_AROUND)
        yield None if more else float(match["vote"])
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    alone = _ALONE.fullmatch(last)
    if alone:
        yield float(alone["vote"])


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
