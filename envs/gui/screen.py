"""Interface of an episode's screen: a browser window, or something that acts like one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from clawrl_gym.envs.gui.action import GuiAction
from clawrl_gym.envs.gui.config import GuiEnvConfig
from clawrl_gym.envs.gui.observation import View
from clawrl_gym.envs.gui.task import FinalState, GuiTask


class Screen(Protocol):
    """Tabs of an episode, and the servers that they show. Internal failures raise EnvError."""

    @property
    def page_instruction(self) -> str:
        """Return value of the task's `start_script`; empty without one."""
        ...

    @property
    def viewport(self) -> tuple[int, int]:
        """Width and height in CSS pixels."""
        ...

    @property
    def left_document(self) -> bool:
        """The last action led to another document."""
        ...

    def look(self) -> View: ...

    def act(self, action: GuiAction) -> str | None:
        """Carry out anything but an ending; why it could not be done, in words."""
        ...

    def notices(self) -> list[str]:
        """Events since the last call that nobody asked for: dialogs, downloads."""
        ...

    def shot(self) -> bytes:
        """Picture of the screen, as JPEG."""
        ...

    def page_result(self) -> object:
        """Result that the task's page reports; None until then."""
        ...

    def final_state(self, answer: str | None, gave_up: bool, needs_pages: bool) -> FinalState: ...

    def close(self) -> None:
        """Idempotent."""
        ...


OpenScreen = Callable[[GuiTask, GuiEnvConfig], Screen]
"""Opens the first page of a task in a window of its own."""


def open_browser_screen(task: GuiTask, options: GuiEnvConfig) -> Screen:
    """A window of the browser that this process shares."""
    from clawrl_gym.envs.gui.browser.screen import BrowserScreen

    return BrowserScreen.open(task, options)
