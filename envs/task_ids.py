"""Ids of generated tasks, without making a list of them: `PREFIX-FAMILY-SPLIT-NUMBER`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import overload

from clawrl_gym.errors import ConfigError
from clawrl_gym.types import Split

NUMBERS: Mapping[Split, int] = MappingProxyType({"train": 100_000, "heldout": 1_000})
"""Task numbers of one family in each split."""


@dataclass(frozen=True, slots=True)
class TaskIds(Sequence[str]):
    """All ids of a split, families in turn: any prefix holds each family equally often."""

    split: Split
    families: tuple[str, ...]
    prefix: str = ""
    """What stands before the family, its dash included."""

    def __len__(self) -> int:
        return NUMBERS[self.split] * len(self.families)

    def __contains__(self, name: object) -> bool:
        """At once, where a sequence would look through all of them."""
        if not isinstance(name, str) or not name.startswith(self.prefix):
            return False
        *_, digits = name.rpartition("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) == 6):
            return False
        family = name.removeprefix(self.prefix).removesuffix(f"-{self.split}-{digits}")
        known = family in self.families and int(digits) < NUMBERS[self.split]
        return known and name == f"{self.prefix}{family}-{self.split}-{digits}"

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"got task index {index}, expected less than {len(self)}")
        number, family = divmod(index % len(self), len(self.families))
        return f"{self.prefix}{self.families[family]}-{self.split}-{number:06d}"


def chosen_families(known: Collection[str], wanted: Sequence[str] | None) -> tuple[str, ...]:
    """The wanted families in order, all for None. Raises ConfigError for an unknown one or none."""
    names = tuple(sorted(known if wanted is None else set(wanted)))
    if not names or not set(names) <= set(known):
        raise ConfigError(
            f"got env.families={list(wanted or [])!r}, expected some of: {', '.join(known)}"
        )
    return names
