"""The threads that environments' blocking calls run on.

`SharedThreads`: an environment has one only while a call of its runs, so one that waits for the
policy costs nothing but memory. `OwnThread`: all calls of an environment come from one thread, as
code may need that keeps things by thread. Either way the calls of one environment go one after
another, and no end of the process waits for one that never comes back.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
_LOOK_S = 0.01
"""Seconds that calls may wait for a thread before more are started."""
_BUSY = 0.8
"""Share of one core; a process that takes as much is not faster with more threads."""
_BUSY_LOOK_S = 0.25
"""Seconds without a begun call after which running ones hold all threads, busy or not."""


class Lane(Protocol):
    """A queue for the calls of one environment."""

    def submit(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run it after the calls before it. Cancelled, it is left out unless it runs already."""
        ...

    def end(self) -> None:
        """End the lane: nothing more comes; waits for nothing."""
        ...


class _Call:
    """One call, and who waits for it on the loop."""

    def __init__(self, function: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self._function = function
        self.future = future
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> bool:
        """Run the call on a thread; False when nobody waits for it."""
        if self.future.cancelled():
            return False
        try:
            self._result = self._function()
        except BaseException as error:  # noqa: BLE001 (whoever waits for it decides)
            self._error = error
        return True

    def settle(self) -> None:
        """Resolve the future, on the loop."""
        if self.future.done():
            return
        if self._error is None:
            self.future.set_result(self._result)
        else:
            self.future.set_exception(self._error)


class _Returns:
    """Calls that have ended, on their way to the loop: one waking for all that are ready."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended: deque[_Call] = deque()
        self._waking = False

    def put(self, call: _Call) -> None:
        """Return a call from any thread."""
        self._ended.append(call)
        if not self._waking:
            self._waking = True
            with suppress(RuntimeError):  # the loop has ended, and nobody waits
                self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        self._waking = False  # first: what ends from now on wakes the loop again
        while self._ended:
            self._ended.popleft().settle()


class OwnThread:
    """A lane with a thread of its own, which starts with the first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._returns: _Returns | None = None

    def submit(self, call: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._returns is None:
            self._returns = _Returns()
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        self._calls.put(_Call(call, future))
        return future

    def end(self) -> None:
        self._calls.put(None)

    def _work(self) -> None:
        assert self._returns is not None
        while (call := self._calls.get()) is not None:
            if call.run():
                self._returns.put(call)
            del call  # an idle thread keeps no environment alive


class SharedThreads:
    """As many threads as there are blocking calls at a time; they stay until `end`.

    More are started when calls have waited for one, unless it is the CPU that they wait for.
    """

    def __init__(self) -> None:
        self._ready: SimpleQueue[_SharedLane | None] = SimpleQueue()
        self._returns: _Returns | None = None
        self._few = (os.cpu_count() or 1) + 2
        self._look: asyncio.TimerHandle | None = None
        self._last = _Look(0, 0, 0.0, 0.0)
        self.lock = threading.Lock()
        """Lock of the lanes and of the three counts."""
        self._submitted = 0
        self._begun = 0
        self._ended = 0
        self.count = 0
        """Threads."""

    def lane(self) -> Lane:
        """For one environment."""
        return _SharedLane(self)

    def end(self) -> None:
        """They end after their calls."""
        if self._look is not None:
            self._look.cancel()
        for _ in range(self.count):
            self._ready.put(None)

    def put(self, lane: _SharedLane) -> None:
        """A lane has a call to run. From the loop."""
        self._queue(lane)
        if self.count < self._few:
            self._start(1)
        elif self._look is None:
            self._look_in(_LOOK_S)

    def _queue(self, lane: _SharedLane) -> None:
        with self.lock:
            self._submitted += 1
        self._ready.put(lane)

    def _start(self, count: int) -> None:
        self._returns = self._returns or _Returns()
        for _ in range(count):
            self.count += 1
            threading.Thread(
                target=self._work, args=(self._returns,), name=f"env-{self.count}", daemon=True
            ).start()

    def _look_in(self, pause_s: float) -> None:
        self._last = _Look(self._submitted, self._begun, time.monotonic(), time.process_time())
        self._look = asyncio.get_running_loop().call_later(pause_s, self._look_again)

    def _look_again(self) -> None:
        last, self._look = self._last, None
        wall_s = time.monotonic() - last.time_s
        is_busy = time.process_time() - last.cpu_s > _BUSY * wall_s
        if self._begun < last.submitted:
            if not is_busy:
                self._start(min(self.count, self._lacking()))
            elif self._begun == last.begun and wall_s >= _BUSY_LOOK_S:
                self._start(min(self._few, self._lacking()))  # those that run may never end
        if self._begun < self._submitted:
            self._look_in(_BUSY_LOOK_S if is_busy else _LOOK_S)

    def _lacking(self) -> int:
        """Calls that wait and have no idle thread: on a machine whose cores are taken by others,
        threads that are there wait for a core, and more of them would only wait beside them."""
        with self.lock:
            idle = self.count - (self._begun - self._ended)
            return max(0, self._submitted - self._begun - idle)

    def _work(self, returns: _Returns) -> None:
        while (lane := self._ready.get()) is not None:
            with self.lock:
                self._begun += 1
                call = lane.calls.popleft()
            if call.run():
                returns.put(call)
            with self.lock:
                self._ended += 1
                goes_on = lane.is_ready = bool(lane.calls)
            if goes_on:
                self._queue(lane)
            del lane, call  # an idle thread keeps no environment alive


@dataclass(frozen=True, slots=True)
class _Look:
    """The counts at one time."""

    submitted: int
    begun: int
    time_s: float
    cpu_s: float
    """CPU seconds of the process."""


class _SharedLane:
    """The calls of one environment; it is in the threads' queue while it has some."""

    def __init__(self, threads: SharedThreads) -> None:
        self._threads = threads
        self.calls: deque[_Call] = deque()
        self.is_ready = False
        """True while it is in the queue, or a call of its runs."""

    def submit(self, call: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._threads.lock:
            self.calls.append(_Call(call, future))
            was_ready, self.is_ready = self.is_ready, True
        if not was_ready:
            self._threads.put(self)
        return future

    def end(self) -> None:
        """End after its calls; a thread that one of them holds for ever is lost."""
