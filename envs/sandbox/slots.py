"""Uid ranges: each live sandbox of a machine has its own, whoever started it (real root only)."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

UIDS_PER_SLOT = 65_536
_FIRST_UID = 0x7000_0000
SLOTS = 4_094
"""Above what login users, subordinate ranges and containers are given, below 2^31."""
_MOST_SPARE = 64
_STATE = Path("/run/clawrl-gym")


def first_uid(slot: int) -> int:
    return _FIRST_UID + slot * UIDS_PER_SLOT


class Slots:
    """Byte locks on one file: no two launchers take the same, and death gives them back.

    A few that were given back are kept with the user namespace made for them, which costs more
    than all else about a slot.
    """

    def __init__(self) -> None:
        _STATE.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(_STATE / "slots", flags, 0o600)
        self._next = os.getpid() * 61 % SLOTS
        self._spare: list[tuple[int, int]] = []

    def take(self) -> tuple[int, int | None]:
        """A slot, and its user namespace when it has one already."""
        if self._spare:
            return self._spare.pop()
        for step in range(SLOTS):
            slot = (self._next + step) % SLOTS
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
            except OSError:
                continue
            self._next = slot + 1
            return slot, None
        raise OSError(f"{SLOTS} sandboxes are alive on this machine, and there can be no more")

    def give_back(self, slot: int, namespace_fd: int | None) -> None:
        if namespace_fd is not None and len(self._spare) < _MOST_SPARE:
            self._spare.append((slot, namespace_fd))
            return
        if namespace_fd is not None:
            os.close(namespace_fd)
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, slot)
