"""report.html of a serving run: written at its end, and gone with the first session it may tell of.

A deleted session must leave no byte in the run's folder, and a report holds words of conversations;
so do the pages that `rejudge` leaves, which go with it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from clawrl_gym.core.errors import ClawError
from clawrl_gym.ui.rejudged import remove_rejudged_pages
from clawrl_gym.ui.report import REPORT_FILE, write_report


class LastReport:
    """The page of one folder. Its calls may come from any thread."""

    def __init__(
        self, folder: Path, say: Callable[[str], None], write: Callable[[Path], Path] = write_report
    ) -> None:
        """`say` takes a message: where the page is, or why there is none."""
        self._folder = folder
        self._say = say
        self._write = write
        self._deletions = 0

    def session_deleted(self, session_id: str) -> None:
        """A session is about to be deleted, or was: a page that is being written is not kept."""
        self._deletions += 1
        self._remove()

    def write(self) -> None:
        """Write the page on serving and learning; failing to costs only a message."""
        before = self._deletions
        try:
            path = self._write(self._folder)
        except ClawError as error:
            self._say(f"no report: {error}")
            return
        if self._deletions != before:
            self._remove()
            self._say("no report: a session was deleted while it was written")
            return
        self._say(f"report: {path}")

    def _remove(self) -> None:
        with suppress(OSError):
            (self._folder / REPORT_FILE).unlink(missing_ok=True)
        remove_rejudged_pages(self._folder)
