"""The users of a serving folder: their names and digests of their keys, in `users.json`.

Several processes read and change the file: it is replaced whole, under a lock, and read again when
it has changed. A key is random (256 bits), shown once and kept as its SHA-256. A user who is to be
removed is marked first and taken out when nothing of theirs is left: their key opens nothing from
the mark on, and whatever interrupts the removal, it is finished later.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from clawrl_gym.core.errors import ConfigError, StoreError
from clawrl_gym.core.files.files import private_files, replace_text
from clawrl_gym.core.ownership import wrong_name

USERS_FILE = "users.json"
_LOCK_FILE = "users.lock"
_FORMAT = "clawrl_gym users 1"
_LOCK_TIMEOUT_S = 10.0
_LOCK_PAUSE_S = 0.02
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class User:
    """A user with a key of their own."""

    name: str
    key_sha256: str
    """SHA-256 of their key; empty while they are being removed."""
    added_s: float
    retention_days: float | None = None
    """Days after which their ended sessions are deleted; None: as `live.retention_days`."""
    is_leaving: bool = False
    """True: their key opens nothing, and their data is being deleted."""


_USERS = TypeAdapter(list[User])
_Signature = tuple[int, int, int]


class Users:
    """The users of one folder, as its file has them now."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / USERS_FILE
        self._signature: _Signature | None = None
        self._by_name: dict[str, User] = {}
        self._by_digest: dict[str, User] = {}

    def all(self) -> list[User]:
        """All users in the order of adding. Raises StoreError when the file cannot be read."""
        self._refresh()
        return list(self._by_name.values())

    def of_key(self, key: str) -> User | None:
        """The user with this key. A file that cannot be read now changes nothing."""
        self._refresh_if_readable()
        return self._by_digest.get(_digest(key))

    def get(self, name: str) -> User | None:
        """A user who exists and is not being removed. A file that cannot be read changes
        nothing."""
        self._refresh_if_readable()
        user = self._by_name.get(name)
        return None if user is None or user.is_leaving else user

    def present(self, name: str) -> User:
        """A user who exists and stays. Raises ConfigError; StoreError when the file cannot be
        read."""
        self._refresh()
        user = self._by_name.get(name)
        if user is None:
            raise ConfigError(self._unknown(name))
        if user.is_leaving:
            raise ConfigError(f"{name} is being removed, expected a user who stays")
        return user

    def leaving(self) -> list[str]:
        """Names of users who are to be removed. A file that cannot be read names none."""
        self._refresh_if_readable()
        return [user.name for user in self._by_name.values() if user.is_leaving]

    def add(self, name: str, retention_days: float | None = None) -> str:
        """Add a user; returns their key. Raises ConfigError for an invalid or taken name."""
        wrong = wrong_name(name)
        if wrong is not None:
            raise ConfigError(wrong)
        with self._changing():
            for user in self._by_name.values():
                if user.name.casefold() == name.casefold():
                    raise ConfigError(_taken(name, user))
            key = _new_key()
            self._by_name[name] = User(name, _digest(key), time.time(), retention_days)
        return key

    def renew_key(self, name: str) -> str:
        """Give a user another key; the old one stops working. Raises ConfigError."""
        with self._changing():
            key = _new_key()
            self._by_name[name] = replace(self.present(name), key_sha256=_digest(key))
        return key

    def begin_removal(self, name: str) -> None:
        """Mark a user for removal. Raises ConfigError for one who does not exist."""
        with self._changing():
            if name not in self._by_name:
                raise ConfigError(self._unknown(name))
            self._by_name[name] = replace(self._by_name[name], key_sha256="", is_leaving=True)

    def end_removal(self, name: str) -> None:
        """Take out a user of whom nothing is left: the name is free."""
        with self._changing():
            self._by_name.pop(name, None)

    def is_being_removed(self, name: str) -> bool:
        """Whether the user is being removed. Raises StoreError when the file cannot be read."""
        self._refresh()
        return name in self._by_name

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Yield the newest state, which is written when the block ends well."""
        with private_files():
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                with _locked(self._folder / _LOCK_FILE):
                    self._signature = None
                    self._refresh()
                    try:
                        yield
                        self._write()
                    finally:
                        self._signature = None
            except OSError as error:
                raise StoreError(f"cannot change {self._path}: {error.strerror}") from error

    def _unknown(self, name: str) -> str:
        names = ", ".join(self._by_name) or "nobody"
        return f"there is no user {name[:80]!r} in {self._folder}; there are: {names}"

    def _write(self) -> None:
        users = [asdict(user) for user in self._by_name.values()]
        replace_text(self._path, json.dumps({"format": _FORMAT, "users": users}, indent=1))

    def _refresh_if_readable(self) -> None:
        try:
            self._refresh()
        except StoreError as error:
            _log.error("the users stay as they were: %s", error)
            self._signature = self._signature_now()  # once for each state of the file

    def _refresh(self) -> None:
        """Read the file again when it has changed."""
        signature = self._signature_now()
        if signature == self._signature and signature is not None:
            return
        users = [] if signature is None else _read(self._path)
        self._by_name = {user.name: user for user in users}
        self._by_digest = {user.key_sha256: user for user in users if not user.is_leaving}
        self._signature = signature

    def _signature_now(self) -> _Signature | None:
        """Signature of the file now; None when there is none."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size


def _taken(name: str, user: User) -> str:
    if user.is_leaving:
        return f"{user.name} is being removed: add {name!r} again when that is done"
    same = "" if user.name == name else f" (as {user.name!r}: names differ by more than case)"
    return (
        f"there is a user {name!r} already{same}; another key for them: "
        f"python -m clawrl_gym.users key {user.name}"
    )


def _new_key() -> str:
    return f"sk-{secrets.token_urlsafe(32)}"


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def _read(path: Path) -> list[User]:
    try:
        content = json.loads(path.read_text())
        if content["format"] != _FORMAT:
            raise ValueError(f"its format is {content['format']!r}")
        return _USERS.validate_python(content["users"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"cannot read {path}: {error}; expected a list of users as "
            "python -m clawrl_gym.users writes it: restore the file, or remove it and add them anew"
        ) from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock the file against other processes, within some seconds. Raises StoreError."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        give_up_s = time.monotonic() + _LOCK_TIMEOUT_S
        while not _try_lock(lock):
            if time.monotonic() > give_up_s:
                raise StoreError(
                    f"another process changes the users and holds {path} for more than "
                    f"{_LOCK_TIMEOUT_S:g} s: end it, or try again"
                )
            time.sleep(_LOCK_PAUSE_S)
        yield
    finally:
        os.close(lock)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
