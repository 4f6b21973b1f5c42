"""Films of episodes: pictures that workers send when an episode is over, kept in the run's folder.

A film is for people alone. Nothing that is learned or measured depends on one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from aiohttp import web

from clawrl_gym.core.ownership import OWNER, user_of
from clawrl_gym.gateway.admission.admission import Admission
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import session_id_of
from clawrl_gym.store import Store

MOST_BYTES = 4 << 20
"""Most bytes of one film."""
_MOST_OF_ALL_BYTES = 1 << 30
"""Most bytes of all films of a run together."""
_JUST_ENDED_S = 600.0
_JPEG_START, _JPEG_END = b"\xff\xd8\xff", b"\xff\xd9"
_log = logging.getLogger(__name__)


def _nobody(_: Path) -> None:
    pass


class Films:
    """The films of one run, a JPEG file each."""

    def __init__(
        self,
        admission: Admission,
        store: Store,
        folder: Path | None,
        on_film: Callable[[Path], None] = _nobody,
        most_bytes: int = _MOST_OF_ALL_BYTES,
    ) -> None:
        """`folder`: None refuses all films; `on_film` is told of each file, in a thread."""
        self._admission = admission
        self._store = store
        self._folder = folder
        self._on_film = on_film
        self._most_bytes = most_bytes
        self._bytes: int | None = None
        """Bytes of all films; None until they have been counted."""
        self._one_at_a_time = asyncio.Lock()

    async def post(self, request: web.Request) -> web.Response:
        """POST /sessions/ID/film: the JPEG of a session that is open or has just ended."""
        session_id = session_id_of(request.match_info["id"])
        if self._folder is None:
            raise Refusal(404, "this gateway keeps no films", "no_films")
        row = await self._store.session(session_id)
        if row is None:
            raise Refusal(404, f"there is no session {session_id!r}", "session_not_found")
        if row.ended_s is not None and time.time() - row.ended_s > _JUST_ENDED_S:
            raise Refusal(409, f"session {session_id!r} ended long ago", "session_ended")
        film = await self._admission.body_of(request, MOST_BYTES)
        if not (film.startswith(_JPEG_START) and film.endswith(_JPEG_END)):
            raise Refusal(400, f"got {film[:8]!r}... as a film, expected a whole JPEG file")
        async with self._one_at_a_time:
            path = await asyncio.to_thread(self._write, self._folder, session_id, film)
        if await self._store.session(session_id) is None:  # deleted meanwhile
            self.forget(session_id)
            raise Refusal(404, f"there is no session {session_id!r}", "session_not_found")
        return web.json_response({"session_id": session_id, "film": path.name})

    def forget(self, session_id: str) -> None:
        """The session is deleted, and its film with it."""
        if self._folder is not None and user_of(session_id) == OWNER:  # only episodes have any
            path = _file(self._folder, session_id)
            with suppress(OSError):
                size = path.stat().st_size
                path.unlink()
                self._bytes = None if self._bytes is None else self._bytes - size

    def _write(self, folder: Path, session_id: str, film: bytes) -> Path:
        path = _file(folder, session_id)
        try:
            folder.mkdir(exist_ok=True)
            if self._bytes is None:
                self._bytes = sum(one.stat().st_size for one in folder.glob("*.jpg"))
            before = path.stat().st_size if path.exists() else 0
            if self._bytes - before + len(film) > self._most_bytes:
                raise Refusal(
                    507, f"the films of this run take {self._most_bytes >> 20} MB already", "full"
                )
            scratch = path.with_suffix(".new")
            scratch.write_bytes(film)
            scratch.replace(path)
        except OSError as error:
            raise Refusal(507, f"the film cannot be written: {error.strerror}", "full") from error
        self._bytes += len(film) - before
        try:
            self._on_film(path)
        except OSError as error:  # only for people to look at
            _log.warning("nobody is shown the film %s: %s", path, error)
        return path


def _file(folder: Path, session_id: str) -> Path:
    """A session's id has no slash, so that this is always a file of the folder."""
    return folder / f"{session_id_of(session_id)}.jpg"
