"""The model's actions on the browser itself: addresses, history, tabs, waiting."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from clawrl_gym.core.errors import EnvError
from clawrl_gym.envs.gui.action import GuiAction, Kind
from clawrl_gym.envs.gui.browser.network import Network
from clawrl_gym.envs.gui.browser.tabs import MOST_TABS, Tabs

BLANK = "about:blank"
_MOST_WAIT_S = 10.0
_PORTS = {"http": 80, "https": 443}


class Navigation:
    """Each action answers None, or why it failed, in words."""

    def __init__(self, tabs: Tabs, network: Network, timeout_s: float) -> None:
        self._tabs = tabs
        self._network = network
        self._timeout_s = timeout_s
        self._handlers: dict[Kind, Callable[[GuiAction], Awaitable[str | None]]] = {
            "goto": lambda action: self.go(action.text),
            "back": lambda action: self._step(-1),
            "forward": lambda action: self._step(1),
            "reload": lambda action: self._reload(),
            "new_tab": self._new_tab,
            "switch_tab": self._switch_tab,
            "close_tab": self._close_tab,
            "wait": self._wait,
            "screenshot": self._nothing,
        }

    def knows(self, kind: Kind) -> bool:
        return kind in self._handlers

    async def carry_out(self, action: GuiAction) -> str | None:
        return await self._handlers[action.kind](action)

    async def go(self, url: str) -> str | None:
        """Load an address in the tab that is seen."""
        wrong = self._wrong(url)
        if wrong is not None:
            return wrong
        page = self._tabs.current.page
        return await self._loaded(page.goto(url, timeout=self._timeout_s * 1e3))

    def _wrong(self, url: str) -> str | None:
        if url == BLANK:
            return None
        try:
            parts = urlsplit(url)
            host, port = (parts.hostname or "").lower(), parts.port or _PORTS.get(parts.scheme, 0)
        except ValueError:
            host, port = "", 0
        if not host or parts.scheme not in _PORTS:
            return f"{url[:200]!r} is no address: expected http://HOST/PATH"
        if not self._network.reaches(host, port):
            return f"{url[:200]!r} is outside of this task"
        return None

    async def _loaded(self, loading: Awaitable[object]) -> str | None:
        """Wait for a page; one that keeps loading is shown as far as it is."""
        from playwright.async_api import Error, TimeoutError

        tab = self._tabs.current
        try:
            await loading
        except TimeoutError:
            # The page may be on its way into another process, where nothing can be stopped.
            with contextlib.suppress(EnvError):
                await tab.send("Page.stopLoading", {}, self._timeout_s)
            await tab.call(
                "() => 1", timeout_s=self._timeout_s
            )  # PageHangs when it does not answer
            return f"the page did not finish loading within {self._timeout_s:g} s: it was stopped"
        except Error as error:
            reason = str(error).partition("\n")[0]
            if tab.page.is_closed() or "crash" in reason:
                raise
            if "Download is starting" in reason or "ERR_ABORTED" in reason:
                return "nothing was loaded: the address gives no page"
            return f"the page cannot be loaded: {reason.rpartition('net::')[2][:200]}"
        return None

    async def _step(self, step: int) -> str | None:
        tab = self._tabs.current
        history = await tab.send("Page.getNavigationHistory", {}, self._timeout_s)
        index = history["currentIndex"] + step
        entries = history["entries"]
        first = 1 if entries and entries[0]["url"] == BLANK and len(entries) > 1 else 0
        if not first <= index < len(entries):
            return f"there is no page {'before' if step < 0 else 'after'} this one"
        move = tab.page.go_back if step < 0 else tab.page.go_forward
        return await self._loaded(move(timeout=self._timeout_s * 1e3))

    async def _reload(self) -> str | None:
        return await self._loaded(self._tabs.current.page.reload(timeout=self._timeout_s * 1e3))

    async def _new_tab(self, action: GuiAction) -> str | None:
        if len(self._tabs) >= MOST_TABS:
            return f"{MOST_TABS} tabs are open already, close one first"
        if action.text and (wrong := self._wrong(action.text)) is not None:
            return wrong
        await self._tabs.open()
        return await self.go(action.text) if action.text else None

    async def _switch_tab(self, action: GuiAction) -> str | None:
        wrong = self._no_tab(action)
        if wrong is None:
            self._tabs.see((action.tab or 1) - 1)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._tabs.current.page.bring_to_front(), self._timeout_s)
        return wrong

    async def _close_tab(self, action: GuiAction) -> str | None:
        wrong = None if action.tab is None else self._no_tab(action)
        if wrong is not None:
            return wrong
        if len(self._tabs) == 1:
            return "this is the only tab: it cannot be closed"
        await self._tabs.close(self._tabs.index if action.tab is None else action.tab - 1)
        return None

    def _no_tab(self, action: GuiAction) -> str | None:
        if action.tab is not None and 1 <= action.tab <= len(self._tabs):
            return None
        return f"there is no tab {action.tab}: expected 1 to {len(self._tabs)}"

    async def _wait(self, action: GuiAction) -> str | None:
        await asyncio.sleep(min(max(action.seconds, 0.0), _MOST_WAIT_S))
        return None

    async def _nothing(self, action: GuiAction) -> str | None:
        return None
