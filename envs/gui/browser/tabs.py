"""The open tabs of one context, and what they do unasked: windows, dialogs, downloads, crashes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING

from clawrl_gym.envs.gui.page.tab import PageGone, Tab

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Dialog, Download, Page

MOST_TABS = 8
_OPEN_S = 5.0
_OWN_OPEN_S = 60.0
"""Seconds for opening a blank tab, which waits for nothing but a busy machine."""
_CLOSE_S = 5.0
_REQUESTED_WINDOW_S = 5.0
"""Seconds in which a window that a page asks for may appear; it may come to nothing."""
_MOST_NOTICES = 5
"""Most lines of each kind between two looks; the rest is counted."""
_MESSAGE_CHARACTERS = 200


class Tabs:
    """Tabs in order of opening. Lives on the loop."""

    def __init__(
        self, context: BrowserContext, listener_hint: str, on_crash: Callable[[], None]
    ) -> None:
        """`listener_hint`: what `tell_listeners` returned for the context. `on_crash`: the renderer
        of one of them has ended; its page will never answer."""
        self._context = context
        self._listener_hint = listener_hint
        self._on_crash = on_crash
        self._tabs: list[Tab] = []
        self._current = 0
        self._making = 0
        self._requested_windows = 0
        self._window_appeared = asyncio.Event()
        self._opening: set[asyncio.Task[None]] = set()
        self._answering: set[asyncio.Task[None]] = set()
        self._notices: dict[str, list[str]] = {}
        self.crashed = False
        """The renderer of one of them has ended."""
        self.first: Tab | None = None
        """The one that the task began in, while it is open."""
        context.on("page", self._appeared)
        context.on("dialog", lambda dialog: self._do(self._answer(dialog), self._answering))

    def __len__(self) -> int:
        return len(self._tabs)

    def __iter__(self) -> Iterator[Tab]:
        return iter(list(self._tabs))

    @property
    def current(self) -> Tab:
        if not self._tabs:
            raise PageGone("every tab was closed")
        return self._tabs[self._current]

    @property
    def index(self) -> int:
        return self._current

    def see(self, index: int) -> None:
        self._current = index

    async def open(self) -> Tab:
        """A new blank tab; it is seen."""
        self._making += 1
        try:
            page = await self._context.new_page()
            await self.ready()
        finally:
            self._making -= 1
        tab = next((tab for tab in self._tabs if tab.page is page), None)
        if tab is None:
            raise TimeoutError("a new tab does not answer")
        self._current = self._tabs.index(tab)
        if self.first is None:
            self.first = tab
        return tab

    async def close(self, index: int) -> None:
        """Close a tab without asking the page. The last one is never closed."""
        tab = self._tabs[index]
        self._left(tab)
        with contextlib.suppress(Exception):
            await asyncio.wait_for(tab.page.close(), _CLOSE_S)

    async def ready(self) -> None:
        """New windows are taken up, and there is a tab."""
        await self._windows_appear()
        if self._opening:
            await asyncio.wait(set(self._opening), timeout=self._patience_s + _CLOSE_S)
        if not self._tabs and not self._making:
            self._note("tab", "the last tab was closed: a blank one was opened")
            self.first = None
            await self.open()
            self.first = None

    async def _windows_appear(self) -> None:
        """The driver tells of a window later than the page that asks for it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REQUESTED_WINDOW_S):
                while self._requested_windows > 0:
                    self._window_appeared.clear()
                    await self._window_appeared.wait()
        self._requested_windows = 0

    def _window_requested(self, _: object) -> None:
        self._requested_windows += 1

    async def replace(self) -> None:
        """Replace a tab that cannot be saved by a blank one."""
        if len(self._tabs) == MOST_TABS:
            await self.close(self._current)
            await self.open()
            return
        old = self.current
        await self.open()
        await self.close(self._tabs.index(old))

    @property
    def _patience_s(self) -> float:
        return _OWN_OPEN_S if self._making else _OPEN_S

    def notices(self) -> list[str]:
        """Events since the last call, in words."""
        notices, self._notices = self._notices, {}
        lines = []
        for kind, texts in notices.items():
            lines += texts[:_MOST_NOTICES]
            if len(texts) > _MOST_NOTICES:
                lines.append(f"{kind}: {len(texts) - _MOST_NOTICES} more of these")
        return lines

    def _note(self, kind: str, text: str) -> None:
        texts = self._notices.setdefault(kind, [])
        texts.append(text if len(texts) < _MOST_NOTICES else "")

    def _do(self, work: Coroutine[None, None, None], tasks: set[asyncio.Task[None]]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def _appeared(self, page: Page) -> None:
        page.on("crash", self._crash)
        page.on("download", self._download)
        if not self._making:
            self._requested_windows -= 1
            self._window_appeared.set()
        if len(self._tabs) + len(self._opening) >= MOST_TABS:
            self._note("window", f"a new window was refused: {MOST_TABS} tabs are open")
            self._do(self._refuse(page), self._answering)
        else:
            self._do(self._take_up(page), self._opening)

    async def _take_up(self, page: Page) -> None:
        try:
            tab = await Tab.open(page, self._listener_hint, self._patience_s)
        except Exception:  # noqa: BLE001 (it does not answer, or is closed already)
            with contextlib.suppress(Exception):
                await asyncio.wait_for(page.close(), _CLOSE_S)
            return
        tab.cdp.on("Page.windowOpen", self._window_requested)
        self._tabs.append(tab)
        if self.first is not None:
            self._current = len(self._tabs) - 1
        page.on("close", lambda _: self._left(tab))
        if page.is_closed():
            self._left(tab)

    async def _refuse(self, page: Page) -> None:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(page.close(), _CLOSE_S)

    def _left(self, tab: Tab) -> None:
        if tab not in self._tabs:
            return
        index = self._tabs.index(tab)
        del self._tabs[index]
        if self._current > index or self._current == len(self._tabs):
            self._current = max(0, self._current - 1)
        if tab is self.first:
            self.first = None

    def _crash(self, _: Page) -> None:
        self.crashed = True
        self._on_crash()

    def _download(self, download: Download) -> None:
        name = download.suggested_filename[:_MESSAGE_CHARACTERS]
        self._note("download", f"a download was refused: {name!r}")

    async def _answer(self, dialog: Dialog) -> None:
        """Alerts are closed, questions are answered with no, pages may be left."""
        message = dialog.message[:_MESSAGE_CHARACTERS]
        kind = dialog.type
        outcome = {"alert": "closed", "beforeunload": "left the page"}.get(kind, "dismissed")
        self._note("dialog", f"{kind} dialog {message!r}: {outcome}")
        with contextlib.suppress(Exception):
            await (dialog.accept() if kind == "beforeunload" else dialog.dismiss())
