"""A made-up repository under drawn names, right, with some of its bugs, or wrongly mended.

Each repository belongs to one split as a whole, with all that is said of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from types import MappingProxyType

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.swe.composed.made_bugs import MadeBug
from clawrl_gym.envs.showcase.swe.corpus.repository import (
    Bug,
    RepositoryFamily,
    draw_names,
    families,
    fill,
    fill_files,
    repository_family,
    spoilt,
)
from clawrl_gym.envs.swe.rows.runners import Runner, runner_of

HELDOUT_REPOSITORIES = frozenset(("grid", "memory", "stock", "versions", "waiting"))
"""All others are for training."""
CLASHES: Mapping[str, frozenset[frozenset[int]]] = MappingProxyType(
    {
        "emitter": frozenset((frozenset((0, 1)),)),
        "formulas": frozenset((frozenset((0, 1)),)),
        "letters": frozenset((frozenset((0, 3)),)),
        "pages": frozenset((frozenset((0, 3)),)),
        "routes": frozenset((frozenset((1, 3)),)),
        "titles": frozenset((frozenset((0, 3)),)),
        "versions": frozenset((frozenset((2, 3)),)),
    }
)
"""Pairs of bugs, by number, that change the same text or hide each other from a test."""


@dataclass(frozen=True, slots=True)
class Ground:
    """One repository under its drawn names."""

    name: str
    """Name in the corpus."""
    names: Mapping[str, str]

    @property
    def family(self) -> RepositoryFamily:
        return repository_family(self.name)

    @property
    def runner(self) -> Runner:
        return runner_of(self.family.runner)

    def filled(self, text: str) -> str:
        return fill(text, self.names).strip()

    def bug(self, number: int) -> Bug:
        return self.family.bugs[number]

    def visible(self) -> dict[str, str]:
        """The tests that stand in the repository."""
        return fill_files(self.family.tests, self.names)

    def right(self) -> dict[str, str]:
        """All files as they should be."""
        return {**fill_files(self.family.files, self.names), **self.visible()}

    def wrong(self, bugs: Iterable[int], made: MadeBug | None = None) -> dict[str, str]:
        """All files with these bugs. Raises TaskError where they do not go together."""
        files = self.right()
        for number in sorted(bugs):
            files = spoilt(files, self.bug(number), self.names)
        return files if made is None else spoilt(files, made, self.names)

    def mistaken(self, no_bug: int) -> dict[str, str]:
        """All files as they should be, but for what is taken for a bug."""
        return spoilt(self.right(), self.family.no_bugs[no_bug], self.names)

    def tests(self, bugs: Iterable[int]) -> dict[str, str]:
        """The test files with those that tell these bugs."""
        visible = self.visible()
        first = next(iter(visible))
        hidden = "".join(fill(self.bug(number).hidden, self.names) for number in sorted(bugs))
        return {**visible, first: visible[first] + hidden}

    def ids(self, tests: Mapping[str, str]) -> tuple[str, ...]:
        """The runner's ids of the tests in these files."""
        return tuple(test for path, text in tests.items() for test in self.runner.ids(path, text))


def draw_ground(draw: Draw, repository: str) -> Ground:
    """A repository under names that are drawn."""
    return Ground(repository, draw_names(repository_family(repository).names, draw))


@cache
def repositories(runners: Collection[str], split: Split) -> tuple[str, ...]:
    """Repositories of a split whose tests these frameworks run, by name."""
    return tuple(
        name
        for name in families()
        if repository_family(name).no_bugs
        and repository_family(name).runner in runners
        and (name in HELDOUT_REPOSITORIES) == (split == "heldout")
    )


def clash(repository: str, bugs: Iterable[int]) -> bool:
    """Whether two of these bugs cannot be told apart."""
    clashes = CLASHES.get(repository, frozenset())
    return any(frozenset(pair) in clashes for pair in combinations(bugs, 2))
