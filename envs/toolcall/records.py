"""Common parts of toolsets over tables of records: rows by id, texts that people give."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeVar

from clawrl_gym.envs.toolcall.toolset import ToolFailure

MAX_TEXT_CHARS = 200
"""Most characters of a text in a record, so that records stay small."""

T = TypeVar("T")


def record_of(kind: str, name: str, rows: Mapping[str, T]) -> T:
    """The record of an id. Raises ToolFailure without one."""
    if name not in rows:
        raise ToolFailure(f"there is no {kind} {name[:MAX_TEXT_CHARS]}")
    return rows[name]


def short(field: str, text: str) -> str:
    """A text as it is written into a record. Raises ToolFailure for none, or too much."""
    if not text.strip() or len(text) > MAX_TEXT_CHARS:
        raise ToolFailure(f"expected a {field} of 1 to {MAX_TEXT_CHARS} characters")
    return text.strip()


def plain(text: str) -> str:
    """The text without what people write in different ways."""
    return " ".join(text.split()).casefold()


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
