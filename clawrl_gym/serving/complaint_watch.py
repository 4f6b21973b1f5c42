"""The watch over complaints: whether people are less content with newer versions, and the way back
to the last good one when they are.

Verdicts are read from the store at a start, and the last good version from a file beside it: a
restart ends no trial and forgets no complaint.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from clawrl_gym.core.errors import ConfigError, PolicyError
from clawrl_gym.core.files.files import replace_text
from clawrl_gym.core.metrics import RETURNED_TO
from clawrl_gym.core.ownership import user_of
from clawrl_gym.store import JudgedTurn, UpdateRow
from clawrl_gym.trainers.versions.complaints import RESTORED, Complaints

COMPLAINTS_FILE = "complaints.json"
"""File below a serving folder: the last good version."""
_log = logging.getLogger(__name__)


class Judged(Protocol):
    """The store, as far as it tells of earlier processes."""

    async def judged_turns(self, newest: int) -> list[JudgedTurn]: ...


class Loop(Protocol):
    """The training loop, as far as it goes back."""

    def kept_versions(self) -> Sequence[int]: ...

    async def rollback(self, version: int) -> int: ...


class ComplaintWatch:
    """Over the run's own weights."""

    def __init__(
        self,
        complaints: Complaints,
        folder: Path,
        say: Callable[[str], None],
        is_own: Callable[[str], bool] = lambda session_id: True,
    ) -> None:
        """`is_own`: whether the run's own weights answer a session."""
        self._complaints = complaints
        self._file = folder / COMPLAINTS_FILE
        self._say = say
        self._is_own = is_own
        self._judged = asyncio.Event()
        """A verdict counts that was not looked at yet."""
        self.forget = complaints.forget

    async def restore(self, store: Judged, updates: Sequence[UpdateRow], version: int) -> None:
        """Read what earlier processes of the run knew; `version` serves now."""
        self._complaints.good = min(self._read(), version)
        for turn in await store.judged_turns(RESTORED):
            self.judged(turn)
        for row in updates:
            self.updated(row)
        self._judged.set()

    def judged(self, turn: JudgedTurn) -> None:
        """A verdict on a live turn counts; of weights of a user's own nobody else complains."""
        verdict = turn.verdict
        if turn.version >= 0 and self._is_own(turn.session_id):
            user = user_of(turn.session_id)
            self._complaints.add(verdict.turn_id, user, turn.version, verdict.value)
            self._judged.set()

    def updated(self, row: UpdateRow) -> None:
        """An update was recorded; with the weights of an earlier version, nothing of what was in
        between counts."""
        earlier = row.metrics.get(RETURNED_TO)
        if earlier is not None and row.version > self._complaints.good:
            self._complaints.returned(int(earlier), row.version)

    async def run(
        self, loop: Loop, version: Callable[[], int], on_rollback: Callable[[], None]
    ) -> None:
        """Go back to the last good version when newer ones are complained about more, until
        cancelled. `version` serves; `on_rollback` is told before each way back."""
        kept = None
        while True:
            await self._judged.wait()
            self._judged.clear()
            if version() > self._complaints.good and self._complaints.is_worse():
                on_rollback()
                await self._roll_back(loop, version)
            if kept != self._complaints.good:
                kept = self._complaints.good
                await self._keep(kept)

    async def _roll_back(self, loop: Loop, version: Callable[[], int]) -> None:
        complaints = self._complaints
        found = complaints.comparison()
        assert found is not None
        good = [kept for kept in loop.kept_versions() if kept <= complaints.good][-1]
        self._say(
            f"WARNING: {found.after:.0%} of the replies of versions after {complaints.good} "
            f"are complained about (n = {found.turns_after}), {found.before:.0%} before (n = "
            f"{found.turns_before}): version {good} is put back into service "
            "(learner.guards.complaints)"
        )
        try:
            await loop.rollback(good)
        except (ConfigError, PolicyError) as error:
            self._say(f"WARNING: version {good} cannot come back: {error}")
            complaints.good = version()

    def _read(self) -> int:
        """The last good version; 0 where none is known: all others are on trial then."""
        try:
            return int(json.loads(self._file.read_text())["good"])
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, TypeError, KeyError) as error:
            _log.warning("%s cannot be read, all versions are on trial: %s", self._file, error)
            return 0

    async def _keep(self, good: int) -> None:
        try:
            await asyncio.to_thread(replace_text, self._file, json.dumps({"good": good}) + "\n")
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._file, error)
