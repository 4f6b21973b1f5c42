"""Mutations to try, in order: function after function, one change of each.

So bugs are spread over the code. A function of which no test notices a few changes has no tests:
nothing else in it is tried.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.selection import LeftOut
from clawrl_gym.envs.swe.bugs.mutations import NOTHING_RETURNED, Mutation, mutations_of
from clawrl_gym.envs.swe.rows.archive import PackedFile
from clawrl_gym.envs.swe.rows.protected_files import ProtectedFiles

ENOUGH_UNNOTICED = 3
_LEAST_IN_A_ROUND = 8
_LONGEST_FILE = 1_000_000


@dataclass(frozen=True, slots=True)
class Candidates:
    """Every change of a repository's own code."""

    by_place: Mapping[str, Sequence[Mutation]]
    """Mutations by place, in the order in which they are tried."""
    texts: Mapping[str, str]
    """Files that have any, by path."""
    left_out: tuple[LeftOut, ...]
    """Files that cannot be changed."""

    @property
    def count(self) -> int:
        return sum(map(len, self.by_place.values()))

    def rounds(self, is_done: Callable[[Sequence[Mutation]], bool]) -> Iterator[list[Mutation]]:
        """Lists of mutations; a function is done by what earlier lists had of it."""
        each = math.ceil(_LEAST_IN_A_ROUND / max(1, len(self.by_place)))
        most = max(map(len, self.by_place.values()), default=0)
        for start in range(0, most, each):
            yield [
                mutation
                for number in range(start, start + each)
                for mutations in self.by_place.values()
                if number < len(mutations) and not is_done(mutations[:start])
                for mutation in [mutations[number]]
            ]


def find_candidates(
    files: Mapping[str, PackedFile], tests: ProtectedFiles, seed: int, where: str
) -> Candidates:
    """Raises ConfigError for a repository without code that can be changed."""
    by_place = dict[str, list[Mutation]]()
    texts = dict[str, str]()
    left_out = list[LeftOut]()
    for path in sorted(files):
        if not path.endswith(".py") or tests.protects(path):
            continue
        try:
            text = _text(files[path])
            mutations = mutations_of(path, text)
        except (ValueError, SyntaxError, RecursionError) as error:
            left_out.append(LeftOut(path, f"the file cannot be changed: {_why(error)}"))
            continue
        for mutation in mutations:
            texts[path] = text
            by_place.setdefault(mutation.place, []).append(mutation)
    if not by_place:
        raise ConfigError(
            f"the repository {where!r} has no Python function outside of its tests to make a bug in"
            + (f" ({left_out[0].name}: {left_out[0].reason})" if left_out else "")
        )
    places = sorted(by_place)
    draw = Random(seed)
    draw.shuffle(places)
    for place in places:
        draw.shuffle(by_place[place])
        by_place[place].sort(key=lambda mutation: mutation.kind == NOTHING_RETURNED)  # the bluntest
    return Candidates({place: by_place[place] for place in places}, texts, tuple(left_out))


def _why(error: Exception) -> str:
    version = ".".join(map(str, sys.version_info[:2]))
    return f"{error}; read by Python {version}" if isinstance(error, SyntaxError) else str(error)


def _text(file: PackedFile) -> str:
    if len(file.data) > _LONGEST_FILE:
        raise ValueError(f"it has over {_LONGEST_FILE} bytes")
    text = file.data.decode()
    if text and not text.endswith("\n"):
        raise ValueError("its last line does not end")
    return text
