"""Files of rows: read so that a byte that is no UTF-8 costs only the row that it stands in; and
data sets of the hub."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.core.installation import how_to_install
from clawrl_gym.core.text import is_whole

MAX_FILE_BYTES = 256 * 1024 * 1024


def read_rows(path: Path) -> list[tuple[str, object]]:
    """Rows of a JSON list, of `{"tasks": [...]}` or of JSON lines, with their places; in JSON lines
    a ValueError stands for one that is no JSON. Raises TaskError for a file without rows."""
    if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
        raise TaskError(f"{path}: expected a file of tasks, at most {MAX_FILE_BYTES} bytes")
    try:
        text = read_rows_text(path.read_bytes())
        if path.suffix == ".jsonl":
            rows = list(_lines(text))
        else:
            whole = json.loads(text)
            tasks = whole.get("tasks") if isinstance(whole, dict) else whole
            listed = tasks if isinstance(tasks, list) else []
            rows = [(f"task {number}", row) for number, row in enumerate(listed, 1)]
    except (OSError, ValueError, RecursionError) as error:
        raise TaskError(f"{path}: not JSON tasks: {error}") from error
    if not rows:
        raise TaskError(f'{path}: expected a list of tasks, {{"tasks": [...]}} or JSON lines')
    return rows


def read_parquet(path: Path) -> Iterator[object]:
    """Rows of a Parquet file. Raises TaskError, or ConfigError without pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(
            f"{path}: reading Parquet needs pyarrow: {how_to_install('swe')}"
        ) from error
    try:
        yield from pyarrow.parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise TaskError(f"{path}: not a readable Parquet file: {error}") from error


def read_hub(name: str, subset: str | None, split: str) -> Iterator[object]:
    """Rows of a data set of the hub. Raises ConfigError."""
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(
            f"a data set on the hub ({name}) needs the package datasets: {how_to_install('swe')}"
        ) from error
    try:
        dataset = datasets.load_dataset(name, subset, split=split)
    except Exception as error:  # the hub fails in many ways
        raise ConfigError(
            f"cannot load the split {split!r} of the data set {name!r}: "
            f"{type(error).__name__}: {error}"
        ) from error
    for row in dataset:
        yield dict(row)


def _lines(text: str) -> Iterator[tuple[str, object]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"line {number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                yield f"line {number}", ValueError(getattr(error, "msg", error))


def read_rows_text(raw: bytes) -> str:
    """The text of a file, without its byte order mark; bytes that are no UTF-8 stay as halves of
    surrogate pairs, which `require_text` finds."""
    return raw.decode("utf-8-sig", "surrogateescape")


def require_text(row: object) -> None:
    """Raises TaskError for a row that holds what no UTF-8 can."""
    try:
        whole = is_whole(json.dumps(row, ensure_ascii=False, default=str))
    except (ValueError, RecursionError) as error:
        raise TaskError(f"the row is not JSON: {error}") from error
    if not whole:
        raise TaskError("the row has bytes that are not UTF-8, or half of a surrogate pair")
