"""The browsers of this process: one thread, one driver, and a set of Chromiums for equal options.

Everything here but `process_browsers()` and what is said to be for other threads runs on the loop.
Browsers are started when contexts are asked for, and end some seconds after the last one, so that
an environment's next episode finds them; at exit in any case.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, TypeVar

from clawrl_gym.core.errors import ConfigError, EnvError
from clawrl_gym.core.installation import how_to_install
from clawrl_gym.envs.gui.browser import chromium
from clawrl_gym.envs.gui.browser.loop_thread import LoopThread
from clawrl_gym.envs.gui.browser.proxy import Proxy
from clawrl_gym.envs.gui.config import BrowserConfig

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright

T = TypeVar("T")
_LINGER_S = 20.0
_CLOSE_S = 10.0
_CHECK_S = 5.0


class SharedBrowser:
    """One Chromium and the contexts in it."""

    def __init__(self, browser: Browser, proxy: Proxy) -> None:
        self.browser = browser
        self.proxy = proxy
        self.live = 0
        self.opened = 0
        self.retired = False
        """A context could not be closed: it takes no new ones."""
        self._lost = False
        browser.on("disconnected", lambda _: proxy.close())

    @property
    def alive(self) -> bool:
        return self.browser.is_connected() and not self._lost

    async def check(self) -> None:
        """Check after a failure whether it is alive (a dead driver tells nobody)."""
        try:
            session = await asyncio.wait_for(self.browser.new_browser_cdp_session(), _CHECK_S)
            await asyncio.wait_for(session.detach(), _CHECK_S)
        except Exception:  # noqa: BLE001 (whatever it is: it does not answer)
            self._lost = True

    def has_room(self, options: BrowserConfig) -> bool:
        return (
            self.alive
            and not self.retired
            and self.live < options.contexts_per_browser
            and self.opened < options.max_contexts
        )

    async def close(self) -> None:
        self.proxy.close()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self.browser.close(), _CLOSE_S)


class BrowserPool:
    """Shared browsers with equal options."""

    def __init__(self, options: BrowserConfig, driver: Driver) -> None:
        self._options = options
        self._driver = driver
        self._browsers: list[SharedBrowser] = []
        self._starting = asyncio.Lock()

    @property
    def live(self) -> int:
        return sum(shared.live for shared in self._browsers)

    async def acquire(self) -> SharedBrowser:
        """A browser with room for one more context, counted as taken."""
        async with self._starting:
            self._browsers = [shared for shared in self._browsers if shared.alive or shared.live]
            shared = next((one for one in self._browsers if one.has_room(self._options)), None)
            if shared is None:
                shared = await self._start()
            shared.live += 1
            shared.opened += 1
            return shared

    async def release(self, shared: SharedBrowser) -> None:
        """The context is closed; a browser that is old enough goes with its last one."""
        shared.live -= 1
        old = shared.opened >= self._options.max_contexts
        if shared.live == 0 and (old or shared.retired or not shared.alive):
            if shared in self._browsers:
                self._browsers.remove(shared)
            await shared.close()

    async def close(self) -> None:
        browsers, self._browsers = self._browsers, []
        await asyncio.gather(*(shared.close() for shared in browsers))

    async def _start(self) -> SharedBrowser:
        try:
            started = await chromium.launch(await self._driver.get(), self._options)
        except ConfigError:
            raise
        except Exception as error:
            if not await self._driver.renew():
                raise _as_env_error(error) from error
            started = await chromium.launch(await self._driver.get(), self._options)
        proxy = Proxy(started.listener)
        await proxy.open()
        shared = SharedBrowser(started.browser, proxy)
        self._browsers.append(shared)
        return shared


class Driver:
    """Playwright's own process, which speaks with every browser of this one."""

    def __init__(self) -> None:
        self._playwright: Playwright | None = None
        self._starting = asyncio.Lock()

    async def get(self) -> Playwright:
        async with self._starting:
            if self._playwright is None:
                try:
                    from playwright.async_api import async_playwright
                except ImportError as error:
                    raise ConfigError(
                        f"playwright is not installed: {how_to_install('gui')}"
                    ) from error
                self._playwright = await async_playwright().start()
            return self._playwright

    async def renew(self) -> bool:
        """Whether it was dead, and is none now: the next `get` starts another."""
        if self._playwright is None or await self._answers(self._playwright):
            return False
        await self.close()
        return True

    async def close(self) -> None:
        playwright, self._playwright = self._playwright, None
        if playwright is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(playwright.stop(), _CLOSE_S)

    async def _answers(self, playwright: Playwright) -> bool:
        try:
            request = await asyncio.wait_for(playwright.request.new_context(), _CLOSE_S)
            await asyncio.wait_for(request.dispose(), _CLOSE_S)
        except Exception:  # noqa: BLE001 (whatever it is: it does not answer)
            return False
        return True


