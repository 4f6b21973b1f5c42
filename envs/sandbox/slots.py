"""Uid ranges: each live sandbox of a machine has its own, whoever started it (real root only).

There are as many as the machine's uid space has room for: high numbers that this user namespace
has, and that no login user and no subordinate range claims.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

UIDS_PER_SLOT = 65_536
_FIRST_UID = 0x7000_0000
_SPACE = ((_FIRST_UID, 0x7FFE_0000), (0x8000_0000, 0xFFFE_0000))
"""Above what login users, subordinate ranges and containers are usually given."""
_MOST_SPARE = 64
_STATE = Path("/run/clawrl-gym")
_FLOCK = "hhqqi4x"  # type, whence, start, length, process (0 for a lock of the open file)

Span = tuple[int, int]
"""First number, and the one after the last."""
TOO_HIGH_FOR_BWRAP: Span = (0x8000_0000, 0xFFFF_FFFF)
"""Users that cannot run bubblewrap: it takes their numbers for negative ones."""


def first_uid(slot: int) -> int:
    return _FIRST_UID + slot * UIDS_PER_SLOT


def usable_slots(
    maps: Sequence[Sequence[Span]] | None = None, claimed: Sequence[Span] | None = None
) -> tuple[range, ...]:
    """The slots of this machine: none where its user namespace has too few numbers.

    `maps` are the ids that exist, of users and of groups; `claimed` those that others may use.
    """
    maps = (_existing("uid_map"), _existing("gid_map")) if maps is None else maps
    spans: list[Span] = list(_SPACE)
    for existing in maps:
        spans = [both for span in spans for other in existing if (both := _overlap(span, other))]
    for taken in sorted(_claimed() if claimed is None else claimed):
        spans = [rest for span in spans for rest in _outside(span, taken)]
    slots = [
        range(-(-(first - _FIRST_UID) // UIDS_PER_SLOT), (end - _FIRST_UID) // UIDS_PER_SLOT)
        for first, end in spans
    ]
    return tuple(part for part in slots if part)


def _overlap(span: Span, other: Span) -> Span | None:
    first, end = max(span[0], other[0]), min(span[1], other[1])
    return (first, end) if first < end else None


def _outside(span: Span, taken: Span) -> list[Span]:
    parts = [(span[0], min(span[1], taken[0])), (max(span[0], taken[1]), span[1])]
    return [part for part in parts if part[0] < part[1]]


def _existing(name: str) -> list[Span]:
    lines = Path("/proc/self", name).read_text().splitlines()
    return [(int(first), int(first) + int(n)) for first, _, n in map(str.split, lines)]


def _claimed() -> Iterator[Span]:
    """Ranges claimed in /etc/subuid and /etc/subgid (NAME:FIRST:COUNT), and by login users."""
    for path in ("/etc/subuid", "/etc/subgid"):
        for words in _rows(path):
            if len(words) == 3 and words[1].isdigit() and words[2].isdigit():
                yield int(words[1]), int(words[1]) + int(words[2])
    for path in ("/etc/passwd", "/etc/group"):
        for words in _rows(path):
            if len(words) > 2 and words[2].isdigit():
                yield int(words[2]), int(words[2]) + 1


def _rows(path: str) -> list[list[str]]:
    try:
        text = Path(path).read_text("utf-8", "replace")
    except OSError:
        return []
    return [line.strip().split(":") for line in text.splitlines()]


def open_slots(claimed: Sequence[Span] = ()) -> Slots | None:
    """None for an ordinary user, and for a root whose user namespace has no room for a slot.

    `claimed`: numbers that are no use to the caller.
    """
    if os.geteuid() != 0:
        return None
    slots = usable_slots(claimed=[*_claimed(), *claimed])
    return Slots(slots) if slots else None


class Slots:
    """Byte locks on one file: no two open files take the same, and death gives them back.

    A few that were given back are kept with the user namespace made for them, which costs more
    than all else about a slot.
    """

    def __init__(self, slots: Sequence[range]) -> None:
        self._parts = tuple(slots)
        self.count = sum(map(len, self._parts))
        _STATE.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(_STATE / "slots", flags, 0o600)
        self._next = int.from_bytes(os.urandom(4)) % self.count
        self._held: set[int] = set()
        self._spare: list[tuple[int, int]] = []

    def take(self) -> tuple[int, int | None]:
        """A slot, and its user namespace when it has one already. Raises OSError for none."""
        if self._spare:
            return self._spare.pop()
        if len(self._held) < self.count:
            for step in range(self.count):
                at = (self._next + step) % self.count
                slot = self._nth(at)
                if slot not in self._held and self._set_lock(slot, fcntl.F_WRLCK):
                    self._held.add(slot)
                    self._next = at + 1
                    return slot, None
        raise OSError(
            f"all {self.count:,} uid ranges of this machine are taken, "
            f"{len(self._held):,} of them by sandboxes of this process: end some, or start fewer"
        )

    def give_back(self, slot: int, namespace_fd: int | None) -> None:
        if namespace_fd is not None and len(self._spare) < _MOST_SPARE:
            self._spare.append((slot, namespace_fd))
            return
        if namespace_fd is not None:
            os.close(namespace_fd)
        self._held.discard(slot)
        self._set_lock(slot, fcntl.F_UNLCK)

    def close(self) -> None:
        """Give all back."""
        for _, namespace_fd in self._spare:
            os.close(namespace_fd)
        self._spare.clear()
        os.close(self._fd)

    def _nth(self, at: int) -> int:
        for part in self._parts:
            if at < len(part):
                return part[at]
            at -= len(part)
        raise IndexError(at)

    def _set_lock(self, slot: int, kind: int) -> bool:
        """Lock the open file, not the process, so that a second lock in this process conflicts too.

        False where somebody else holds it.
        """
        lock = struct.pack(_FLOCK, kind, os.SEEK_SET, slot, 1, 0)
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, lock)
        except (BlockingIOError, PermissionError):
            return False
        return True
