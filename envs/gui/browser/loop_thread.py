"""The one thread of this process that runs an event loop: Playwright's objects live on it alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import TypeVar

from clawrl_gym.core.errors import EnvError

T = TypeVar("T")
_END_S = 10.0


class LoopThread:
    """An event loop on a thread of its own; `run` may be called from every other thread."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._stopping = threading.Lock()
        """Taken by the first closer: a second stop would end the clean-up too soon."""
        self._ended = False
        """True once no work is accepted any more: it would be waited for in vain."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="browser-loop", daemon=True)
        self._thread.start()

    @property
    def is_own(self) -> bool:
        """False in a forked child: the thread stayed behind."""
        return self._pid == os.getpid()

    @property
    def ended(self) -> bool:
        return self._ended

    def run(self, work: Coroutine[None, None, T], timeout_s: float) -> T:
        """Wait for the coroutine's result. Raises EnvError when it takes longer: it is cancelled.

        The deadline is the last resort: what waits for a page has its own, shorter one.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise EnvError("got a blocking call on the browser's own thread, expected another one")
        if not self.is_own:
            work.close()
            raise EnvError("the browser belongs to the process that this one was forked from")
        with self._lock:
            if self._ended:
                work.close()
                raise EnvError("the browser's thread has ended")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        waited = threading.Event()
        future.add_done_callback(lambda _: waited.set())
        try:
            if not waited.wait(timeout_s):
                raise EnvError(f"the browser did not answer within {timeout_s:g} s")
            return future.result()
        except CancelledError as error:
            raise EnvError("the browser's thread has ended meanwhile") from error
        finally:
            future.cancel()

    def close(self) -> None:
        """End the thread; what still runs on the loop is cancelled."""
        if self._stopping.acquire(blocking=False):
            with contextlib.suppress(RuntimeError):  # it ended by itself
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_S)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            with self._lock:
                self._ended = True
            self._loop.run_until_complete(asyncio.sleep(0))  # what came last becomes a task
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            with contextlib.suppress(RuntimeError):  # the interpreter may be ending
                self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
