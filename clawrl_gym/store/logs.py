"""The run's two logs as the store writes them; a run that is not recorded has none."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import suppress
from pathlib import Path

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.jsonl import JsonLines
from clawrl_gym.store import deletion, journal
from clawrl_gym.store.deletion import Deletion
from clawrl_gym.store.journal import Line
from clawrl_gym.store.slack import Slack
from clawrl_gym.store.transaction import Transaction

_log = logging.getLogger(__name__)


class Logs:
    """conversations.jsonl and evaluations.jsonl."""

    def __init__(self, folder: Path | None) -> None:
        """None: nothing is written. Raises StoreError when a file cannot be opened."""
        self._folder = folder
        names = (journal.CONVERSATIONS_FILE, journal.EVALUATIONS_FILE)
        self._files = {} if folder is None else {name: JsonLines(folder / name) for name in names}

    def told(self, tx: Transaction, line: Line) -> None:
        """Write a line after the transaction's commit."""
        file = self._files.get(journal.FILE_OF[line["type"]])
        if file is not None:
            tx.log(file, line)

    def mend(self, db: sqlite3.Connection, slack: Slack) -> None:
        """Do what a kill kept from being done: finish deletions, add lines that are missing."""
        if self._folder is None:
            return
        if unfinished := deletion.pending(db):
            try:
                self.leave_out(unfinished)
                if slack.wipe_all(db):
                    deletion.finish(db, unfinished)
            except StoreError as error:
                _log.warning("deleted sessions stay in the logs for now: %s", error)
        for name, file in self._files.items():
            journal.add_missing(db, self._folder, name, file)

    def leave_out(self, deletions: list[Deletion]) -> None:
        """Take the lines of deleted sessions out. Blocks; lines can be written meanwhile."""
        keep = deletion.keeps(deletions)
        for file in self._files.values():
            file.rewrite(keep)

    def close(self) -> None:
        """A full disk must not keep the folder locked; reopening adds what was not written."""
        for file in self._files.values():
            with suppress(OSError):
                file.close()
