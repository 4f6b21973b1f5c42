"""Initial contents of files and folders of each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from clawrl_gym.envs.draw import STEMS, WORDS, Draw, text
from clawrl_gym.envs.showcase.terminal.composed.skill import Kind
from clawrl_gym.envs.showcase.terminal.composed.tables import record_text

ENDINGS: Mapping[Kind, tuple[str, ...]] = MappingProxyType(
    {
        Kind.LINES: ("txt", "md", "lst", "list"),
        Kind.NUMBERS: ("num", "dat", "txt"),
        Kind.TABLE: ("csv",),
        Kind.RECORD: ("json",),
        Kind.LOG: ("log",),
        Kind.VALUE: ("txt", "out", "val"),
        Kind.ARCHIVE: ("tar",),
        Kind.PACKED: ("tar",),
    }
)
"""Endings of names; folders have none."""
_LEVELS = ("ERROR", "WARN", "INFO", "DEBUG")
_FOLDER_ENDINGS = ("txt", "md", "cfg", "log", "dat")


def _lines(draw: Draw) -> bytes:
    """Some words come again, and one line does."""
    words = draw.some(WORDS, 9)
    lines = [" ".join(draw.some(words, draw.between(1, 3))) for _ in range(draw.between(5, 9))]
    lines.insert(draw.below(len(lines)), draw.pick(lines))
    return text(lines)


def _numbers(draw: Draw) -> bytes:
    return text([str(draw.between(2, 1200)) for _ in range(draw.between(5, 9))])


def _table(draw: Draw) -> bytes:
    """Four columns: a few words that come again, numbers somewhere, other words."""
    few, position = draw.some(WORDS, 3), draw.between(1, 3)
    rows = []
    for _ in range(draw.between(5, 8)):
        row = [draw.pick(few), *draw.some(WORDS, 2)]
        row.insert(position, str(draw.between(3, 99)))
        rows.append(",".join(row))
    return text(rows)


def _record(draw: Draw) -> bytes:
    words = draw.some(WORDS, 8)
    return record_text(
        {words[i]: f"{words[i + 4]}{draw.between(10, 99)}" for i in range(draw.between(3, 4))}
    )


def _log(draw: Draw) -> bytes:
    return text(
        [
            f"{hour}:{draw.between(10, 59)} {draw.pick(_LEVELS)} {' '.join(draw.some(WORDS, 2))}"
            for hour in range(10, 10 + draw.between(7, 12))
        ]
    )


def _value(draw: Draw) -> bytes:
    return text([f"{draw.pick(WORDS)}{draw.between(10, 99)}"])


CONTENTS: Mapping[Kind, Callable[[Draw], bytes]] = MappingProxyType(
    {
        Kind.LINES: _lines,
        Kind.NUMBERS: _numbers,
        Kind.TABLE: _table,
        Kind.RECORD: _record,
        Kind.LOG: _log,
        Kind.VALUE: _value,
    }
)
"""Contents of a single file."""


def folder_files(draw: Draw, count: int) -> dict[str, bytes]:
    """Files by name: two endings, and as many sizes as files."""
    endings = draw.some(_FOLDER_ENDINGS, 2)
    stems, words = draw.some(STEMS, count), draw.some(WORDS, 6)
    files: dict[str, bytes] = {}
    sizes = set[int]()
    for i, stem in enumerate(stems):
        ending = endings[i] if i < 2 else draw.pick(endings)
        lines = [" ".join(draw.some(words, draw.between(1, 2))) for _ in range(draw.between(1, 5))]
        while len(text(lines)) in sizes:
            lines.append(draw.pick(words))
        sizes.add(len(text(lines)))
        files[f"{stem}.{ending}"] = text(lines)
    return files
