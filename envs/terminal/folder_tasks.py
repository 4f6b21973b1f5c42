"""A user's folder of tasks: which tasks it holds, of which split, in which of two layouts.

NAME/task.toml  instruction.md    environment/  tests/test.sh  solution/solve.sh      Harbor
NAME/task.yaml  run-tests.sh      Dockerfile or docker-compose.yaml  tests/       Terminal-Bench
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.terminal import harbor, terminal_bench
from clawrl_gym.envs.terminal.machine_request import SandboxFeatures
from clawrl_gym.envs.terminal.task import Task

SPLITS: tuple[Split, ...] = ("train", "heldout")
HELDOUT_SHARE = 5
"""One task in about this many is held out when the folder does not say."""


@dataclass(frozen=True, slots=True)
class FolderTasks:
    """The tasks of one folder."""

    folders: Mapping[str, Path]
    """By task id."""
    splits: Mapping[str, Split]
    features: SandboxFeatures

    @classmethod
    def open(cls, root: Path, features: SandboxFeatures) -> FolderTasks:
        """Find the tasks and check that each has its files. Raises TaskError."""
        split_folders = [split for split in SPLITS if (root / split).is_dir()]
        if _is_task(root):
            folders = {root.resolve().name: root}
            splits = _split_by_name(folders)
        elif split_folders:
            folders, splits = {}, {}
            for split in split_folders:
                split_tasks = {f"{split}/{path.name}": path for path in _children(root / split)}
                folders |= split_tasks
                splits |= dict.fromkeys(split_tasks, split)
        else:
            folders = {path.name: path for path in _children(root)}
            splits = _split_by_name(folders)
        if not folders:
            raise TaskError(
                f"got the folder {str(root)!r} without tasks, expected NAME/task.toml (Harbor) or "
                "NAME/task.yaml (Terminal-Bench)"
            )
        for folder in folders.values():
            _layout(folder).require_files(folder)
        return cls(folders, splits, features)

    def ids(self, split: Split) -> list[str]:
        return sorted(task_id for task_id, task_split in self.splits.items() if task_split == split)

    def load(self, task_id: str) -> Task:
        """Read a task. Raises TaskError for an unknown id or a task that cannot be carried out."""
        if task_id not in self.folders:
            raise TaskError(f"got task {task_id!r}, expected one of {sorted(self.folders)[:20]}")
        folder = self.folders[task_id]
        return _layout(folder).load_task(task_id, self.splits[task_id], folder, self.features)


def _is_task(folder: Path) -> bool:
    return (folder / "task.toml").exists() or (folder / "task.yaml").exists()


class Layout(Protocol):
    """What each of the two modules has."""

    def require_files(self, folder: Path) -> None:
        """Raises TaskError naming what the folder lacks."""
        ...

    def load_task(
        self, task_id: str, split: Split, folder: Path, features: SandboxFeatures
    ) -> Task:
        """Raises TaskError for what cannot be carried out."""
        ...


def _layout(folder: Path) -> Layout:
    """Harbor's unless only Terminal-Bench's task.yaml is there."""
    has_toml = (folder / "task.toml").exists()
    return terminal_bench if (folder / "task.yaml").exists() and not has_toml else harbor


def _children(root: Path) -> list[Path]:
    return sorted(p for p in root.iterdir() if p.is_dir() and p.name[:1] not in (".", "_"))


def _split_by_name(folders: Mapping[str, Path]) -> dict[str, Split]:
    """About one in five held out, by a hash of the name; one of each at least from two tasks on."""
    order = sorted(folders, key=lambda name: hashlib.sha256(name.encode()).digest())
    heldout = {n for n in order if hashlib.sha256(n.encode()).digest()[0] % HELDOUT_SHARE == 0}
    if len(order) > 1:
        heldout = (heldout or {order[0]}) - ({order[-1]} if len(heldout) == len(order) else set())
    else:
        heldout = set()
    return {name: "heldout" if name in heldout else "train" for name in order}
