"""Films in the report: the same task before and after training, within a budget of bytes.

Pictures are embedded, so that the report stays one file that can be sent around.
"""

from __future__ import annotations

import base64
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.store import SessionRow
from clawrl_gym.ui.live_page import FILMS_FOLDER

MOST_PAIRS = 6
MOST_BYTES = 6 << 20
"""Bytes of all films of a page together; a third more as text."""
_MOST_OF_ONE = 4 << 20


@dataclass(frozen=True, slots=True)
class EpisodeFilm:
    """One measured episode."""

    session: SessionRow
    version: int | None
    """Weight version that acted; None when it is not known."""
    uri: str

    @property
    def when(self) -> str:
        """Time of its measurement, in words."""
        if self.version is None:
            return "measured"
        updates = f"update{'' if self.version == 1 else 's'}"
        return f"after {self.version} {updates}" if self.version else "before training"


@dataclass(frozen=True, slots=True)
class FilmCard:
    """A task at its first and at its last measurement."""

    task_id: str
    films: list[EpisodeFilm]


class FilmBox:
    """The films of a run, as data URIs, until the budget is spent; each is taken once."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder / FILMS_FOLDER
        self.session_ids = {path.stem for path in self._folder.glob("*.jpg")}
        """Sessions that have a film."""
        self._left = most_bytes
        self.embedded_films = 0
        """Number of films on the page."""

    def take(self, sessions: Iterable[SessionRow]) -> list[str] | None:
        """The films of these together; None when one cannot be read or they are too large."""
        films = []
        for session in sessions:
            try:
                film = (self._folder / f"{session.id}.jpg").read_bytes()
            except OSError:
                return None
            if not film.startswith(b"\xff\xd8\xff") or len(film) > _MOST_OF_ONE:
                return None
            films.append(film)
        size = sum(map(len, films))
        if size > self._left:
            return None
        self._left -= size
        self.embedded_films += len(films)
        return [f"data:image/jpeg;base64,{base64.b64encode(film).decode()}" for film in films]


def film_cards(
    sessions: Sequence[SessionRow], box: FilmBox, version_of: Callable[[str], int | None]
) -> list[FilmCard]:
    """Tasks that were learned first, then those that are solved, then the others."""
    tasks: dict[str, list[SessionRow]] = defaultdict(list)
    for session in sorted(sessions, key=lambda session: (session.created_s, session.id)):
        if _is_measured(session) and session.id in box.session_ids:
            tasks[session.task_id or session.id].append(session)
    cards: list[FilmCard] = []
    for task_id in _in_order(tasks)[:MOST_PAIRS]:
        ends = tasks[task_id][:1] if len(tasks[task_id]) == 1 else _ends(tasks[task_id])
        uris = box.take(ends)
        if uris is not None:
            films = [
                EpisodeFilm(session, version_of(session.id), uri)
                for session, uri in zip(ends, uris, strict=True)
            ]
            cards.append(FilmCard(task_id, films))
    return cards


def _is_measured(session: SessionRow) -> bool:
    return session.source == "rollout" and session.group_id is None and session.reward is not None


def _ends(sessions: list[SessionRow]) -> list[SessionRow]:
    return [sessions[0], sessions[-1]]


def _in_order(tasks: Mapping[str, list[SessionRow]]) -> list[str]:
    """Tasks by rank, and in a rank one task of each kind before the second of any.

    Kinds are ids without their digits.
    """
    task_counts: Counter[tuple[int, str]] = Counter()
    places: dict[str, tuple[int, int]] = {}
    for task_id, sessions in tasks.items():
        kind = _rank(sessions), re.sub(r"\d+", "", task_id)
        places[task_id] = kind[0], task_counts[kind]
        task_counts[kind] += 1
    return sorted(places, key=lambda task_id: places[task_id])


def _rank(sessions: list[SessionRow]) -> int:
    """0: learned, 1: solved before and after, 2: not solved, 3: measured once."""
    if len(sessions) == 1:
        return 3
    before, after = (session.success for session in _ends(sessions))
    return 2 if not after else 1 if before else 0
