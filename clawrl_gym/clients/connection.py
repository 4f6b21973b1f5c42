"""A client is connected, and disconnected again; in between a record says what it had before.

The record is a file of its own, so that a client's folder holds nothing that it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from clawrl_gym.clients.client import SettingsFile
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files.files import private_files, replace_text

_PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class Before:
    """A file before it was changed."""

    text: str | None
    """None: it was not there."""
    mode: int
    """Its permissions."""
    written: str
    """What was written into it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One file that is to be written; nothing is written before all are known."""

    path: Path
    text: str | None
    """None: it is removed."""
    mode: int
    before: Before | None
    """What undoes it; None once it is undone."""
    is_new: bool
    """Whether the file is not that already."""


class Connection:
    """The files of one client, and the record of what they held."""

    def __init__(self, record: Path, files: Sequence[SettingsFile]) -> None:
        """Raises ConfigError for a record that is none."""
        self._record = record
        self._files = files
        self._befores = _read_record(record)

    def changes(self) -> list[Change]:
        """What connects it. Raises ConfigError for a file that cannot be read."""
        return [self._change(file) for file in self._files]

    def undoing(self) -> list[Change]:
        """What disconnects it; nothing where it is not connected."""
        return [
            Change(file.path, clean.text, clean.mode, None, is_new=True)
            for file in self._files
            if str(file.path) in self._befores
            for clean in [self._clean(file)]
        ]

    def carry_out(self, changes: Sequence[Change]) -> None:
        """Write the files. The record comes first: what is changed can always be undone."""
        made = {str(change.path): change.before for change in changes if change.before is not None}
        if made:
            self._write_record(self._befores | made)
        for change in changes:
            _write(change)
        undone = {str(change.path) for change in changes} - made.keys()
        left = {path: before for path, before in self._befores.items() if path not in undone}
        if undone and left:  # in folders that the environment named then
            self._write_record(left)
        elif undone:
            self._record.unlink(missing_ok=True)

    def _change(self, file: SettingsFile) -> Change:
        clean = self._clean(file)
        with _naming(file.path):
            text = file.settings.add_to(clean.text or "")
        before = Before(clean.text, clean.mode, text)
        return Change(file.path, text, _PRIVATE, before, is_new=text != _text_of(file.path))

    def _clean(self, file: SettingsFile) -> Before:
        """The file without our settings: as it was before, or without them where it changed."""
        text = _text_of(file.path)
        before = self._befores.get(str(file.path))
        if text is None:
            return Before(None, _PRIVATE, "")
        if before is None:
            return Before(text, file.path.stat().st_mode & 0o777, "")
        if text in (before.written, before.text):
            return before
        with _naming(file.path):
            rest = file.settings.remove_from(text, before.written, before.text or "")
        return Before(rest, before.mode, "")

    def _write_record(self, befores: dict[str, Before]) -> None:
        try:
            with private_files():
                self._record.parent.mkdir(parents=True, exist_ok=True)
                told = {path: asdict(before) for path, before in befores.items()}
                replace_text(self._record, json.dumps(told, indent=1))
        except OSError as error:
            raise ConfigError(
                f"cannot keep what is changed in {self._record}: {error.strerror}; nothing was"
            ) from error


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in what cannot be done with it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}; nothing was changed") from None


def _write(change: Change) -> None:
    path = change.path.resolve()  # a link into somebody's own repository of settings stays one
    try:
        if change.text is None:
            path.unlink(missing_ok=True)
            return
        with private_files():
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_text(path, change.text)
        path.chmod(change.mode)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error


def _text_of(path: Path) -> str | None:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; nothing was changed") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: got no UTF-8 text; nothing was changed") from None


def _read_record(path: Path) -> dict[str, Before]:
    text = _text_of(path)
    try:
        return {name: Before(**told) for name, told in json.loads(text or "{}").items()}
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(f"{path}: expected a record of `connect`; remove it") from None
