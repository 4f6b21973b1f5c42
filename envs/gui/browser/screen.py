"""An episode's browser context with the task's pages, used from the environment's thread."""

from __future__ import annotations

from typing import Self

from clawrl_gym.envs.gui.action import GuiAction
from clawrl_gym.envs.gui.browser.episode import BrowserEpisode
from clawrl_gym.envs.gui.browser.pool import ProcessBrowsers, process_browsers
from clawrl_gym.envs.gui.config import GuiEnvConfig
from clawrl_gym.envs.gui.observation import View
from clawrl_gym.envs.gui.task import FinalState, GuiTask

_START_S = 120.0
"""Seconds for a browser to start, with others before it in the queue."""
_MARGIN_S = 60.0
"""Beyond the deadlines that hold inside: reached only when the browser's thread is lost."""


class BrowserScreen:
    """Every call blocks, and ends in time. One thread at a time.

    EnvError says that the browser failed, for this episode only; what pages do wrong is reported in
    `act`'s answer and by `notices`.
    """

    def __init__(
        self, episode: BrowserEpisode, owner: ProcessBrowsers, options: GuiEnvConfig
    ) -> None:
        """Made by `open`."""
        self._episode = episode
        self._owner = owner
        self._call_s = 4 * (options.action_timeout_s + options.page_timeout_s) + _MARGIN_S
        self.viewport = episode.viewport
        """Width and height in CSS pixels."""

    @classmethod
    def open(cls, task: GuiTask, options: GuiEnvConfig) -> Self:
        """A fresh context with the task's first pages loaded. Raises EnvError or ConfigError."""
        owner = process_browsers()
        episode = BrowserEpisode(owner, task, options)
        pages = 1 + len(task.tabs)
        owner.run(episode.open(), _START_S + 3 * options.page_timeout_s * pages)
        return cls(episode, owner, options)

    @property
    def page_instruction(self) -> str:
        """Return value of the task's start script, if it is text."""
        return self._episode.page_instruction

    @property
    def left_document(self) -> bool:
        """The last action led to another document or tab: numbers of elements are invalid."""
        return self._episode.left_document

    def look(self) -> View:
        """The tab that is seen, as it is now."""
        return self._owner.run(self._episode.look(), self._call_s)

    def act(self, action: GuiAction) -> str | None:
        """Carry out an action that does not end the task: None, or why it failed, in words."""
        return self._owner.run(self._episode.act(action), self._call_s)

    def shot(self) -> bytes:
        """A picture of the viewport, JPEG."""
        return self._owner.run(self._episode.shot(), self._call_s)

    def notices(self) -> list[str]:
        """Dialogs, downloads, windows and addresses refused since the last call, in words."""
        return self._owner.run(self._episode.notices(), self._call_s)

    def page_result(self) -> object:
        """Result that the task's page reports; the first value that is not null stays."""
        return self._owner.run(self._episode.page_result(), self._call_s)

    def final_state(self, answer: str | None, gave_up: bool, needs_pages: bool) -> FinalState:
        """Final state, for the grade."""
        return self._owner.run(
            self._episode.final_state(answer, gave_up, needs_pages), self._call_s
        )

    def close(self) -> None:
        """Release the context; idempotent. Its content is closed in the background."""
        if self._owner.is_own and not self._owner.ended:
            self._owner.run(self._episode.close(), self._call_s)
