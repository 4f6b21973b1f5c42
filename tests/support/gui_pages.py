"""What tests of the browser share: a site of given pages, a task on it, a screen with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from clawrl_gym.envs.gui.browser.screen import BrowserScreen
from clawrl_gym.envs.gui.config import BrowserConfig, GuiEnvConfig
from clawrl_gym.envs.gui.observation import Element, View
from clawrl_gym.envs.gui.site import Request, Response
from clawrl_gym.envs.gui.task import FinalState, GuiTask

PATIENT = GuiEnvConfig(action_timeout_s=30.0, page_timeout_s=60.0, browser=BrowserConfig())
"""What is tested is not time: a busy machine is no failure."""
QUICK = PATIENT.model_copy(update={"action_timeout_s": 1.0, "page_timeout_s": 2.0})
"""For pages that hang: what is waited for in vain."""


class Nothing:
    needs_pages = False

    def grade(self, final_state: FinalState) -> tuple[float, tuple[str, ...]]:
        return 0.0, ()


@dataclass
class Pages:
    """Answers each path with its page or response; what is posted is kept."""

    pages: Mapping[str, str | Response]
    requests: list[Request] = field(default_factory=list)

    def handle(self, request: Request) -> Response:
        self.requests.append(request)
        page = self.pages.get(request.path)
        if page is None:
            return Response("<title>missing</title>missing", 404)
        return Response(page) if isinstance(page, str) else page

    def state(self) -> Any:
        return [(one.method, one.path, dict(one.form)) for one in self.requests]


def a_task(pages: Mapping[str, str | Response], **more: Any) -> GuiTask:
    fields = {"start": "http://site.test/", "sites": {"site.test": lambda: Pages(pages)}, **more}
    return GuiTask("t", "family", "train", "do it", grader=Nothing(), **fields)


@contextmanager
def a_screen(
    pages: str | Mapping[str, str | Response], options: GuiEnvConfig = PATIENT, **more: Any
) -> Iterator[BrowserScreen]:
    """`pages`: by path, or the only one."""
    fields = {"/": pages} if isinstance(pages, str) else pages
    screen = BrowserScreen.open(a_task(fields, **more), options)
    try:
        yield screen
    finally:
        screen.close()


def with_browser(options: GuiEnvConfig = PATIENT, **browser: Any) -> GuiEnvConfig:
    return options.model_copy(update={"browser": options.browser.model_copy(update=browser)})


def text(view: View) -> str:
    return "\n".join(
        " ".join(part.name if isinstance(part, Element) else part for part in line)
        for line in view.lines
    )


def id_of(screen: BrowserScreen, name: str) -> int:
    return next(one.id for one in screen.look().elements if one.name == name)
