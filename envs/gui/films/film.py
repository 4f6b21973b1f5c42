"""A film: what was done on the pages of an episode, reply by reply.

At most `MOST_FRAMES` and the last page are kept, evenly spread over the episode, so that a film
costs the same however long the episode is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clawrl_gym.core.errors import EnvError
from clawrl_gym.envs.gui.action import ENDINGS
from clawrl_gym.envs.gui.attempt import Attempt
from clawrl_gym.envs.gui.films.storyboard import EpisodeOutcome, FilmFrame, draw_storyboard
from clawrl_gym.envs.gui.observation import View

__all__ = ["MOST_FRAMES", "Attempt", "Film"]

MOST_FRAMES = 24


class Film:
    """Collects the frames of one episode."""

    def __init__(self, instruction: str, viewport: tuple[int, int]) -> None:
        self._instruction = instruction
        self._viewport = viewport
        self._frames: list[FilmFrame] = []
        self._newest: FilmFrame | None = None
        self._last_page: FilmFrame | None = None
        self._every = 1
        """One of this many frames is kept."""
        self._count = 0
        self._exposed: bytes | None = None
        self._reward: float | None = None
        self._report = ""

    def expose(self, shot: Callable[[], bytes]) -> None:
        """Take a picture of the page, before something is done on it."""
        self._exposed = _picture(shot)

    def add(self, view: View, attempts: Sequence[Attempt], failure: str = "") -> None:
        """Record attempts on the page that was exposed last; `view` holds their ids."""
        frame = FilmFrame(self._count + 1, self._exposed, view, tuple(attempts), failure)
        self._exposed = None
        if self._count % self._every == 0:
            self._frames.append(frame)
        self._count += 1
        self._newest = frame
        if len(self._frames) > MOST_FRAMES:
            self._every *= 2
            self._frames = self._frames[::2]

    def end(self, shot: Callable[[], bytes]) -> None:
        """Add the last page, unless the last reply only said that it is the end."""
        newest = self._newest
        if newest is None or any(attempt.action.kind not in ENDINGS for attempt in newest.attempts):
            self._last_page = FilmFrame(0, _picture(shot), View("", "", ()))

    def graded(self, reward: float, report: str) -> None:
        """Record the grade."""
        self._reward, self._report = reward, report

    @property
    def frames(self) -> list[FilmFrame]:
        """Frames that are shown."""
        frames = list(self._frames)
        if self._newest is not None and self._newest is not frames[-1]:
            frames.append(self._newest)
        return frames if self._last_page is None else [*frames, self._last_page]

    @property
    def hidden(self) -> int:
        """Replies that are not shown."""
        return self._count - sum(frame.number > 0 for frame in self.frames)

    def strip(self) -> bytes:
        """The whole film as one JPEG."""
        outcome = EpisodeOutcome(self._reward, self._report, self._count, self.hidden)
        return draw_storyboard(self._instruction, self._viewport, self.frames, outcome)


def _picture(shot: Callable[[], bytes]) -> bytes | None:
    """A page without a picture is a blank frame: films fail no episode."""
    try:
        return shot()
    except EnvError:
        return None
