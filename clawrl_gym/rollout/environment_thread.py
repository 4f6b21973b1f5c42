"""One environment on a thread of its own: blocking code beside an event loop, and its failures.

Whoever wrote the environment, what it raises ends one episode; what comes back from it is checked
by `Progress`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

from clawrl_gym.config import EnvConfig
from clawrl_gym.core.errors import ConfigError, EnvError, boundary
from clawrl_gym.rollout.threads import Lane, OwnThread, SharedThreads

P = ParamSpec("P")
T = TypeVar("T")
_CLOSE_S = 30.0
_log = logging.getLogger(__name__)


class EnvironmentThread:
    """One environment, off the loop."""

    def __init__(
        self, config: EnvConfig, number: int, threads: SharedThreads | None = None
    ) -> None:
        """`threads`: for an environment that needs none of its own."""
        self._config = config
        self._name = f"env-{number}"
        self._threads = None if config.has_own_thread else threads
        self._lane = self._new_lane()
        self._env: Any = None
        self.filming = False
        """The next episode is filmed, if the environment can: it has `filming` and `film()`."""

    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._lane.submit(partial(_contained, partial(function, *args, **kwargs)))

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
        """Drop the environment after a failure; a call of its may still block its thread."""
        env, self._env = self._env, None
        old, self._lane = self._lane, self._new_lane()
        if env is not None:
            old.submit(env.close).add_done_callback(_ignored)
        old.end()

    async def close(self) -> None:
        """After a call that still runs, or without it when it takes long.

        An environment that fails in closing is a line in the log: its episodes have ended.
        """
        try:
            if self._env is not None:
                async with asyncio.timeout(_CLOSE_S):
                    await self.call(self._env.close)
        except Exception as error:  # noqa: BLE001 (the border to anybody's code)
            why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            _log.warning("an environment could not be closed: %s", why)
        finally:
            self._lane.end()

    def _new_lane(self) -> Lane:
        return OwnThread(self._name) if self._threads is None else self._threads.lane()


def _ignored(closing: asyncio.Future[None]) -> None:
    """An environment that was dropped may fail in closing, too."""
    if not closing.cancelled():
        closing.exception()


def _contained(call: Callable[[], T]) -> T:
    """What an environment raises to end a whole process ends its own episode alone."""
    try:
        return call()
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise EnvError(
            f"the environment raised {type(error).__name__}({error}), which ends processes: "
            "raise another error, or return terminated=True"
        ) from error
    except (StopIteration, asyncio.CancelledError) as error:  # they mean something to the loop
        raise EnvError(f"the environment raised {type(error).__name__}({error})") from error
