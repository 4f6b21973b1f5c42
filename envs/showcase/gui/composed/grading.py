"""The grade of a composed page task: all servers' states, whatever the order of the work, and an
answer that a page has shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from html import unescape

from clawrl_gym.envs.gui.grading import StateGrader
from clawrl_gym.envs.gui.site import Request, Response, Site
from clawrl_gym.envs.gui.task import FinalState
from clawrl_gym.envs.showcase.gui.composed.desk import settled

_NOT_SEEN = "no page was opened that says what was asked for"


@dataclass(frozen=True, slots=True)
class Watched:
    """Makes a site that remembers whether one of its pages has shown an answer."""

    make: Callable[[], Site]
    answer: str
    about: str
    """Further text that the page has to show."""

    def __call__(self) -> Site:
        return WatchedSite(self.make(), self.answer, self.about)


class WatchedSite:
    """The site, and whether the answer was shown."""

    def __init__(self, site: Site, answer: str, about: str) -> None:
        self._site = site
        self._words = tuple(
            re.compile(rf"(?<!\w){re.escape(word)}(?!\w)") for word in (answer, about) if word
        )
        self._shown = False

    def handle(self, request: Request) -> Response:
        response = self._site.handle(request)
        body = response.body if isinstance(response.body, str) else response.body.decode()
        text = unescape(body.partition("</style>")[2])
        self._shown = self._shown or all(word.search(text) for word in self._words)
        return response

    def state(self) -> object:
        return {"stored": self._site.state(), "shown": self._shown}


@dataclass(frozen=True, slots=True)
class ComposedGrader:
    """Every application ends as it should, nothing else is changed, and the answer fits."""

    expected: Mapping[str, object]
    """Expected settled state by host."""
    known: Mapping[str, Collection[str]]
    """Numbers that count, by host."""
    answer: str | None = None
    watched: str = ""
    """Host that shows the answer."""

    @property
    def needs_pages(self) -> bool:
        return False

    def grade(self, final_state: FinalState) -> tuple[float, tuple[str, ...]]:
        states, shown = dict(final_state.states), True
        if self.watched:
            seen = states[self.watched]
            states[self.watched], shown = _opened(seen)
        final = replace(final_state, states=settled(states, self.known))
        reward, missing = StateGrader(self.expected, self.answer).grade(final)
        return (reward, missing) if shown else (0.0, (*missing, _NOT_SEEN))


def _opened(seen: object) -> tuple[object, bool]:
    """Stored state of a watched site, and whether the answer was shown."""
    if isinstance(seen, dict):
        return seen.get("stored"), bool(seen.get("shown"))
    return None, False
