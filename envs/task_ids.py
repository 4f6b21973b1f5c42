"""Generated tasks by id, `PREFIX-FAMILY-SPLIT-NUMBER`: all ids without a list of them, what an id
says, and the content that belongs to it in its split."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Generic, TypeVar, overload

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw

T = TypeVar("T")
TaskT = TypeVar("TaskT", covariant=True)

NUMBERS: Mapping[Split, int] = MappingProxyType({"train": 100_000, "heldout": 1_000})
"""Task numbers of one family in each split."""
HELDOUT_SHARE = 5
"""One content in this many is held out."""
_MAX_ATTEMPTS = 10_000
_SHOWN_FAMILIES = 30


@dataclass(frozen=True, slots=True)
class TaskIds(Sequence[str]):
    """All ids of a split, families in turn: any prefix holds each family equally often."""

    split: Split
    families: tuple[str, ...]
    prefix: str = ""
    """Text before the family, its dash included."""

    def __len__(self) -> int:
        return NUMBERS[self.split] * len(self.families)

    def __contains__(self, name: object) -> bool:
        """Check an id at once, where a sequence would look through all of them."""
        if not isinstance(name, str) or not name.startswith(self.prefix):
            return False
        *_, digits = name.rpartition("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) == 6):
            return False
        family = name.removeprefix(self.prefix).removesuffix(f"-{self.split}-{digits}")
        is_family = family in self.families and int(digits) < NUMBERS[self.split]
        return is_family and name == f"{self.prefix}{family}-{self.split}-{digits}"

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


def select_families(available: Collection[str], requested: Sequence[str] | None) -> tuple[str, ...]:
    """The wanted families in order, all for None. Raises ConfigError for an unknown one or none."""
    names = tuple(sorted(available if requested is None else set(requested)))
    if not names or not set(names) <= set(available):
        raise ConfigError(
            f"got env.families={list(requested or [])!r}, expected some of: {', '.join(available)}"
        )
    return names


@dataclass(frozen=True, slots=True)
class TaskId:
    """Parts of an id."""

    family: str
    split: Split
    number: int


def parse_id(
    task_id: object,
    families: Collection[str],
    prefix: str = "",
    heldout_only: Collection[str] = (),
) -> TaskId:
    """Raises TaskError for what is not an id of one of these families."""
    family, split, digits = (*str(task_id).removeprefix(prefix).rsplit("-", 2), "", "")[:3]
    split_in_id: Split = "heldout" if split == "heldout" else "train"
    if (
        task_id != f"{prefix}{family}-{split_in_id}-{digits}"
        or family not in families
        or not (digits.isascii() and digits.isdigit() and len(digits) == 6)
        or int(digits) >= NUMBERS[split_in_id]
    ):
        examples = list(islice(families, _SHOWN_FAMILIES))
        more = ["..."] if len(families) > len(examples) else []
        raise TaskError(
            f"got task {task_id!r}, expected {prefix}FAMILY-SPLIT-NUMBER with six digits below "
            f"{NUMBERS[split_in_id]}, such as '{prefix}{examples[0]}-train-000123'; "
            f"families: {', '.join([*examples, *more])}"
        )
    if split_in_id == "train" and family in heldout_only:
        raise TaskError(
            f"got task {task_id!r}, but the family {family!r} is held out as a whole: expected "
            f"'{prefix}{family}-heldout-{int(digits) % NUMBERS['heldout']:06d}' or another family"
        )
    return TaskId(family, split_in_id, int(digits))


def split_of_content(content: str) -> Split:
    """The one split that a content belongs to: what is held out is never seen in training."""
    digest = hashlib.sha256(content.encode(errors="replace")).digest()
    return "heldout" if int.from_bytes(digest[:4], "big") % HELDOUT_SHARE == 0 else "train"


def composition_split(names: Iterable[str]) -> Split | None:
    """The one split that skills in this order belong to; None for a pair whose other order is held
    out, which training would give away."""
    forward = list(names)
    if split_of_content(" ".join(forward)) == "heldout":
        return "heldout"
    if len(forward) == 2 and split_of_content(" ".join(reversed(forward))) == "heldout":
        return None
    return "train"


def first_drawn(seed: str, draw: Callable[[Draw], T | None], attempts: int) -> T:
    """The first that follows from the seed of draws that may come to nothing."""
    for attempt in range(attempts):
        if (drawn := draw(Draw(f"{seed}/{attempt}"))) is not None:
            return drawn
    raise TaskError(f"{seed!r} gave no task in {attempts} attempts")


def draw_content(
    split: Split, seed: str, draw: Callable[[Draw], T], split_of: Callable[[T], Split]
) -> T:
    """The first content of this split that follows from the seed."""
    for attempt in range(_MAX_ATTEMPTS):
        content = draw(Draw(f"{seed}/{attempt}"))
        if split_of(content) == split:
            return content
    raise TaskError(f"{seed!r} never drew a content of the split {split!r}")


@dataclass(frozen=True, slots=True)
class GeneratedTasks(Generic[TaskT]):
    """The tasks of generated families as a source (`TaskSource`)."""

    families: tuple[str, ...]
    make_task: Callable[[str], TaskT]
    prefix: str = ""
    heldout_only: frozenset[str] = frozenset()
    """Families without training tasks."""

    def ids(self, split: Split) -> TaskIds:
        left_out = self.heldout_only if split == "train" else frozenset[str]()
        families = tuple(family for family in self.families if family not in left_out)
        return TaskIds(split, families, self.prefix)

    def load(self, task_id: str, /) -> TaskT:
        """Raises TaskError for what is not an id."""
        return self.make_task(task_id)
