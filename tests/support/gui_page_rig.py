"""Small pages in a real Chromium, for tests of what is seen and done on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.async_api import Browser, BrowserContext, Page, Route, async_playwright

from clawrl_gym.envs.gui.action import GuiAction, Kind
from clawrl_gym.envs.gui.observation import Element, Line
from clawrl_gym.envs.gui.page.act import carry_out
from clawrl_gym.envs.gui.page.snapshot import read_page
from clawrl_gym.envs.gui.page.tab import Tab, tell_listeners
from clawrl_gym.envs.gui.text import line_text

CHROMIUM = "/usr/lib/chromium/chromium-headless-shell"
FLAGS = ["--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"]
HOST = "http://page.test"
PATIENCE_S = 30.0
"""For a busy machine; a page that hangs for ever is no matter of these tests."""
LOG = """<script>const log = [];
const note = (e) => log.push([e.type, e.target.id, e.detail, e.isTrusted, e.key]);
for (const type of ["click", "dblclick", "contextmenu", "mousedown", "mouseup", "mouseover",
  "keydown"])
  document.addEventListener(type, note, true);
</script>"""
"""Records each event that reaches the page: type, id, count, trusted, key."""


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """One browser, for the tests of a module."""
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


@dataclass
class PageRig:
    """One page, and what the addresses that it can reach answer."""

    tab: Tab
    context: BrowserContext
    bodies: dict[str, str | Callable[[], Any]] = field(default_factory=dict)
    """By URL: text, or what makes it."""
    requests: list[str] = field(default_factory=list)
    """Method and URL of each request."""

    @property
    def page(self) -> Page:
        return self.tab.page

    async def show(self, html: str, path: str = "/") -> None:
        self.bodies[HOST + path] = html
        await self.page.goto(HOST + path)

    async def lines(self) -> tuple[Line, ...]:
        return (await read_page(self.tab, PATIENCE_S))[2]

    async def texts(self) -> list[str]:
        """The page as the model reads it."""
        return [line_text(line) for line in await self.lines()]

    async def elements(self) -> list[Element]:
        lines = await self.lines()
        return [part for line in lines for part in line if isinstance(part, Element)]

    async def element(self, name: str) -> Element:
        (match,) = [element for element in await self.elements() if element.name == name]
        return match

    async def do(self, kind: Kind, name: str = "", **fields: Any) -> str | None:
        """Look, and act on the element of that name."""
        if name:
            fields["id"] = (await self.element(name)).id
        return await carry_out(self.tab, GuiAction(kind, **fields), PATIENCE_S)

    async def js(self, code: str) -> Any:
        """Asked of the page itself."""
        return await self.page.evaluate(code)

    async def answer(self, route: Route) -> None:
        url = route.request.url
        self.requests.append(f"{route.request.method} {url}")
        body = self.bodies.get(url.split("?")[0])
        if callable(body):
            body = body()
            if asyncio.iscoroutine(body):
                body = await body
        exists = body is not None
        await route.fulfill(
            status=200 if exists else 404,
            body=str(body) if exists else "not there",
            content_type="text/html; charset=utf-8",
        )


@asynccontextmanager
async def page_rig(browser: Browser, width: int = 800, height: int = 600) -> AsyncIterator[PageRig]:
    """A page of its own."""
    context = await browser.new_context(viewport={"width": width, "height": height})
    hint = await tell_listeners(context)
    page = await context.new_page()
    rig = PageRig(await Tab.open(page, hint), context)
    await context.route("**/*", rig.answer)
    page.on("dialog", lambda dialog: dialog.dismiss())
    try:
        yield rig
    finally:
        await context.close()
