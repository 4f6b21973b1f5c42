"""Lessons of a sample as one list of numbers.

A prompt with a hint in it has nearly all ids in common with the prompt that was used, which the
sample holds before the turn's first token: only the difference is stored, see `delta.py`.

    lessons: how many; each: start, length, how many prompts
    pictures: of each lesson; left out when none has any
    prompt:  ids that it begins with, how many runs, each run's three numbers, how many own ids, ids
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

from clawrl_gym.core.types import Lesson
from clawrl_gym.dialogue.delta import split_ids, weave_ids
from clawrl_gym.store.rows import pack_ints, unpack_ints


def pack_lessons(lessons: Sequence[Lesson], ids_T: list[int]) -> bytes:
    """Lessons of the sample with these ids."""
    ids = array("i", ids_T)
    told = array("i", [len(lessons)])
    for lesson in lessons:
        told.extend((lesson.start, lesson.length, len(lesson.prompts)))
        used = ids[: lesson.start]
        for prompt_T in lesson.prompts:
            prefix, own, copies = split_ids(used, array("i", prompt_T))
            told.extend((prefix, len(copies), *chain.from_iterable(copies), len(own)))
            told += own
    if any(lesson.pictures for lesson in lessons):
        told.extend(lesson.pictures for lesson in lessons)
    return pack_ints(told)


def unpack_lessons(blob: bytes, ids_T: list[int]) -> tuple[Lesson, ...]:
    """The inverse of `pack_lessons`."""
    numbers = iter(unpack_ints(blob))
    lessons = [_lesson(numbers, ids_T) for _ in range(next(numbers))]
    return tuple(replace(lesson, pictures=next(numbers, 0)) for lesson in lessons)


def _lesson(numbers: Iterator[int], ids_T: list[int]) -> Lesson:
    start, length, count = islice(numbers, 3)
    return Lesson(start, length, tuple(_prompt(numbers, ids_T[:start]) for _ in range(count)))


def _prompt(numbers: Iterator[int], used: list[int]) -> list[int]:
    prefix, runs = islice(numbers, 2)
    copies = [tuple(islice(numbers, 3)) for _ in range(runs)]
    weave_ids(used, prefix, list(islice(numbers, next(numbers))), copies)
    return used
