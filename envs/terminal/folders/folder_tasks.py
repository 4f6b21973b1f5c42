"""A user's folder of tasks: which tasks it holds, of which split, in which of two layouts.

NAME/task.toml  instruction.md    environment/  tests/test.sh  solution/solve.sh      Harbor
NAME/task.yaml  run-tests.sh      Dockerfile or docker-compose.yaml  tests/       Terminal-Bench

A folder that the sandboxes at hand cannot carry out is left out, with its reason, and never drawn.
Tasks of SWE-bench Verified are held out, whatever they are called, unless training on them was
asked for.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Protocol

from clawrl_gym.core.errors import ClawError, TaskError, boundary
from clawrl_gym.core.types import Split
from clawrl_gym.envs.selection import LeftOut, Selection
from clawrl_gym.envs.terminal.folders import harbor, terminal_bench
from clawrl_gym.envs.terminal.folders.machine_request import SandboxFeatures
from clawrl_gym.envs.terminal.folders.verdicts import known_problem
from clawrl_gym.envs.terminal.folders.verifier import is_trusted, require_trusted
from clawrl_gym.envs.terminal.task import Image, Task
from clawrl_gym.envs.verified import held_out_note, verified_folder

SPLITS: tuple[Split, ...] = ("train", "heldout")
HELDOUT_SHARE = 5
"""One task in about this many is held out when the folder does not say."""


@dataclass(frozen=True)
class FolderTasks:
    """The tasks of one folder. Each is tried when it matters whether it can be used."""

    root: Path
    folders: Mapping[str, Path]
    """Folders by task id."""
    named_splits: Mapping[str, Split]
    """Where the folder itself says which split a task is of; empty where it does not."""
    features: SandboxFeatures
    train_on_verified: bool = False

    @classmethod
    def open(
        cls, root: Path, features: SandboxFeatures, *, train_on_verified: bool = False
    ) -> FolderTasks:
        """Find the tasks. Raises TaskError for a folder that holds none."""
        splits: dict[str, Split] = {}
        if _is_task(root):
            folders = {root.resolve().name: root}
        elif split_folders := [split for split in SPLITS if (root / split).is_dir()]:
            folders = {}
            for split in split_folders:
                split_tasks = {f"{split}/{path.name}": path for path in _children(root / split)}
                folders |= split_tasks
                splits |= dict.fromkeys(split_tasks, split)
        else:
            folders = {path.name: path for path in _children(root)}
        if not folders:
            raise TaskError(
                f"got the folder {str(root)!r} without tasks, expected NAME/task.toml (Harbor) or "
                "NAME/task.yaml (Terminal-Bench)"
            )
        return cls(root, folders, splits, features, train_on_verified)

    @functools.cached_property
    def selection(self) -> Selection:
        """Usable tasks. Raises TaskError with the reasons when there are none."""
        looks = {task_id: self._look(task_id) for task_id in sorted(self.folders)}
        left_out = tuple(
            LeftOut(name, look.problem) for name, look in looks.items() if look.problem is not None
        )
        untrusted = tuple(name for name, look in looks.items() if not look.trusted)
        notes = (*held_out_note(self._verified, len(self.folders)), *_repairs(looks))
        selection = Selection(len(looks) - len(left_out), left_out, untrusted, notes)
        selection.require_some(f"the folder {str(self.root)!r}")
        return selection

    def ids(self, split: Split) -> list[str]:
        """Ids of the usable tasks. Raises TaskError when there are none."""
        left_out = {entry.name for entry in self.selection.left_out}
        return sorted(
            task_id
            for task_id in self.folders
            if task_id not in left_out and self._splits[task_id] == split
        )

    def broken(self) -> Mapping[str, str]:
        """Tasks whose verifiers were found to give no verdict, each with what they did instead."""
        keys = {task_id: self._look(task_id).key for task_id in self.folders}
        problems = {task_id: known_problem(key) for task_id, key in keys.items() if key}
        return {
            task_id: f"its verifier gives no verdict even without the agent's work: {problem}"
            for task_id, problem in problems.items()
            if problem is not None
        }

    def load(self, task_id: str) -> Task:
        """Read a task. Raises TaskError for an unknown id or a task that cannot be carried out."""
        if task_id not in self.folders:
            raise TaskError(f"got task {task_id!r}, expected one of {sorted(self.folders)[:20]}")
        return _load(task_id, self._splits[task_id], self.folders[task_id], self.features)

    @functools.cached_property
    def _splits(self) -> Mapping[str, Split]:
        others = [task_id for task_id in self.folders if task_id not in self._verified]
        splits = self.named_splits or _split_by_name(others, self._is_usable)
        return {**splits, **dict.fromkeys(self._verified, "heldout")}

    @functools.cached_property
    def _verified(self) -> frozenset[str]:
        """Tasks that a benchmark has, and that are held out for it."""
        if self.train_on_verified:
            return frozenset()
        return frozenset(
            task_id
            for task_id, folder in self.folders.items()
            if _is_verified(folder, _state(folder))
        )

    def _is_usable(self, task_id: str) -> bool:
        return self._look(task_id).problem is None

    def _look(self, task_id: str) -> _Look:
        folder = self.folders[task_id]
        return _look(task_id, folder, self.features, _state(folder))


def _load(task_id: str, split: Split, folder: Path, features: SandboxFeatures) -> Task:
    if not _is_task(folder):
        raise TaskError(
            f"task folder {str(folder)!r} has neither task.toml (Harbor) nor task.yaml "
            "(Terminal-Bench)"
        )
    with boundary(TaskError, f"task folder {str(folder)!r}"):
        task = _layout(folder).load_task(task_id, split, folder, features)
    if features.only_trusted:
        require_trusted(task)
    return replace(task, key=_key(task, features))


def _key(task: Task, features: SandboxFeatures) -> str:
    """Another one whenever a file of the task, or what its sandboxes are made of, is another."""
    digest = hashlib.sha256(features.key.encode())
    contexts: list[str] = []
    _feed(digest, task, contexts)
    for context in dict.fromkeys(contexts):
        for path, *status in _entries(Path(context)):
            digest.update(repr((os.path.relpath(path, context), status)).encode())
    return digest.hexdigest()[:32]


def _feed(digest: hashlib._Hash, value: object, contexts: list[str]) -> None:
    """All of a task but its split; `contexts` gets the folders that images are built from."""
    if isinstance(value, Image):
        contexts += [value.context] if value.context else []
    if is_dataclass(value):
        for field in fields(value):
            if field.name not in ("split", "context"):
                _feed(digest, getattr(value, field.name), contexts)
    elif isinstance(value, Mapping):
        for key in sorted(value):
            digest.update(repr(key).encode())
            _feed(digest, value[key], contexts)
    elif isinstance(value, tuple):
        for entry in value:
            _feed(digest, entry, contexts)
    else:
        digest.update(value if isinstance(value, bytes) else repr(value).encode())
    digest.update(b"\0")


@dataclass(frozen=True, slots=True)
class _Look:
    """Result of trying a task."""

    problem: str | None
    """Why it cannot be used."""
    trusted: bool = True
    key: str = ""
    """The task's `Task.key`."""
    repaired: tuple[str, ...] = ()
    """The task's `Task.repaired`."""


