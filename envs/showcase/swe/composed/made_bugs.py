"""Small wrong changes of the repositories in Python that tests which stand in them notice.

The table beside this file was made, and each of its entries tried, by `tools/made_bugs.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from clawrl_gym.core.plain_yaml import plain_values

TABLE = Path(__file__).parent / "made_bugs.yaml"


class MadeBug(BaseModel):
    """One wrong change, in the manner of the corpus's own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    right: str
    """Stands exactly once in the file at `path`."""
    wrong: str
    breaks: tuple[str, ...] = Field(min_length=1)
    """The tests of the repository that fail with it, whatever the names."""
    beside: tuple[int, ...]
    """The repository's own bugs that it goes together with, alone and all at once."""


@cache
def made_bugs() -> Mapping[str, tuple[MadeBug, ...]]:
    """The made bugs by repository."""
    table = plain_values(TABLE.read_text(encoding="utf-8"))
    return TypeAdapter(dict[str, tuple[MadeBug, ...]]).validate_python(table)
