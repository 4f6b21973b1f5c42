"""live.html: the newest films of a run that goes on, in a page that refreshes itself.

It shows what a terminal cannot, and nothing else: curves are in the terminal's panel, and all of
it together in the report. A file beside the films needs no server and no port.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

LIVE_FILE = "live.html"
FILMS_FOLDER = "films"
_SHOWN = 24


class LivePage:
    """Writes the page anew at each film. Its calls come one at a time."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        """`folder` of the run; `say` is told once where the page is."""
        self._folder = folder
        self._say = say
        self._newest: deque[tuple[str, float]] | None = None

    def add(self, film: Path) -> None:
        """Show a film that was just written. Raises OSError."""
        if self._newest is None:
            self._newest = deque(_there(film.parent, but=film), maxlen=_SHOWN)
            self._say(f"films: {self._folder / LIVE_FILE}")
        self._newest.append((film.name, time.time()))
        self._write(list(reversed(self._newest)))

    def _write(self, films: list[tuple[str, float]]) -> None:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined

        pages = Environment(
            loader=FileSystemLoader(Path(__file__).resolve().parent / "page"), autoescape=True,
            undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        shown = [
            (f"{FILMS_FOLDER}/{name}", name.removesuffix(".jpg"), time.strftime("%H:%M:%S", when))
            for name, when in ((name, time.localtime(at_s)) for name, at_s in films)
        ]
        text = pages.get_template("live.html.j2").render(
            title=self._folder.resolve().name, films=shown
        )
        scratch = self._folder / (LIVE_FILE + ".new")
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(self._folder / LIVE_FILE)


def _there(films: Path, but: Path) -> list[tuple[str, float]]:
    """Films of before, when a run goes on: (name, time), the newest last."""
    known = [(path.name, path.stat().st_mtime) for path in films.glob("*.jpg") if path != but]
    return sorted(known, key=lambda film: film[1])[-_SHOWN:]
