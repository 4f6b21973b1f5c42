"""Made-up repositories as files: one YAML file each, with names that every instance draws again.

`@fee@` in a text stands for the drawn name, `@Fee@` for the same with a capital.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import yaml
from pydantic import BaseModel, ConfigDict, Field

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.draw import STEMS, WORDS, Draw

FOLDER = Path(__file__).parent / "repositories"
_PLACEHOLDER = re.compile(r"@([A-Za-z_]+)@")


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Bug(_StrictModel):
    """One thing that can be wrong with a repository."""

    issues: tuple[str, ...] = Field(min_length=1)
    """Reports that a user may write about it; one is drawn."""
    path: str
    right: str
    """Stands exactly once in the file at `path`."""
    wrong: str
    """Wrong text in its place, before the fix."""
    hidden: str
    """Tests that fail before the fix, put at the end of the first test file."""
    said: tuple[str, ...] = ()
    """Further ways to say it exactly, in a sentence or two, for where it is one of several."""
    seen: tuple[str, ...] = ()
    """Symptoms from outside, in a sentence or two."""
    vague: bool = False
    """Its issues say less than its tests ask for: among several things `said` stands for them."""
    edit: str | None = None
    """Easy families: the sed expression that mends the file at `path`."""


class NoBug(_StrictModel):
    """Behaviour that looks like a bug; README, docstrings or tests say that it is meant."""

    said: tuple[str, ...] = Field(min_length=1)
    path: str
    right: str
    """Stands exactly once in the file at `path` as it should be."""
    wrong: str
    """Text that somebody who believes it would write there; an existing test breaks."""


class RepositoryFamily(_StrictModel):
    """A family of instances: the same repository under other names."""

    runner: str
    names: Mapping[str, str | tuple[str, ...]]
    """Kind of each drawn name: `stem`, `word`, a range such as `3..9`, or one of several."""
    files: Mapping[str, str]
    """The repository as it should be, without its tests."""
    tests: Mapping[str, str] = Field(min_length=1)
    """Tests that are there before the fix and pass before and after it."""
    bugs: tuple[Bug, ...] = Field(min_length=1)
    no_bugs: tuple[NoBug, ...] = ()

    @property
    def easy(self) -> bool:
        """Whether the tiny policy can learn it: one look and one sed mend it."""
        return all(bug.edit is not None for bug in self.bugs)


@dataclass(frozen=True, slots=True)
class DrawnRepository:
    """A repository whose names are drawn, with one bug."""

    issue: str
    path: str
    edit: str | None
    fixed: Mapping[str, str]
    """All files as they should be, visible tests included."""
    broken: Mapping[str, str]
    tests: Mapping[str, str]
    """The test files with the hidden tests."""


@cache
def families() -> tuple[str, ...]:
    """Names of all repositories, in order."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


@cache
def repository_family(family: str) -> RepositoryFamily:
    """The repository of a family. Raises TaskError when its file is wrong."""
    if family not in families():
        raise TaskError(f"got family {family!r}, expected one of: {', '.join(families())}")
    text = (FOLDER / f"{family}.yaml").read_text(encoding="utf-8")
    return RepositoryFamily.model_validate(yaml.load(text, _Loader))


class _Loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """The quicker of the two."""


def draw_repository(family: RepositoryFamily, draw: Draw) -> DrawnRepository:
    """One instance's content. Raises TaskError when a bug does not fit its file."""
    names = draw_names(family.names, draw)
    bug = draw.pick(family.bugs)
    issue = draw.pick(bug.issues)
    visible = fill_files(family.tests, names)
    first = next(iter(visible))
    hidden = visible[first] + fill(bug.hidden, names)
    fixed = {**fill_files(family.files, names), **visible}
    broken = spoilt(fixed, bug, names)
    return DrawnRepository(
        issue=fill(issue, names).strip(),
        path=fill(bug.path, names),
        edit=None if bug.edit is None else fill(bug.edit, names),
        fixed=fixed,
        broken=broken,
        tests={**visible, first: hidden},
    )


class WrongChange(Protocol):
    """Right and wrong text for one place of a repository."""

    @property
    def path(self) -> str: ...
    @property
    def right(self) -> str: ...
    @property
    def wrong(self) -> str: ...


def spoilt(
    files: Mapping[str, str], change: WrongChange, names: Mapping[str, str]
) -> dict[str, str]:
    """The files with what is wrong. Raises TaskError where what is right stands not just once."""
    path, right = fill(change.path, names), fill(change.right, names)
    times = files.get(path, "").count(right)
    if times != 1:
        raise TaskError(f"got {right!r} {times} times in {path!r}, expected it once")
    return {**files, path: files[path].replace(right, fill(change.wrong, names))}


def draw_names(kinds: Mapping[str, str | tuple[str, ...]], draw: Draw) -> dict[str, str]:
    """Value of each placeholder."""
    stems, words = list(STEMS), list(WORDS)
    names: dict[str, str] = {}
    for name, kind in kinds.items():
        if isinstance(kind, tuple):
            names[name] = draw.pick(kind)
        elif kind in ("stem", "word"):
            left = stems if kind == "stem" else words
            names[name] = left.pop(draw.below(len(left)))
        else:
            low, _, high = kind.partition("..")
            names[name] = str(draw.between(int(low), int(high)))
    return names


def fill_files(files: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Paths and texts with the drawn names."""
    return {fill(path, names): fill(text, names) for path, text in files.items()}


def fill(text: str, names: Mapping[str, str]) -> str:
    """A text with the drawn names. Raises TaskError for a placeholder without one."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name in names:
            return names[name]
        if name[0].isupper() and (lower := name[0].lower() + name[1:]) in names:
            return names[lower].capitalize()
        raise TaskError(f"got {match[0]!r} in a repository, expected one of: {', '.join(names)}")

    return _PLACEHOLDER.sub(value, text)
