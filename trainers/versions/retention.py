"""Retention of a run's checkpoints on the disk, and their names.

The newest ones, or by age: all of today, the last of each of the seven days before, the last of
each week before these, as long as they fit into a quota. Where they do not, those go first that
lie closest to their neighbours in time: many updates within minutes push no older version out. What
is pinned by name stays whatever happens.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from clawrl_gym.config import LearnerConfig
from clawrl_gym.core.errors import ConfigError, StoreError
from clawrl_gym.core.files.files import replace_text
from clawrl_gym.inference.weights.checkpoints import LEARNER, list_checkpoints

PINS_FILE = "pins.json"
"""File below the checkpoints: versions by name."""
MOST_PINS = 32
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_PRUNED = ".pruned"
_SMALL_BYTES = 1 << 30
_MOST_KEPT = 16
_DAYS = 7
"""Days before today of which one checkpoint each is kept."""
_FEWEST = 2


def read_pins(checkpoints: Path) -> dict[str, int]:
    """Pinned versions by name. Raises StoreError for a file that cannot be read."""
    try:
        pins = json.loads((checkpoints / PINS_FILE).read_text())
        return {str(name): int(version) for name, version in pins.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise StoreError(
            f"cannot read {checkpoints / PINS_FILE}: {error}; restore it, or write the pinned "
            'versions into it, such as {"good": 12}'
        ) from error


def pin(checkpoints: Path, name: str, version: int) -> None:
    """Keep a version under a name, which may have meant another one before.

    Raises ConfigError for a name that cannot be one or a version that is not kept, StoreError.
    """
    kept = {0, *list_checkpoints(checkpoints)}
    if _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"got the name {name[:80]!r}, expected a letter, then up to 63 letters, digits or ._-"
        )
    if version not in kept:
        raise ConfigError(
            f"got version {version}, expected one that is kept: {', '.join(map(str, sorted(kept)))}"
        )
    pins = read_pins(checkpoints)
    pins.pop(name, None)  # the last one that was pinned stands last
    pins[name] = version
    if len(pins) > MOST_PINS:
        raise ConfigError(f"got a pin more than {MOST_PINS}, expected at most that many: free one")
    _write_pins(checkpoints, pins)


def unpin(checkpoints: Path, name: str) -> None:
    """Remove a pin. Raises ConfigError where there is none of this name, StoreError."""
    pins = read_pins(checkpoints)
    if pins.pop(name, None) is None:
        raise ConfigError(
            f"got the name {name!r}, expected one that is pinned: {', '.join(pins) or 'none is'}"
        )
    _write_pins(checkpoints, pins)


def _write_pins(checkpoints: Path, pins: Mapping[str, int]) -> None:
    try:
        checkpoints.mkdir(parents=True, exist_ok=True)
        replace_text(checkpoints / PINS_FILE, json.dumps(pins, indent=1) + "\n")
    except OSError as error:
        raise StoreError(f"cannot write {checkpoints / PINS_FILE}: {error}") from error


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint as the choice by age sees it."""

    version: int
    made_s: float
    size_bytes: int


