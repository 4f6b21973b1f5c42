"""The tasks of a data set: its rows, those that are left out, and which are held out."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.dataset.config import DatasetEnvConfig
from clawrl_gym.envs.dataset.data import HUB, Placed, read_data
from clawrl_gym.envs.dataset.reward import RewardFunction, reward_functions
from clawrl_gym.envs.dataset.row import RowTask, row_task
from clawrl_gym.envs.selection import LeftOut, Selection

_ONE_AT_A_TIME = threading.Lock()
"""A worker's environments open the same rows at once: the first reads them for all."""


@dataclass(frozen=True)
class DatasetTasks:
    """A `TaskSource` over the rows that can be used, and the functions that grade them."""

    tasks: Mapping[str, RowTask]
    functions: tuple[RewardFunction, ...]
    selection: Selection

    def ids(self, split: Split) -> Sequence[str]:
        return [task.id for task in self.tasks.values() if task.split == split]

    def load(self, task_id: str, /) -> RowTask:
        if task_id not in self.tasks:
            reason = self.selection.reason_of(task_id) or "there is none in this data set"
            raise TaskError(f"task {task_id!r} cannot be used here: {reason}")
        return self.tasks[task_id]


def open_source(config: DatasetEnvConfig) -> DatasetTasks:
    """The rows of a configuration, read once in a process until their files change.

    Raises ConfigError for data or functions that cannot be found or do not fit together, TaskError
    when no row can be used.
    """
    if config.data is None:
        raise ConfigError(
            "got env=dataset without data, expected env.data=FILE (.jsonl, .json, .csv or "
            ".parquet) or env.data=hub:ORG/NAME"
        )
    places = [config.data, *([config.heldout] if isinstance(config.heldout, str) else [])]
    with _ONE_AT_A_TIME:
        return _opened(config.model_dump_json(), tuple(map(_stamp, places)))


def _stamp(data: str) -> tuple[int, int]:
    """A mark that changes with a file; the same for a data set of the hub."""
    if data.startswith(HUB):
        return 0, 0
    try:
        status = Path(data).expanduser().stat()
    except OSError as error:
        where = str(Path(data).expanduser().absolute())
        raise ConfigError(
            f"got the data set {data!r}, expected a file (cannot read {where!r}: "
            f"{error.strerror}), or hub:ORG/NAME"
        ) from error
    return status.st_mtime_ns, status.st_size


@lru_cache(8)
def _opened(config_json: str, stamps: tuple[tuple[int, int], ...]) -> DatasetTasks:
    """The rows; read again where a stamp has changed."""
    config = DatasetEnvConfig.model_validate_json(config_json)
    functions = reward_functions(config)
    rows = _all_rows(config)
    Selection(len(rows.used), tuple(rows.left_out)).require_some(str(config.data))
    columns = {name for row in rows.used for name in row.task.columns}
    for function in functions:
        function.check(columns, str(config.data))
    rows.leave_out(lambda row: _lacking(row.task, functions))
    held_out = _held_out(rows.used, 0.0 if isinstance(config.heldout, str) else config.heldout)
    rows.leave_out(lambda row: _in_both(row, held_out))
    rows.leave_out(_Ids())
    tasks = [replace(row.task, split=_split_of(row, held_out)) for row in rows.used]
    selection = Selection(len(tasks), tuple(rows.left_out))
    selection.require_some(str(config.data))
    return DatasetTasks({task.id: task for task in tasks}, functions, selection)


@dataclass(frozen=True, slots=True)
class _Row:
    """A row that is a task."""

    place: str
    task: RowTask
    split: Split | None
    """The split that it names, itself or by its file."""


@dataclass(slots=True)
class _Rows:
    """Rows that can be used so far, and the others."""

    used: list[_Row]
    left_out: list[LeftOut]

    def leave_out(self, reason_of: Callable[[_Row], str | None]) -> None:
        """Leave out the rows for which there is a reason."""
        rows, self.used = self.used, []
        for row in rows:
            reason = reason_of(row)
            if reason is None:
                self.used.append(row)
            else:
                self.left_out.append(LeftOut(row.place, reason))


class _Ids:
    """Reasons against a second row with one id."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def __call__(self, row: _Row) -> str | None:
        if row.task.id in self._taken:
            return f"the id {row.task.id!r} is taken already"
        self._taken.add(row.task.id)
        return None


def _all_rows(config: DatasetEnvConfig) -> _Rows:
    """The rows that are tasks, of both files where there are two."""
    rows = _Rows([], [])
    assert config.data is not None
    _add(rows, config, read_data(config.data))
    if isinstance(config.heldout, str):
        _add(rows, config, read_data(config.heldout), are_heldout=True)
    return rows


def _add(
    rows: _Rows, config: DatasetEnvConfig, data: Iterable[Placed], are_heldout: bool = False
) -> None:
    unnamed: Split | None = "train" if isinstance(config.heldout, str) else None
    for where, content in data:
        place = ("heldout-" if are_heldout else "") + where.replace(" ", "-")
        try:
            task, named = row_task(place, content, config)
        except TaskError as error:
            rows.left_out.append(LeftOut(place, str(error)))
        else:
            split: Split | None = "heldout" if are_heldout else named or unnamed
            rows.used.append(_Row(place, task, split))


def _lacking(task: RowTask, functions: Sequence[RewardFunction]) -> str | None:
    for function in functions:
        for name in function.needs:
            if name not in task.columns:
                return f"no column {name!r}, which env.reward={function.name} needs"
    return None


def _held_out(rows: Sequence[_Row], share: float) -> frozenset[str]:
    """Contents that are held out: those of rows that say so, and this share of the others.

    A content's hash decides, so that it stays where it is when rows are added. Of two contents or
    more at least one is held out and one is not.
    """
    named = {row.task.content for row in rows if row.split == "heldout"}
    free = sorted({row.task.content for row in rows if row.split is None} - named, key=_position)
    chosen = [content for content in free if _position(content) < share]
    if share and not named and not chosen and len(free) > 1:
        chosen = free[:1]
    if len(chosen) == len(free) and len(free) > 1:
        chosen = free[:-1]
    return frozenset(named.union(chosen))


def _position(content: str) -> float:
    """The place of a content in [0, 1)."""
    digest = hashlib.sha256(content.encode(errors="replace")).digest()
    return int.from_bytes(digest[:4], "big") / 2**32


def _split_of(row: _Row, held_out: Collection[str]) -> Split:
    return "heldout" if row.task.content in held_out else "train"


def _in_both(row: _Row, held_out: Collection[str]) -> str | None:
    if row.split == "train" and row.task.content in held_out:
        return "its prompt is held out in another row"
    return None
