"""live.html: the newest films of a run in progress, in a page that refreshes itself.

It shows what a terminal cannot, and nothing else: curves are in the terminal's panel, and all of
it together in the report. A file beside the films needs no server and no port.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from clawrl_gym.core.files.files import replace_text
from clawrl_gym.ui import pages

LIVE_FILE = "live.html"
FILMS_FOLDER = "films"
_MOST_FILMS = 24


class LivePage:
    """Rewrites the page at each film. Its calls come one at a time."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        """`folder` of the run; `say` takes a message, once: where the page is."""
        self._folder = folder
        self._say = say
        self._newest: deque[tuple[str, float]] | None = None

    def add(self, film: Path) -> None:
        """Show a film that was just written. Raises OSError."""
        if self._newest is None:
            self._newest = deque(_earlier(film.parent, but=film), maxlen=_MOST_FILMS)
            self._say(f"films: {self._folder / LIVE_FILE}")
        self._newest.append((film.name, time.time()))
        self._write(list(reversed(self._newest)))

    def _write(self, films: list[tuple[str, float]]) -> None:
        rows = [
            (f"{FILMS_FOLDER}/{name}", name.removesuffix(".jpg"), time.strftime("%H:%M:%S", when))
            for name, when in ((name, time.localtime(at_s)) for name, at_s in films)
        ]
        title = self._folder.resolve().name
        replace_text(
            self._folder / LIVE_FILE, pages.render("live.html.j2", title=title, films=rows)
        )


def _earlier(films: Path, but: Path) -> list[tuple[str, float]]:
    """Earlier films of a resumed run: (name, time), the newest last."""
    films_there = [(path.name, path.stat().st_mtime) for path in films.glob("*.jpg") if path != but]
    return sorted(films_there, key=lambda film: film[1])[-_MOST_FILMS:]
