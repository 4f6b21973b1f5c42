"""A screen without a browser: pages are lines, links lead to other pages, fields keep text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any

from clawrl_gym.core.errors import EnvError
from clawrl_gym.envs.gui.action import GuiAction
from clawrl_gym.envs.gui.config import GuiEnvConfig
from clawrl_gym.envs.gui.observation import Element, View
from clawrl_gym.envs.gui.task import FinalState, GuiTask


def jpeg(width: int = 64, height: int = 64, colour: str = "white") -> bytes:
    from PIL import Image

    jpeg_file = BytesIO()
    Image.new("RGB", (width, height), colour).save(jpeg_file, "JPEG")
    return jpeg_file.getvalue()


@dataclass
class FakeScreen:
    """Two pages: a shop with a field and a button, and the basket that the button leads to."""

    task: GuiTask
    options: GuiEnvConfig
    fails: Callable[[GuiAction], str | None] = lambda action: None
    page_instruction: str = ""
    left_document: bool = False
    acted: list[GuiAction] = field(default_factory=list)
    noticed: list[str] = field(default_factory=list)
    result: Any = None
    bought: str | None = None
    written: str = ""
    at: str = "shop"
    closed: int = 0
    is_dead: bool = False

    @property
    def viewport(self) -> tuple[int, int]:
        return self.task.viewport or (self.options.width, self.options.height)

    def look(self) -> View:
        self._check()
        if self.at == "basket":
            return View("http://shop/basket", "Basket", ((f"bought {self.bought}",),))
        field_ = Element(1, "textbox", "What", value=self.written)
        return View("http://shop/", "Shop", (("# Shop",), (field_, Element(2, "button", "Buy"))))

    def act(self, action: GuiAction) -> str | None:
        self._check()
        self.acted.append(action)
        self.left_document = False
        if (why := self.fails(action)) is not None:
            return why
        element_ids = {part.id for part in self.look().elements}
        if action.id is not None and action.id not in element_ids:
            return f"there is no element {action.id} on this page"
        if action.kind == "type":
            self.written = action.text
        elif action.kind == "click" and action.id == 2:
            self.bought, self.at, self.left_document = self.written, "basket", True
        return None

    def notices(self) -> list[str]:
        notices_so_far, self.noticed = self.noticed, []
        return notices_so_far

    def shot(self) -> bytes:
        self._check()
        return jpeg(*self.viewport)

    def page_result(self) -> Any:
        return self.result

    def final_state(self, answer: str | None, gave_up: bool, needs_pages: bool) -> FinalState:
        self._check()
        return FinalState(
            {"shop": {"bought": self.bought}}, answer, gave_up, page_result=self.result
        )

    def close(self) -> None:
        self.closed += 1

    def _check(self) -> None:
        if self.is_dead:
            raise EnvError("the browser died")


class Screens:
    """Opens fake screens, and keeps them for a look from outside."""

    def __init__(self, **changes: Any) -> None:
        self.opened: list[FakeScreen] = []
        self._changes = changes

    def __call__(self, task: GuiTask, options: GuiEnvConfig) -> FakeScreen:
        self.opened.append(replace(FakeScreen(task, options), **self._changes))
        return self.opened[-1]

    @property
    def last(self) -> FakeScreen:
        return self.opened[-1]
