"""One environment on a thread of its own: blocking code beside an event loop, and its failures.

Whoever wrote the environment, what it raises ends one episode; what comes back from it is checked
by `Progress`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ParamSpec, TypeVar

from clawrl_gym.config import EnvConfig
from clawrl_gym.core.errors import ConfigError, EnvError, boundary
from clawrl_gym.envs.sandbox.interface import Workplace
from clawrl_gym.rollout.episodes.threads import Lane, OwnThread, SharedThreads

P = ParamSpec("P")
T = TypeVar("T")
_CLOSE_S = 30.0
_log = logging.getLogger(__name__)


class EnvironmentThread:
    """One environment at a time, off the loop; after a failure another one takes its place.

    `reset`, `step` and `finish` are those of the environment that has the place when they are
    asked for: a call that comes to an end late meets its own.
    """

    def __init__(
        self, config: EnvConfig, number: int, threads: SharedThreads | None = None
    ) -> None:
        """`threads`: for an environment that needs none of its own."""
        self._config = config
        self._name = f"env-{number}"
        self._threads = None if config.has_own_thread else threads
        self._tenant = self._new_tenant()

    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._tenant.submit(partial(function, *args, **kwargs))

    @property
    def filming(self) -> bool:
        """The next episode is filmed, if the environment can: it has `filming` and `film()`."""
        return self._tenant.filming

    @filming.setter
    def filming(self, filming: bool) -> None:
        self._tenant.filming = filming

    @property
    def agent_mounts(self) -> Mapping[str, str]:
        """Folders of an agent that works inside the sandboxes of the next episodes."""
        return self._tenant.agent_mounts

    @agent_mounts.setter
    def agent_mounts(self, mounts: Mapping[str, str]) -> None:
        self._tenant.agent_mounts = mounts

    @property
    def workplace(self) -> Callable[[], Workplace]:
        """The sandbox of the current episode. Raises EnvError where there is none."""
        return self._tenant.workplace

    @property
    def reset(self) -> Callable[..., object]:
        """Makes the environment first, where there is none."""
        return self._tenant.reset

    @property
    def step(self) -> Callable[[str], object]:
        return self._tenant.step

    @property
    def finish(self) -> Callable[[], object]:
        """The environment's own `finish()`, if it has one: most reward every step by itself."""
        return self._tenant.finish

    @property
    def grades(self) -> bool:
        """Whether the environment has a `finish()` of its own."""
        return self._tenant.grades

    @property
    def agent_fault(self) -> object:
        """Whether the agent has spoilt the episode, if the environment says so."""
        return self._tenant.attribute("agent_fault", False)

    @property
    def reward_range(self) -> object:
        """The lowest and highest reward of an episode, if the environment declares it."""
        return self._tenant.attribute("reward_range", None)

    @property
    def report(self) -> object:
        """Report of the environment's checks, if it has a `report`."""
        return self._tenant.attribute("report", None)

    @property
    def waited_s(self) -> object:
        """Seconds that its processes waited for a CPU, if it has a `waited_s`."""
        return self._tenant.attribute("waited_s", 0.0)

    @property
    def film(self) -> Callable[[], bytes | None]:
        """The episode as a JPEG, if the environment filmed it."""
        return self._tenant.film

    def discard(self) -> None:
        """Drop the environment after a failure; a call of its may still block its thread."""
        old, self._tenant = self._tenant, self._new_tenant()
        old.drop()

    async def close(self) -> None:
        """After a call that still runs, or without it when it takes long.

        An environment that fails in closing is a line in the log: its episodes have ended.
        """
        tenant = self._tenant
        try:
            if tenant.was_called:
                async with asyncio.timeout(_CLOSE_S):
                    await tenant.submit(tenant.close)
        except Exception as error:  # noqa: BLE001 (the border to anybody's code)
            why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            _log.warning("an environment could not be closed: %s", why)
        finally:
            tenant.lane.end()

    def _new_tenant(self) -> _Tenant:
        lane = OwnThread(self._name) if self._threads is None else self._threads.lane()
        return _Tenant(self._config, lane)


class _Tenant:
    """An environment from its making to its end, and the lane of its calls."""

    def __init__(self, config: EnvConfig, lane: Lane) -> None:
        self.lane = lane
        self.filming = False
        self.agent_mounts: Mapping[str, str] = {}
        self.was_called = False
        self._config = config
        self._env: Any = None
        self._is_dropped = False

    def submit(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Submit a call from the loop; all else runs on the lane."""
        self.was_called = True
        return self.lane.submit(partial(_contained, call))

    def drop(self) -> None:
        """From the loop, while a call may still block the lane: whatever that makes is closed."""
        self._is_dropped = True
        if self.was_called:
            self.submit(self.close).add_done_callback(_ignored)
        self.lane.end()

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> object:
        if self._env is None:
            with boundary(EnvError, "making the environment"):
                try:
                    self._env = self._config.make()
                except ConfigError as error:
                    raise EnvError(str(error)) from error
        if self._is_dropped:
            raise EnvError("the environment came too late")
        if hasattr(self._env.unwrapped, "filming"):
            self._env.unwrapped.filming = self.filming
        if self.agent_mounts:
            self._env.unwrapped.agent_mounts = self.agent_mounts
        return self._env.reset(seed=seed, options=options)

    def step(self, action: str) -> object:
        return self._env.step(action)

    def finish(self) -> object:
        finish = getattr(self._env.unwrapped, "finish", None)
        return 0.0 if finish is None else finish()

    @property
    def grades(self) -> bool:
        return callable(getattr(self._env.unwrapped, "finish", None))

    def attribute(self, name: str, default: object) -> object:
        """An attribute of the environment, where there is one that has it."""
        return default if self._env is None else getattr(self._env.unwrapped, name, default)

    def workplace(self) -> Workplace:
        workplace = self.attribute("workplace", None)
        if not callable(workplace):
            raise EnvError("the environment has no sandbox that an agent could work in")
        place = workplace()
        if not isinstance(place, Workplace):
            raise EnvError(f"got a workplace of type {type(place).__name__}, expected Workplace")
        return place

    def film(self) -> bytes | None:
        film = None if self._env is None else getattr(self._env.unwrapped, "film", None)
        with boundary(EnvError, "film"):
            jpeg = film() if callable(film) else None
        if jpeg is not None and not isinstance(jpeg, bytes):
            raise EnvError(f"got a film of type {type(jpeg).__name__}, expected bytes or None")
        return jpeg

    def close(self) -> None:
        """Do nothing, where nothing was made."""
        env, self._env = self._env, None
        if env is not None:
            env.close()


def _ignored(closing: asyncio.Future[None]) -> None:
    """An environment that was dropped may fail in closing, too."""
    if not closing.cancelled():
        closing.exception()


def _contained(call: Callable[[], T]) -> T:
    """Run a call; an exception that would end the whole process ends its episode alone."""
    try:
        return call()
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise EnvError(
            f"the environment raised {type(error).__name__}({error}), which ends processes: "
            "raise another error, or return terminated=True"
        ) from error
    except (StopIteration, asyncio.CancelledError) as error:  # they mean something to the loop
        raise EnvError(f"the environment raised {type(error).__name__}({error})") from error
