"""A reply in the one of five formats that the request names.

Each format excludes the others: a reply that has the marks of two has none. So what is written for
every request alike, in one format or in all at once, is wrong for the requests that name another
one, and the rewards are such that it earns 0 on average: 1 for the format that is asked for, and
for anything else a fourth of it less.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from clawrl_gym.envs.draw import WORDS, Draw
from clawrl_gym.envs.report import Grade, report_of
from clawrl_gym.envs.task_ids import GeneratedTasks, parse_id, select_families
from clawrl_gym.envs.text.task import TextTask
from clawrl_gym.envs.text.topics import topics_of

PREFIX = "format-"
LONGEST = 2_000
"""Characters of a reply; a longer one has no format."""
_ITEM = re.compile(r"(\d+)[.)] +\S.*")
_KEYS = ("name", "kind", "use", "place", "fact", "color", "size", "origin")
_QUOTES = (('"', '"'), ("\u201c", "\u201d"))
_FENCE = re.compile(r"```(?:json)?\n(.*)\n```", re.DOTALL)


class Format(Protocol):
    """One format, with what the request says of it."""

    @property
    def request(self) -> str:
        """The words behind "Tell me about TOPIC"."""
        ...

    def fits(self, reply: str) -> bool: ...

    def example(self, topic: str) -> str:
        """A reply in the format."""
        ...


@dataclass(frozen=True, slots=True)
class JsonObject:
    """An object with two keys, each with a text."""

    keys: tuple[str, str]

    @property
    def request(self) -> str:
        first, second = self.keys
        return f' as a JSON object with the two keys "{first}" and "{second}".'

    def fits(self, reply: str) -> bool:
        values = _json_object(reply)
        return (
            values is not None
            and set(values) == set(self.keys)
            and all(isinstance(value, str) and value.strip() for value in values.values())
        )

    def example(self, topic: str) -> str:
        return json.dumps(dict.fromkeys(self.keys, f"It is {topic}."))


@dataclass(frozen=True, slots=True)
class NumberedList:
    """So many items, numbered from 1, a line each, and nothing else."""

    count: int

    @property
    def request(self) -> str:
        return f" in a numbered list of {self.count} short items."

    def fits(self, reply: str) -> bool:
        return _numbers(reply) == list(range(1, self.count + 1))

    def example(self, topic: str) -> str:
        return "\n".join(f"{n}. {topic.capitalize()} is known." for n in range(1, self.count + 1))


@dataclass(frozen=True, slots=True)
class Capitals:
    """Capital letters alone."""

    request: str = " in one sentence. Write in capital letters only."

    def fits(self, reply: str) -> bool:
        return reply.isupper()

    def example(self, topic: str) -> str:
        return f"{topic} is known.".upper()


@dataclass(frozen=True, slots=True)
class LastWord:
    """One word, given in the request, stands at the end."""

    word: str

    @property
    def request(self) -> str:
        return f' in one sentence with "{self.word}" as its last word.'

    def fits(self, reply: str) -> bool:
        words = re.findall(r"[a-z]+", reply.lower())
        return len(words) > 1 and words[-1] == self.word

    def example(self, topic: str) -> str:
        return f"{topic.capitalize()} is as known as {self.word}."


@dataclass(frozen=True, slots=True)
class Quoted:
    """Quotation marks around all of it."""

    request: str = " in one sentence. Put your whole reply in double quotation marks."

    def fits(self, reply: str) -> bool:
        return _is_quoted(reply)

    def example(self, topic: str) -> str:
        return f'"{topic.capitalize()} is known."'


def _json(draw: Draw) -> Format:
    first, second = draw.some(_KEYS, 2)
    return JsonObject((first, second))


FORMATS: Mapping[str, Callable[[Draw], Format]] = {
    "capitals": lambda draw: Capitals(),
    "json": _json,
    "last_word": lambda draw: LastWord(draw.pick(WORDS)),
    "numbered": lambda draw: NumberedList(draw.between(2, 4)),
    "quoted": lambda draw: Quoted(),
}
WRONG = -1 / (len(FORMATS) - 1)
"""Reward of a reply that has not the format that is asked for."""


def marks_of(reply: str) -> frozenset[str]:
    """Families whose marks a reply has, whatever the request says of them in detail."""
    marks: Mapping[str, bool] = {
        "capitals": reply.isupper(),
        "json": _json_object(reply) is not None,
        "numbered": bool(_numbers(reply)),
        "quoted": _is_quoted(reply),
    }
    return frozenset(family for family, is_there in marks.items() if is_there)


@dataclass(frozen=True, slots=True)
class FormatGrader:
    """Takes a reply that names its topic in one format alone: the one that is asked for."""

    topic: str
    family: str
    format: Format
    name: str = "format"

    def grade(self, reply: str) -> Grade:
        reply = reply.strip()
        others = sorted(marks_of(reply) - {self.family})
        checks = {
            f"the reply is not{self.format.request.rstrip('.')}": self.format.fits(reply),
            f"the reply does not say {self.topic!r}": self.topic.lower() in reply.lower(),
            f"the reply has another format, too: {', '.join(others)}": not others,
            f"the reply has more than {LONGEST} characters": len(reply) <= LONGEST,
        }
        failures = [failure for failure, holds in checks.items() if not holds]
        return Grade(WRONG if failures else 1.0, report_of(failures))


def format_tasks(families: Sequence[str] | None = None) -> GeneratedTasks[TextTask]:
    """The tasks of these formats; None takes all. Raises ConfigError for an unknown one."""
    return GeneratedTasks(select_families(FORMATS, families), make_task, PREFIX)


def make_task(task_id: str) -> TextTask:
    """The task of an id. Raises TaskError for what is not an id."""
    parsed = parse_id(task_id, FORMATS, PREFIX)
    topics = topics_of(parsed.split)
    topic = topics[parsed.number % len(topics)]
    form = FORMATS[parsed.family](Draw(task_id))
    return TextTask(
        id=task_id,
        family=parsed.family,
        split=parsed.split,
        prompt=f"Tell me about {topic}{form.request}",
        grader=FormatGrader(topic, parsed.family, form),
        solution=form.example(topic),
    )


def _json_object(reply: str) -> dict[str, object] | None:
    fenced = _FENCE.fullmatch(reply)
    try:
        values = json.loads(fenced[1] if fenced else reply)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def _numbers(reply: str) -> list[int]:
    """Numbers of the items; empty where a line is none."""
    lines = [line.strip() for line in reply.splitlines() if line.strip()]
    items = [_ITEM.fullmatch(line) for line in lines]
    return [int(item[1]) for item in items if item] if all(items) else []


def _is_quoted(reply: str) -> bool:
    """Marks at both ends, and none of their kind between."""
    return any(
        len(reply) > 2 and reply[0] == opening and reply[-1] == closing
        and not {opening, closing} & set(reply[1:-1])
        for opening, closing in _QUOTES
    )  # fmt: skip