class ProcessBrowsers:
    """Browsers of this process."""

    def __init__(self, linger_s: float = _LINGER_S) -> None:
        self._linger_s = linger_s
        self._loop = LoopThread()
        self._driver = Driver()
        self._pools: dict[BrowserConfig, BrowserPool] = {}
        self._taking = 0
        self._end: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def ended(self) -> bool:
        """Closed, and every screen with it."""
        return self._loop.ended

    def run(self, work: Coroutine[None, None, T], timeout_s: float) -> T:
        """Run work from another thread."""
        return self._loop.run(work, timeout_s)

    @property
    def is_own(self) -> bool:
        """False in a forked child."""
        return self._loop.is_own

    def close(self) -> None:
        """End every browser and the thread. For other threads."""
        if self._loop.is_own:
            with contextlib.suppress(EnvError):
                self._loop.run(self._close_all(), 2 * _CLOSE_S)
            self._loop.close()

    async def acquire(self, options: BrowserConfig) -> SharedBrowser:
        if self._end is not None:
            self._end.cancel()
            self._end = None
        if options not in self._pools:
            self._pools[options] = BrowserPool(options, self._driver)
        self._taking += 1
        try:
            return await self._pools[options].acquire()
        finally:
            self._taking -= 1
            self._rest()

    async def release(self, options: BrowserConfig, shared: SharedBrowser) -> None:
        if options in self._pools:
            await self._pools[options].release(shared)
        self._rest()

    @property
    def _busy(self) -> bool:
        """A browser that starts has no context yet, and is waited for."""
        return self._taking > 0 or any(each.live for each in self._pools.values())

    def _rest(self) -> None:
        """Prepare to end once nobody is left, also after failed starts."""
        if self._end is None and not self._busy:
            loop = asyncio.get_running_loop()
            self._end = loop.call_later(self._linger_s, lambda: self.later(self._close_idle()))

    def later(self, work: Coroutine[None, None, None]) -> None:
        """Run work in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close_idle(self) -> None:
        self._end = None
        if not self._busy:
            await self._close_all()

    async def _close_all(self) -> None:
        pools, self._pools = list(self._pools.values()), {}
        driver, self._driver = self._driver, Driver()
        await asyncio.gather(*(each.close() for each in pools))
        await driver.close()


_lock = threading.Lock()
_process: ProcessBrowsers | None = None
_left_behind: list[ProcessBrowsers] = []
"""Browsers of the process that this one was forked from: kept, so that none is torn down here."""
_watching = False


def process_browsers() -> ProcessBrowsers:
    """The one of this process; a forked child makes its own."""
    global _process, _watching
    with _lock:
        if _process is None:
            _process = ProcessBrowsers()
            atexit.register(_process.close)
            if not _watching:
                os.register_at_fork(after_in_child=_forget)
                _watching = True
        return _process


def close_all() -> None:
    """End all browsers of this process now; the next screen starts new ones."""
    global _process
    with _lock:
        ended, _process = _process, None
    if ended is not None:
        atexit.unregister(ended.close)
        ended.close()


def _forget() -> None:
    global _lock, _process
    _lock = threading.Lock()
    if _process is not None:
        _left_behind.append(_process)
    _process = None


def _as_env_error(error: Exception) -> Exception:
    return error if isinstance(error, EnvError) else EnvError(f"chromium did not start: {error}")
