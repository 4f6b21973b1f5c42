"""SWE-bench Verified, recognised under any name: a benchmark keeps being one.

An instance is known by its id in any of the forms that images and data sets use, or by repository
and base commit, in rows of data sets as in the files of a task folder. `verified.txt` beside this
has the five hundred ids, each with its commit.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

_ID = re.compile(r"(?<![A-Za-z0-9])([a-z0-9-]+)(?:__|_1776_|_s_)([a-z0-9-]+-\d+)(?!\d)", re.I)
_COMMIT = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{7,40}(?![0-9A-Za-z])", re.I)
_CERTAIN_DIGITS = 12
"""So many of a commit's digits need no repository beside them."""
_KEY_DIGITS = 7
MAX_FILE_BYTES = 1 << 20
MAX_FILES = 200
_FIELD_CHARS = 2_000
"""Longest text of a row's field: ids, addresses and commits are short, or come first."""
_MAX_DEPTH = 4
_OF_OTHERS = frozenset(
    ("problem_statement", "hints_text", "text", "prompt", "issue", "patch", "test_patch",
     "FAIL_TO_PASS", "PASS_TO_PASS", "fail_to_pass", "pass_to_pass", "environment_setup_commit")
)  # fmt: skip
"""Fields that may name other instances: prose, patches, and the commit that a version shares."""


@cache
def verified_commits() -> Mapping[str, str]:
    """The base commit of each instance."""
    lines = Path(__file__).with_suffix(".txt").read_text(encoding="ascii").splitlines()
    return dict(line.split() for line in lines)


def verified_row(row: Mapping[str, object]) -> str | None:
    """The instance that a row of a data set is, whatever its fields are called; None for another.

    Without a look at fields that may name other instances.
    """
    texts = list(_texts_of({field: row[field] for field in row.keys() - _OF_OTHERS}))
    repositories = [str(row[field]) for field in row if field.startswith("repo")]
    return verified_in([*texts, *(name.replace("__", "/") for name in repositories)])


def _texts_of(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value[:_FIELD_CHARS]
    elif depth < _MAX_DEPTH and isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts_of(inner, depth + 1)
    elif depth < _MAX_DEPTH and isinstance(value, list | tuple):
        for inner in value:
            yield from _texts_of(inner, depth + 1)


def verified_folder(folder: Path) -> str | None:
    """The instance that a task's folder holds; None for another task. Raises OSError."""
    texts = [folder.name]
    for number, path in enumerate(sorted(folder.rglob("*"))):
        if number >= MAX_FILES:
            break
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_FILE_BYTES:
            texts.append(path.read_bytes().decode(errors="replace"))
    return verified_in(texts)


def verified_in(texts: Iterable[str]) -> str | None:
    """The first instance that texts name, by id, or by commit and, for a short one, repository."""
    texts = list(texts)
    for text in texts:
        for owner, rest in _ID.findall(text):
            instance_id = f"{owner}__{rest}".lower()
            if instance_id in verified_commits():
                return instance_id
    for text in texts:
        for commit in _COMMIT.findall(text):
            if (found := _of_commit(commit.lower(), texts)) is not None:
                return found
    return None


def _of_commit(commit: str, texts: Iterable[str]) -> str | None:
    for instance_id in _by_key().get(commit[:_KEY_DIGITS], ()):
        if not verified_commits()[instance_id].startswith(commit):
            continue
        repository = instance_id.rpartition("-")[0].replace("__", "/")
        if len(commit) >= _CERTAIN_DIGITS or any(repository in text.lower() for text in texts):
            return instance_id
    return None


@cache
def _by_key() -> Mapping[str, tuple[str, ...]]:
    ids: dict[str, tuple[str, ...]] = {}
    for instance_id, commit in verified_commits().items():
        key = commit[:_KEY_DIGITS]
        ids[key] = (*ids.get(key, ()), instance_id)
    return ids


def held_out_note(names: Collection[str], tasks: int) -> tuple[str, ...]:
    """Note at a run's start about the instances that it found."""
    if not names:
        return ()
    return (
        f"SWE-bench Verified: {len(names)} of {tasks} tasks, such as {min(names)}, are its "
        "instances and held out (env.train_on_verified=true trains on them)",
    )
