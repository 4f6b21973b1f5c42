"""Rows of a file or of a data set of the hub, each with the place where it is found again."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.envs.data_file import (
    MAX_FILE_BYTES,
    read_hub,
    read_parquet,
    read_rows,
    read_rows_text,
)

HUB = "hub:"
"""Beginning of the name of a data set of the hub."""
_HUB_NAME = re.compile(r"([\w.-]+/[\w.-]+)(?:/([\w.-]+))?(?:@([\w.+%\[\]:-]+))?")
_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
Placed = tuple[str, object]
"""A place and the row there."""


def read_data(data: str) -> list[Placed]:
    """Rows of a file or a data set of the hub with their places.

    A ValueError stands for a row that cannot be read. Raises ConfigError or TaskError.
    """
    if data.startswith(HUB):
        return _read_hub(data)
    path = Path(data).expanduser()
    if path.suffix not in _SUFFIXES:
        raise ConfigError(
            f"got the data set {data!r}, expected a file that ends in {', '.join(_SUFFIXES)}, or "
            "hub:ORG/NAME"
        )
    if path.suffix in (".jsonl", ".json"):
        return read_rows(path)
    if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
        raise TaskError(f"{path}: expected a file of at most {MAX_FILE_BYTES} bytes")
    if path.suffix == ".csv":
        return _read_csv(path)
    return _numbered(read_parquet(path))


def _read_hub(data: str) -> list[Placed]:
    name = _HUB_NAME.fullmatch(data.removeprefix(HUB))
    if name is None:
        raise ConfigError(
            f"got the data set {data!r}, expected hub:ORG/NAME, hub:ORG/NAME@SPLIT or "
            "hub:ORG/NAME/SUBSET@SPLIT"
        )
    return _numbered(read_hub(name[1], name[2], name[3] or "train"))


def _numbered(rows: Iterable[object]) -> list[Placed]:
    return [(f"row {number}", row) for number, row in enumerate(rows, 1)]


def _read_csv(path: Path) -> list[Placed]:
    """Rows below a line of column names; all values are texts."""
    try:
        text = read_rows_text(path.read_bytes())
        lines = csv.reader(io.StringIO(text, newline=""), strict=True)
        names = next(lines, [])
        return [(f"line {lines.line_num}", _cells(names, cells)) for cells in lines if cells]
    except (OSError, csv.Error) as error:
        raise TaskError(f"{path}: not a readable CSV file: {error}") from error


def _cells(names: Sequence[str], cells: Sequence[str]) -> object:
    if len(cells) != len(names):
        return ValueError(f"got {len(cells)} cells, expected {len(names)}")
    return dict(zip(names, cells, strict=True))
