"""The deletion of sessions from beginning to end, while others write; see `deletion.py`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from clawrl_gym.core.errors import StoreError
from clawrl_gym.store import deletion, showings
from clawrl_gym.store.album import Album
from clawrl_gym.store.logs import Logs
from clawrl_gym.store.slack import Slack
from clawrl_gym.store.transaction import Transaction
from clawrl_gym.store.turns import Bases
from clawrl_gym.store.writer import Writer

_TRIES = 5
_PAUSE_S = 0.1
"""Between tries, while somebody reads an older state of the database."""
_LATER_S = 10.0
"""Between tries, once the caller has been told."""

_log = logging.getLogger(__name__)


class Eraser:
    """Deletes sessions in small transactions, then cleans the files once for all of them."""

    def __init__(
        self,
        writer: Writer,
        logs: Logs,
        slack: Slack,
        bases: Bases,
        album: Album,
        *,
        files: bool,
    ) -> None:
        """`files` False: the database is in memory and there is nothing to clean."""
        self._writer = writer
        self._logs = logs
        self._slack = slack
        self._bases = bases
        self._album = album
        self._files = files
        self._cleaning = asyncio.Lock()
        self._going: set[asyncio.Task[Any]] = set()
        self._later: asyncio.Task[None] | None = None

    async def delete(self, session_ids: Iterable[str]) -> int:
        """Returns how many there were. Goes on when its caller is cancelled."""
        task = asyncio.ensure_future(self._delete(list(dict.fromkeys(session_ids))))
        self._going.add(task)
        task.add_done_callback(self._going.discard)
        return await asyncio.shield(task)

    async def finish(self) -> None:
        """Wait for what is going on; what readers keep from being cleaned waits for `open`."""
        if self._going:
            await asyncio.wait(self._going)
        if self._later is not None:
            self._later.cancel()
            await asyncio.wait([self._later])

    async def _delete(self, session_ids: list[str]) -> int:
        deleted = 0
        while session_ids:
            erase = partial(self._erase, session_ids=session_ids)
            tried, there, unshown = await self._writer.submit(erase)
            if unshown:
                await asyncio.to_thread(self._album.remove, unshown)
            session_ids = session_ids[tried:]
            deleted += there
        if deleted and not await self._clean() and (self._later is None or self._later.done()):
            _log.warning(
                "somebody reads the run's database: bytes of deleted sessions stay in it until "
                "they are done; this is tried again every %g s",
                _LATER_S,
            )
            self._later = asyncio.create_task(self._clean_later())
        return deleted

    def _erase(self, tx: Transaction, session_ids: list[str]) -> tuple[int, int, list[str]]:
        """How many it tried, how many were there, and the pictures that nobody shows now."""
        were_shown = showings.shown_by(tx.db, session_ids)
        tried, there = deletion.erase(tx, session_ids)
        for session_id in there:
            self._bases.drop(session_id)
        return tried, len(there), showings.unshown(tx.db, were_shown)

    async def _clean_later(self) -> None:
        cleaned = False
        while not cleaned:
            await asyncio.sleep(_LATER_S)
            with suppress(StoreError):  # a full disk: room may be made
                cleaned = await self._clean()

    async def _clean(self) -> bool:
        """Take what was deleted out of the files; False when readers forbid."""
        async with self._cleaning:
            done = await self._writer.submit(lambda tx: deletion.pending(tx.db))
            if done and self._files:
                await asyncio.to_thread(self._logs.leave_out, done)
                if not await self._wipe():
                    return False
            if done:  # else another deletion's pass took these along
                await self._writer.submit(lambda tx: deletion.finish(tx.db, done))
            return True

    async def _wipe(self) -> bool:
        """Leave no byte of deleted rows; others write in between. False when readers forbid."""
        page, tries = 0, 0
        while tries < _TRIES:
            after = await self._writer.alone(partial(self._slack.wipe, page=page))
            if after is None:
                return True
            if after == page:
                tries += 1
                await asyncio.sleep(_PAUSE_S)
            page = after
        return False
