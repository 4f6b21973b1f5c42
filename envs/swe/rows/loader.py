"""Rows from where people keep them: a file, a folder, a task repository of swebench, the hub.

Nothing is checked here but that rows are rows with ids of their own; what is none is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.core.errors import ConfigError, TaskError, boundary
from clawrl_gym.core.text import is_whole
from clawrl_gym.core.types import Split
from clawrl_gym.envs.data_file import read_hub, read_parquet, read_rows_text, require_text
from clawrl_gym.envs.selection import LeftOut, Selection
from clawrl_gym.envs.swe.rows.r2e import is_r2e, swebench_row
from clawrl_gym.envs.swe.rows.row import ARCHIVE_FIELD, CONTEXT_FIELD, Row

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_SUFFIXES = (".json", ".jsonl", ".parquet")
_SPLITS: Mapping[str, Split] = {
    "train": "train",
    "heldout": "heldout",
    "test": "heldout",
    "validation": "heldout",
    "dev": "heldout",
}
"""Split named by a file or folder, when a folder has both."""
_TASK_FILES = {
    "patch": "gold.patch",
    "test_patch": "test.patch",
    "eval_script": "eval.sh",
    "problem_statement": "problem_statement.md",
}
_TASK, _TESTS, _DOCKERFILE = "task.yaml", "tests.json", "Dockerfile"
MAX_TASK_FILE_BYTES = 32 << 20
REPOSITORY_FIELD = "repository"
"""Name of a packed repository in the folder of its rows."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows by id, and the split of those whose place says it."""

    rows: Mapping[str, Row]
    splits: Mapping[str, Split]
    left_out: tuple[LeftOut, ...] = ()


def read_rows(where: str, hub_split: str = "test") -> Rows:
    """All rows of a place. Raises ConfigError for no such place, TaskError when it has none."""
    path = Path(where).expanduser()
    if path.is_file():
        return _gather([(path, _read_file(path))])
    if path.is_dir():
        if (path / "tasks").is_dir():
            return _gather([(path, _read_tasks(path))])
        files = _files(path)
        if not files:
            raise TaskError(
                f"got the folder {where!r} without instances, expected {', '.join(_SUFFIXES)} "
                "files, or tasks/ID/task.yaml of a task repository"
            )
        return _gather([(file.relative_to(path), _read_file(file)) for file in files])
    if not _HUB_ID.fullmatch(where):
        raise ConfigError(
            f"got instances {where!r}, expected 'corpus', a file, a folder, or OWNER/NAME on the "
            f"hub (there is no file or folder {str(path.absolute())!r})"
        )
    return _gather([(Path(where), _read_hub(where, hub_split))])


def _files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and path.suffix in _SUFFIXES
        and not any(part[:1] in (".", "_") for part in path.relative_to(folder).parts)
    )  # fmt: skip


def _gather(parts: list[tuple[Path, Iterator[object]]]) -> Rows:
    rows: dict[str, Row] = {}
    splits: dict[str, Split] = {}
    left_out: list[LeftOut] = []
    for path, part_rows in parts:
        split = _split_of(path)
        for number, row in enumerate(_whole_or_error(part_rows), 1):
            if is_r2e(row):
                row = _or_error(swebench_row, row)
            instance_id = row.get("instance_id") if isinstance(row, Mapping) else None
            place = f"{path}: row {number}"
            broken = row if isinstance(row, TaskError) else _or_error(require_text, row)
            if isinstance(broken, TaskError):
                left_out.append(LeftOut(place, str(broken)))
            elif not isinstance(row, Mapping) or not instance_id or type(instance_id) is not str:
                left_out.append(LeftOut(place, "it has no 'instance_id', expected a text in it"))
            elif instance_id in rows:
                left_out.append(LeftOut(instance_id, "it is a second row of this id"))
            else:
                rows[instance_id] = row
                if split is not None:
                    splits[instance_id] = split
    Selection(len(rows), tuple(left_out)).require_some(
        ", ".join(str(path) for path, _ in parts[:5])
    )
    both = {"train", "heldout"} <= set(splits.values()) and len(splits) == len(rows)
    return Rows(rows, splits if both else {}, tuple(left_out))


def _whole_or_error(rows: Iterator[object]) -> Iterator[object]:
    """Rows; a TaskError stands for one that cannot be read, or for all that would come after it."""
    try:
        yield from rows
    except TaskError as error:
        yield error


def _or_error(read: Callable[..., object], *arguments: object) -> object:
    try:
        with boundary(TaskError, "a row"):
            return read(*arguments)
    except TaskError as error:
        return error


