"""One environment on a thread of its own: blocking code beside an event loop, and its failures.

Whoever wrote the environment, what it raises ends one episode; what comes back from it is checked
by `Progress`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from clawrl_gym.config import EnvConfig
from clawrl_gym.core.errors import ConfigError, EnvError, boundary

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThread(Executor):
    """Calls one after another on a thread that no end of the process waits for: an action may never
    come back. It starts with the first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 (whoever waits for it decides)
                future.set_exception(error)

        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._calls.put(call)
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """End it after the calls that it has; waits for nothing, whatever is asked for."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


class EnvironmentThread:
    """One environment on one thread."""

    def __init__(self, config: EnvConfig, number: int) -> None:
        self._config = config
        self._thread = DaemonThread(f"env-{number}")
        self._env: Any = None
        self.filming = False
        """The next episode is filmed, if the environment can: it has `filming` and `film()`."""

    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        contained = partial(_contained, partial(function, *args, **kwargs))
        return await loop.run_in_executor(self._thread, contained)

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> object:
        if self._env is None:
            with boundary(EnvError, "making the environment"):
                try:
                    self._env = self._config.make()
                except ConfigError as error:
                    raise EnvError(str(error)) from error
        if hasattr(self._env.unwrapped, "filming"):
            self._env.unwrapped.filming = self.filming
        return self._env.reset(seed=seed, options=options)

    def step(self, action: str) -> object:
        return self._env.step(action)

    def finish(self) -> object:
        """The environment's own `finish()`, if it has one: most reward every step by itself."""
        finish = getattr(self._env.unwrapped, "finish", None)
        return 0.0 if finish is None else finish()

    @property
    def report(self) -> object:
        """Of the environment's checks, if it has a `report`."""
        return getattr(self._env.unwrapped, "report", None)

    def film(self) -> bytes | None:
        """The episode as a JPEG, if the environment filmed it."""
        film = None if self._env is None else getattr(self._env.unwrapped, "film", None)
        with boundary(EnvError, "film"):
            jpeg = film() if callable(film) else None
        if jpeg is not None and not isinstance(jpeg, bytes):
            raise EnvError(f"got a film of type {type(jpeg).__name__}, expected bytes or None")
        return jpeg

    def discard(self) -> None:
        """Drop the environment after a failure; its thread may still be inside a blocking call."""
        env, self._env = self._env, None
        old, self._thread = self._thread, DaemonThread("env-again")
        if env is not None:
            old.submit(env.close)
        old.shutdown()

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
        self._thread.shutdown()


def _contained(call: Callable[[], T]) -> T:
    """What an environment raises to end a whole process ends its own episode alone."""
    try:
        return call()
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise EnvError(
            f"the environment raised {type(error).__name__}({error}), which ends processes: "
            "raise another error, or return terminated=True"
        ) from error
