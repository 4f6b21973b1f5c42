"""One line of the doctor's answer, and how it is made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of


class Status(StrEnum):
    """Result of a check."""

    OK = "ok"
    MISSING = "missing"
    """Required, and not there."""
    OPTIONAL = "optional"
    """Not there; without it only `needed_for` is lost."""


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """One line of the doctor's answer."""

    name: str
    status: Status
    finding: str
    needed_for: str
    cure: str = ""
    """The command that mends it; empty when all is well."""


def required(name: str, ok: bool, finding: str, needed_for: str, cure: str) -> MachineCheck:
    """Missing unless `ok`; the cure of what is there is left out."""
    return _check(name, ok, Status.MISSING, finding, needed_for, cure)


def optional(name: str, ok: bool, finding: str, needed_for: str, cure: str) -> MachineCheck:
    """Optional unless `ok`."""
    return _check(name, ok, Status.OPTIONAL, finding, needed_for, cure)


def _check(
    name: str, ok: bool, otherwise: Status, finding: str, needed_for: str, cure: str
) -> MachineCheck:
    status = Status.OK if ok else otherwise
    return MachineCheck(name, status, finding, needed_for, "" if ok else cure)


def version(name: str) -> str | None:
    """Version of an installed package, which is not imported; None when it is not installed."""
    try:
        return version_of(name)
    except PackageNotFoundError:
        return None