def _split_of(path: Path) -> Split | None:
    """Only names below the folder that was given say anything."""
    if path.is_absolute():
        return None
    for part in reversed(path.parts):
        word = re.split(r"[-_.]", part)[0]
        if word in _SPLITS:
            return _SPLITS[word]
    return None


def _read_file(path: Path) -> Iterator[object]:
    readers: dict[str, Callable[[Path], Iterator[object]]] = {
        ".json": _read_json,
        ".jsonl": _read_jsonl,
        ".parquet": read_parquet,
    }
    if path.suffix not in readers:
        raise ConfigError(f"got the file {str(path)!r}, expected one of {', '.join(_SUFFIXES)}")
    return (_with_archive(path, row) for row in readers[path.suffix](path))


def _with_archive(path: Path, row: object) -> object:
    """A row that names a packed repository: it lies beside the row's file."""
    if not isinstance(row, dict) or not isinstance(row.get(REPOSITORY_FIELD), str):
        return row
    return row | {ARCHIVE_FIELD: str(path.absolute().parent / Path(row[REPOSITORY_FIELD]).name)}


def is_packed(where: str) -> bool:
    """Whether a place holds rows with packed repositories, by its first row."""
    path = Path(where).expanduser()
    files = _files(path) if path.is_dir() else [path] if path.is_file() else []
    for file in files:
        if file.suffix == ".jsonl":
            with file.open(encoding="utf-8", errors="replace") as lines:
                first = _or_error(_loads, next(lines, ""), str(file))
            return isinstance(first, dict) and REPOSITORY_FIELD in first
    return False


def _read_json(path: Path) -> Iterator[object]:
    """A list of rows, or rows by id."""
    value = _loads(_text_of_rows(path), str(path))
    if isinstance(value, dict) and "instance_id" in value:
        value = [value]
    if isinstance(value, dict):
        value = [{"instance_id": key} | row if isinstance(row, dict) else row
                 for key, row in value.items()]  # fmt: skip
    if not isinstance(value, list):
        raise TaskError(f"{path}: got {type(value).__name__}, expected a list of rows")
    yield from value


def _read_jsonl(path: Path) -> Iterator[object]:
    for number, line in enumerate(_text_of_rows(path).split("\n"), 1):
        if line.strip():
            yield _or_error(_loads, line, f"{path}, line {number}")


def _read_hub(name: str, split: str) -> Iterator[object]:
    try:
        yield from read_hub(name, None, split)
    except ConfigError as error:
        raise ConfigError(f"{error}; there is no file or folder {name!r} either") from error


def _read_tasks(root: Path) -> Iterator[object]:
    """A task repository of swebench 5: tasks/ID/ with task.yaml, tests.json, patches, eval.sh."""
    for folder in sorted(path for path in (root / "tasks").iterdir() if path.is_dir()):
        if (folder / _TASK).is_file():
            yield _or_error(_read_task, folder)


def _read_task(folder: Path) -> Row:
    import yaml

    try:
        row = yaml.safe_load(_inside(folder, _TASK))
    except (yaml.YAMLError, RecursionError) as error:
        raise TaskError(f"{folder / _TASK}: {error}") from error
    tests = _loads(_inside(folder, _TESTS), str(folder / _TESTS))
    if not isinstance(row, dict) or not isinstance(tests, dict):
        raise TaskError(f"{folder}: expected fields in {_TASK} and {_TESTS}")
    texts = {field: _inside(folder, name) for field, name in _TASK_FILES.items()}
    context = {CONTEXT_FIELD: str(folder.absolute())} if (folder / _DOCKERFILE).is_file() else {}
    return {"instance_id": folder.name} | row | texts | tests | context


def _inside(folder: Path, name: str) -> str:
    """A file of the folder's own: no link leads out, nothing huge comes in."""
    path = folder / name
    if not path.is_file() or not path.resolve().is_relative_to(folder.resolve()):
        raise TaskError(f"task folder {str(folder)!r} has no file {name!r} of its own")
    if path.stat().st_size > MAX_TASK_FILE_BYTES:
        raise TaskError(f"{path} has over {MAX_TASK_FILE_BYTES} bytes")
    return _text(path)


def _text_of_rows(path: Path) -> str:
    try:
        return read_rows_text(path.read_bytes())
    except OSError as error:
        raise TaskError(f"{path}: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: {error}, expected text in UTF-8") from error


def _loads(text: str, where: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        cure = "" if is_whole(text) else ", expected text in UTF-8"
        raise TaskError(f"{where}: not JSON: {error}{cure}") from error
