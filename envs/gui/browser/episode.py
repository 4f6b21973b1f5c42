"""One episode in the browser, on the loop: what `Screen` shows to the environment's thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from clawrl_gym.core.errors import EnvError, TaskError
from clawrl_gym.envs.gui.action import GuiAction
from clawrl_gym.envs.gui.browser.context import open_context
from clawrl_gym.envs.gui.browser.navigation import Navigation
from clawrl_gym.envs.gui.browser.network import Allowed, Network
from clawrl_gym.envs.gui.browser.pool import ProcessBrowsers, SharedBrowser
from clawrl_gym.envs.gui.browser.tabs import MOST_TABS, Tabs
from clawrl_gym.envs.gui.config import GuiEnvConfig
from clawrl_gym.envs.gui.observation import View
from clawrl_gym.envs.gui.page.tab import DocumentLeft, PageGone, PageHangs, Tab, tell_listeners
from clawrl_gym.envs.gui.task import FinalState, GuiTask, PageFacts

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext

_CLOSE_S = 10.0
_CRASH_S = 0.1
"""Seconds that a browser may need to report why it lost a page."""
_TITLE_S = 1.0
_QUALITY = 70


class BrowserEpisode:
    """A fresh context with the task's pages in it."""

    def __init__(self, process: ProcessBrowsers, task: GuiTask, options: GuiEnvConfig) -> None:
        self._process = process
        self._task = task
        self._options = options
        sites = {host: make() for host, make in task.sites.items()}
        self.network = Network(sites, tuple(Allowed.read(one) for one in options.allow))
        self.viewport = task.viewport or (options.width, options.height)
        self._browser: SharedBrowser | None = None
        self._proxy = ""
        self._context: BrowserContext | None = None
        self._closed = False
        self._waits: set[asyncio.Timeout] = set()
        """Waits that a crash ends: each has no limit until then."""
        self.page_instruction = ""
        """Return value of the start script, if it is text."""
        self.left_document = False
        self._result: object = None
        self._notices: list[str] = []

    # -- beginning and end ----------------------------------------------------------------------
    async def open(self) -> None:
        """Raises EnvError or ConfigError; nothing is left open then."""
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise

    async def _open(self) -> None:
        self._browser = await self._process.acquire(self._options.browser)
        async with self._guarded("opening a page"):
            self._proxy = await self._browser.proxy.admit(self.network)
            self._context = await open_context(
                self._browser.browser, self._proxy, self._task, self._options
            )
            hint = await tell_listeners(self._context)
            self._tabs = Tabs(self._context, hint, self._end_waits)
            self._navigation = Navigation(self._tabs, self.network, self._options.page_timeout_s)
            await self._tabs.open()
            await self._load(self._task.start)
            if self._task.start_script:
                text = await self._main_world(self._tabs.current, self._task.start_script)
                self.page_instruction = text if isinstance(text, str) else ""
            for url in self._task.tabs:
                await self._tabs.open()
                await self._load(url)

    async def _load(self, url: str) -> None:
        if url == "about:blank":
            return
        failed = await self._navigation.go(url)
        if failed is not None:
            raise TaskError(f"the task's page {url!r} does not load: {failed}")

    async def close(self) -> None:
        """Idempotent. The browser's part of it is not waited for."""
        if self._closed:
            return
        self._closed = True
        if self._browser is not None:
            self._process.later(self._leave(self._browser))

    async def _leave(self, browser: SharedBrowser) -> None:
        if self._proxy:
            browser.proxy.dismiss(self._proxy)
        if self._context is None:
            browser.retired = True  # one may have been made, and nobody can close it
        else:
            try:
                await asyncio.wait_for(self._context.close(), _CLOSE_S)
            except Exception:  # noqa: BLE001 (the context does not end: its browser will)
                browser.retired = True
        await self._process.release(self._options.browser, browser)

    # -- what the model does --------------------------------------------------------------------
    async def act(self, action: GuiAction) -> str | None:
        """None, or why it failed, in words."""
        async with self._guarded(f"action {action.kind!r}"):
            await self._tabs.ready()
            before, documents = self._tabs.current, self._tabs.current.documents
            try:
                failed = await self._carry_out(action)
            except PageHangs:
                failed = await self._stop(self._options.action_timeout_s)
            except DocumentLeft:
                failed = None
            except PageGone:
                await self._lost(before)
                failed = None
            await self._tabs.ready()
            tab = self._tabs.current
            self.left_document = tab is not before or tab.documents != documents
            return failed

    async def _carry_out(self, action: GuiAction) -> str | None:
        from clawrl_gym.envs.gui.page.act import carry_out

        if self._navigation.knows(action.kind):
            return await self._navigation.carry_out(action)
        return await carry_out(self._tabs.current, action, self._options.action_timeout_s)

    async def _stop(self, waited_s: float) -> str:
        """The page hangs: end its script, and the page itself where that does not help."""
        reason = f"the page did not answer within {waited_s:g} s"
        try:
            await self._tabs.current.stop_script()
            await self._tabs.current.call("() => 1", timeout_s=2.0)
        except (PageHangs, DocumentLeft, EnvError) as error:
            if isinstance(error, PageGone):
                raise
            await self._tabs.replace()
            return f"{reason} and was closed"
        return f"{reason}: its script was stopped"

    async def _lost(self, tab: Tab) -> None:
        """A page that was closed by its own script is no failure of the browser."""
        reason = await self._why_dead()
        if reason is not None or not tab.page.is_closed():
            raise EnvError(reason or "the page was lost")

    # -- what is seen ---------------------------------------------------------------------------
    async def look(self) -> View:
        async with self._guarded("looking at the page"):
            await self._tabs.ready()
            for last in (False, True):
                tab = self._tabs.current
                try:
                    return await self._look()
                except PageHangs:
                    if last:
                        await self._tabs.replace()
                        self._notices.append("the page did not answer and was closed")
                    else:
                        self._notices.append(await self._stop(self._options.action_timeout_s))
                except PageGone:
                    await self._lost(tab)
                    await self._tabs.ready()
                except DocumentLeft:
                    self._notices.append("the page goes from document to document")
            return await self._look()

    async def _look(self) -> View:
        from clawrl_gym.envs.gui.page.snapshot import read_page

        url, title, lines = await read_page(self._tabs.current, self._options.action_timeout_s)
        if len(self._tabs) == 1:
            return View(url, title, lines)
        titles = await asyncio.gather(*(_title(tab) for tab in self._tabs))
        return View(url, title, lines, tuple(titles), self._tabs.index + 1)

    async def shot(self) -> bytes:
        from clawrl_gym.envs.gui.page.shot import shot

        async with self._guarded("taking a screenshot"):
            await self._tabs.ready()
            try:
                return await shot(self._tabs.current, _QUALITY)
            except PageHangs:
                self._notices.append(await self._stop(self._options.action_timeout_s))
                return await shot(self._tabs.current, _QUALITY)

    async def notices(self) -> list[str]:
        """Unrequested events since the last call."""
        own, self._notices = self._notices, []
        return own + self._tabs.notices() + self.network.refusals()

    # -- what is graded -------------------------------------------------------------------------
    async def page_result(self) -> object:
        """The first value that is not null stays."""
        first = self._tabs.first
        if self._result is not None or not self._task.result_script or first is None:
            return self._result
        async with self._guarded("asking for the page's result"):
            with contextlib.suppress(PageHangs, DocumentLeft):
                self._result = await self._main_world(first, self._task.result_script)
        return self._result

    async def _pages(self) -> tuple[PageFacts, ...]:
        """Every tab as it is now; one that does not answer has no text."""
        async with self._guarded("reading the pages"):
            await self._tabs.ready()
            return tuple([await self._facts(tab) for tab in self._tabs])

    async def final_state(self, answer: str | None, gave_up: bool, needs_pages: bool) -> FinalState:
        """Final state, for the grade."""
        result = await self.page_result()
        if self._task.relaunch is not None:
            await self._relaunch(self._task.relaunch)
        pages = await self._pages() if needs_pages else ()
        active = self._tabs.index
        cookies = await self._cookie_domains() if needs_pages else ()
        end_pages = {url: await self._end_page(url) for url in self._task.end_pages}
        states = await self.network.states()
        return FinalState(states, answer, gave_up, pages, active, result, end_pages, cookies)

    async def _relaunch(self, urls: tuple[str, ...]) -> None:
        """Restart: as if the browser had been closed and opened again."""
        async with self._guarded("starting the browser again"):
            await self._tabs.ready()
            for _ in range(len(self._tabs) - 1):
                await self._tabs.close(0)
            await self._tabs.replace()
            context = self._opened_context()
            for cookie in await context.cookies():
                if cookie["expires"] <= 0:  # it lasts as long as a session
                    name, domain, path = cookie["name"], cookie["domain"], cookie["path"]
                    await context.clear_cookies(name=name, domain=domain, path=path)
            for number, url in enumerate(urls):
                if number:
                    await self._tabs.open()
                await self._load(url)

    async def _cookie_domains(self) -> tuple[str, ...]:
        async with self._guarded("reading the cookies"):
            return tuple(one["domain"] for one in await self._opened_context().cookies())

    async def _end_page(self, url: str) -> PageFacts:
        """A page as it is now, in a tab that is opened for it. Raises EnvError."""
        async with self._guarded("reading a page for the grade"):
            if len(self._tabs) == MOST_TABS:
                await self._tabs.close(0)
            tab = await self._tabs.open()
            failed = await self._navigation.go(url)
            if failed is not None:
                raise EnvError(f"{url} does not load: {failed}")
            return await self._facts(tab)

    def _opened_context(self) -> BrowserContext:
        if self._context is None:
            raise EnvError("got a screen without a context, expected an open one")
        return self._context

    async def _facts(self, tab: Tab) -> PageFacts:
        timeout_s = self._options.action_timeout_s
        try:
            url, title, html = await tab.call(_PAGE, timeout_s=timeout_s)
        except (PageHangs, DocumentLeft, EnvError):
            return PageFacts(tab.page.url, "", "")
        facts = None
        if self._task.facts_script:
            with contextlib.suppress(PageHangs, DocumentLeft, EnvError):
                facts = await tab.call(f"() => ({self._task.facts_script})", timeout_s=timeout_s)
        return PageFacts(url, title, html, facts)

    async def _main_world(self, tab: Tab, expression: str) -> object:
        """The value of an expression, or of its promise, among the page's own scripts."""
        parameters = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        reply = await tab.send("Runtime.evaluate", parameters, self._options.page_timeout_s)
        if failure := reply.get("exceptionDetails"):
            thrown = failure.get("exception", {}).get("description") or failure.get("text", "")
            raise TaskError(f"a script of task {self._task.id!r} failed: {thrown[:500]}")
        return reply["result"].get("value")

    # -- what breaks ----------------------------------------------------------------------------
    @contextlib.asynccontextmanager
    async def _guarded(self, doing: str) -> AsyncIterator[None]:
        """Turn every error of the block into an EnvError that says whose fault it is."""
        from playwright.async_api import Error

        if self._closed:
            raise EnvError(f"{doing}: got a screen that is closed, expected an open one")
        if (dead := self._dead()) is not None:
            raise EnvError(f"{doing}: {dead}")
        try:
            async with asyncio.timeout(None) as wait:
                self._waits.add(wait)
                try:
                    yield
                finally:
                    self._waits.discard(wait)
        except (Error, EnvError, PageHangs, DocumentLeft, OSError) as error:
            if isinstance(error, EnvError) and not isinstance(error, PageGone):
                raise
            reason = await self._why_dead() or str(error).partition("\n")[0]
            raise EnvError(f"{doing}: {reason}") from error

    def _end_waits(self) -> None:
        while self._waits:
            self._waits.pop().reschedule(0.0)

    async def _why_dead(self) -> str | None:
        await asyncio.sleep(_CRASH_S)
        if self._dead() is None and self._browser is not None:
            await self._browser.check()
        return self._dead()

    def _dead(self) -> str | None:
        if self._browser is not None and not self._browser.alive:
            return "the browser has died"
        if self._context is not None and self._tabs.crashed:
            return "the page's renderer has crashed"
        return None


_PAGE = "() => [location.href, document.title, document.documentElement?.outerHTML ?? '']"


async def _title(tab: Tab) -> str:
    try:
        return str(await tab.call("() => document.title", timeout_s=_TITLE_S)) or tab.page.url
    except (PageHangs, DocumentLeft, EnvError):
        return tab.page.url
