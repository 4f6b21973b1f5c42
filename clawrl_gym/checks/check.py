"""One line of the doctor's answer, and how it is made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of


class Status(StrEnum):
    """What a check came to."""

    OK = "ok"
    MISSING = "missing"
    """Required, and not there."""
    OPTIONAL = "optional"
    """Not there, and only what `needed_for` says is lost."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's answer."""

    name: str
    status: Status
    found: str
    needed_for: str
    cure: str = ""
    """The command that mends it; empty when all is well."""


def required(name: str, ok: bool, found: str, needed_for: str, cure: str) -> Check:
    return Check(name, Status.OK if ok else Status.MISSING, found, needed_for, "" if ok else cure)


def optional(name: str, ok: bool, found: str, needed_for: str, cure: str) -> Check:
    return Check(name, Status.OK if ok else Status.OPTIONAL, found, needed_for, "" if ok else cure)


def version(name: str) -> str | None:
    """Of an installed package, which is not imported; None when it is not installed."""
    try:
        return version_of(name)
    except PackageNotFoundError:
        return None