@functools.lru_cache(maxsize=100_000)
def _look(
    task_id: str, folder: Path, features: SandboxFeatures, state: tuple[object, ...]
) -> _Look:
    """Once for each state of its folder."""
    try:
        task = _load(task_id, "train", folder, features)
    except ClawError as error:
        return _Look(str(error))
    return _Look(None, is_trusted(task) is not False, task.key, task.repaired)


def _repairs(looks: Mapping[str, _Look]) -> tuple[str, ...]:
    """One line of all scripts that were not as Linux has them."""
    repaired = [f"{name}/{path}" for name, look in looks.items() for path in look.repaired]
    if not repaired:
        return ()
    count = f"{len(repaired)} scripts have" if len(repaired) > 1 else "1 script has"
    return (
        f"{count} Windows line ends or a byte order mark, such as {repaired[0]}: read without them "
        "(files of a Docker build are not)",
    )


@functools.lru_cache(maxsize=100_000)
def _is_verified(folder: Path, state: tuple[object, ...]) -> bool:
    try:
        return verified_folder(folder) is not None
    except OSError:  # it cannot be used either
        return False


def _state(folder: Path) -> tuple[object, ...]:
    """A value that changes whenever a file below the folder does."""
    return tuple(_entries(folder))


def _entries(folder: Path) -> list[tuple[str, int, int, int]]:
    """A line for each file: its path, the time of its last change, its size and its mode."""
    entries = []
    for above, _, names in os.walk(folder):
        for name in names:
            path = f"{above}/{name}"
            status = os.lstat(path)
            entries.append((path, status.st_mtime_ns, status.st_size, status.st_mode))
    return sorted(entries)


def _is_task(folder: Path) -> bool:
    return (folder / "task.toml").exists() or (folder / "task.yaml").exists()


class Layout(Protocol):
    """Interface of the two modules."""

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


def _split_by_name(names: Iterable[str], is_usable: Callable[[str], bool]) -> dict[str, Split]:
    """About one in five held out, by a hash of the name; from two usable tasks on, one of each.

    No more of them are tried than it takes to find one of each.
    """
    order = sorted(names, key=_digest)
    heldout = {name for name in order if _digest(name)[0] % HELDOUT_SHARE == 0}
    train = set(order) - heldout
    if not (any(map(is_usable, heldout)) and any(map(is_usable, train))):
        usable = [name for name in order if is_usable(name)]
        if len(usable) < 2:
            heldout = set()
        elif usable[0] in heldout:
            heldout.remove(usable[-1])
        else:
            heldout.add(usable[0])
    return {name: "heldout" if name in heldout else "train" for name in order}


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()