class Retention:
    """Retention of the checkpoints of one set of weights."""

    def __init__(self, config: LearnerConfig, checkpoints: Path) -> None:
        self._config = config
        self._checkpoints = checkpoints

    async def recorded(
        self,
        checkpoint: str | None,
        wanted: Callable[[Collection[int]], Collection[int]] = lambda _: (),
    ) -> None:
        """Delete what is not kept, once an update is stored, with its checkpoint if it made one.

        `wanted`: which of some updates' checkpoints stay beside, such as the best one's.
        """
        if checkpoint is not None:
            await asyncio.to_thread(self.prune, wanted(list_checkpoints(self._checkpoints)))

    def prune(self, wanted: Collection[int]) -> None:
        """Delete what is neither kept nor `wanted`; called once the newest one is recorded."""
        checkpoints = list_checkpoints(self._checkpoints)
        kept = {*self._kept(checkpoints), *wanted, *read_pins(self._checkpoints).values()}
        for version, folder in checkpoints.items():
            if version not in kept:  # half deleted, it must not pass for a checkpoint
                folder.rename(self._checkpoints / f".{version:06d}{_PRUNED}")
        for folder in list(list_checkpoints(self._checkpoints).values())[:-1]:
            state = folder / LEARNER
            if state.is_dir() and size_bytes(folder) > _SMALL_BYTES:
                state.rename(self._checkpoints / f".{folder.name}.{LEARNER}{_PRUNED}")
        for old in self._checkpoints.glob(f".*{_PRUNED}"):
            shutil.rmtree(old, ignore_errors=True)

    def _kept(self, checkpoints: Mapping[int, Path]) -> list[int]:
        count = self._config.keep_checkpoints
        if count == "by_age":
            pinned = set(read_pins(self._checkpoints).values())
            made = [
                Kept(version, folder.stat().st_mtime, size)
                for (version, folder), size in zip(
                    checkpoints.items(), own_sizes(checkpoints.values()), strict=True
                )
            ]
            return kept_by_age(made, time.time(), int(self._config.keep_gb * 2**30), pinned)
        if count == "auto":
            sizes = [size_bytes(folder) for folder in checkpoints.values()][::-1]
            small = sum(total <= _SMALL_BYTES for total in accumulate(sizes[:_MOST_KEPT]))
            return list(checkpoints)[-max(_FEWEST, small) :]
        return list(checkpoints)[-count:]


def kept_by_age(
    made: Collection[Kept], now_s: float, quota_bytes: int, pinned: Collection[int] = ()
) -> list[int]:
    """The versions that stay; the two newest and what is pinned in any case."""
    newest = sorted(one.version for one in made)[-_FEWEST:]
    fixed = {*newest, *pinned}
    last_of: dict[tuple[str, str], Kept] = {}
    for one in sorted(made, key=lambda one: one.version):
        last_of[_period(one, now_s)] = one
    chosen = {one.version: one for one in last_of.values()}
    chosen |= {one.version: one for one in made if one.version in fixed}
    while sum(one.size_bytes for one in chosen.values()) > quota_bytes:
        loose = [version for version in chosen if version not in fixed]
        if not loose:
            break
        del chosen[_closest(chosen, loose, now_s)]
    return sorted(chosen)


def _period(one: Kept, now_s: float) -> tuple[str, str]:
    """Period that a checkpoint is the last of; each one of today is a period by itself."""
    day_s = 86_400.0
    made = time.localtime(one.made_s)
    today = time.localtime(now_s)
    if one.made_s >= now_s or made[:3] == today[:3]:
        return "version", str(one.version)
    if now_s - one.made_s <= (_DAYS + 1) * day_s:
        return "day", time.strftime("%Y-%m-%d", made)
    return "week", time.strftime("%G-%V", made)


def _closest(chosen: Mapping[int, Kept], loose: Collection[int], now_s: float) -> int:
    """The loose version between whose neighbours the least time passed."""
    order = sorted(chosen.values(), key=lambda one: one.version)
    gaps: dict[int, float] = {}
    for at, one in enumerate(order):
        before_s = order[at - 1].made_s if at else float("-inf")
        after_s = order[at + 1].made_s if at + 1 < len(order) else now_s
        gaps[one.version] = after_s - before_s
    return min(loose, key=lambda version: (gaps[version], version))


def size_bytes(folder: Path) -> int:
    """Size of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def own_sizes(folders: Collection[Path]) -> list[int]:
    """Bytes of each folder's files that no folder before it has: a linked file takes none."""
    seen: set[tuple[int, int]] = set()
    sizes = []
    for folder in folders:
        size = 0
        for path in folder.rglob("*"):
            stat = path.stat()
            if path.is_file() and (stat.st_dev, stat.st_ino) not in seen:
                seen.add((stat.st_dev, stat.st_ino))
                size += stat.st_size
        sizes.append(size)
    return sizes
