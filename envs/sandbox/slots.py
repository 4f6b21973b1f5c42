"""Uid ranges: each live sandbox of a machine has its own, whoever started it (real root only)."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

UIDS_PER_SLOT = 65_536
_FIRST_UID = 0x7000_0000
SLOTS = 4_094
"""Above what login users, subordinate ranges and containers are given, below 2^31."""
_STATE = Path("/run/clawrl-gym")


def first_uid(slot: int) -> int:
    return _FIRST_UID + slot * UIDS_PER_SLOT


class Slots:
    """Byte locks on one file: no two launchers take the same, and death gives them back."""

    def __init__(self) -> None:
        _STATE.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(_STATE / "slots", flags, 0o600)
        self._next = os.getpid() * 61 % SLOTS

    def take(self) -> int:
        for step in range(SLOTS):
            slot = (self._next + step) % SLOTS
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
            except OSError:
                continue
            self._next = slot + 1
            return slot
        raise OSError(
            f"{SLOTS} sandboxes are alive on this machine, which is the most there can be"
        )

    def free(self, slot: int) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, slot)
