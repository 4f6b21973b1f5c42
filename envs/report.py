"""A grade and its report: passed, or what failed, a line each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

REPORT_PASSED = "Test report: passed"
REPORT_FAILED = "Test report: failed"


@dataclass(frozen=True, slots=True)
class Grade:
    """Reward of an episode, and why it is not higher."""

    reward: float
    report: str
    """Report for training and for people; no prompt of the episode has it."""


def report_of(failures: Sequence[str]) -> str:
    """The report of checks, each of which says what failed; passed when none did."""
    lines = [f"- {_one_line(failure)}" for failure in failures]
    return "\n".join([REPORT_FAILED, *lines]) if lines else REPORT_PASSED


def with_left_out(report: str, left_out: Sequence[str]) -> str:
    """The report with a line for each thing that was not graded; it decides nothing."""
    return "\n".join([report, *(f"- left out: {_one_line(one)}" for one in left_out)])


def failures_of(report: str) -> tuple[str, ...]:
    """Failures that a report lists; inverse of `report_of`."""
    first, *lines = report.split("\n")
    return tuple(line.removeprefix("- ") for line in lines) if first == REPORT_FAILED else ()


def _one_line(text: str) -> str:
    """A failure on its own line, whatever is in a file's name."""
    return " ".join(text.split())
