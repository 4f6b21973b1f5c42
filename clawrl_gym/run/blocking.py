"""Coroutines for callers that are not asynchronous: scripts, and notebooks whose loop runs."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")
_LOOK_EVERY_S = 0.5


def run_blocking(main: Coroutine[object, object, T]) -> T:
    """The coroutine's result; blocks until it is there.

    Where a loop runs already (a notebook), the coroutine gets a thread and a loop of its own. An
    interrupt cancels it, waits until it has closed everything, and is raised again.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main)
    return _run_in_thread(main)


def _run_in_thread(main: Coroutine[object, object, T]) -> T:
    loop = asyncio.new_event_loop()
    task = loop.create_task(main)
    may_begin = threading.Event()  # an interrupt while it runs always raises here
    with ThreadPoolExecutor(1, thread_name_prefix="clawrl") as thread:
        try:
            running = thread.submit(_run_to_its_end, loop, task, may_begin)
            with _interrupts_raise():
                may_begin.set()
                while not running.done():  # in slices: a signal just before a wait does not end it
                    wait([running], timeout=_LOOK_EVERY_S)
                return running.result()
        except KeyboardInterrupt:
            with suppress(RuntimeError):  # it has ended in this moment
                loop.call_soon_threadsafe(task.cancel)
            raise
        finally:
            may_begin.set()


@contextmanager
def _interrupts_raise() -> Iterator[None]:
    """Ctrl-C raises here: the loop that runs in this thread would only note it, and never run."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run_to_its_end(
    loop: asyncio.AbstractEventLoop, task: asyncio.Task[T], may_begin: threading.Event
) -> T:
    may_begin.wait()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(task)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
