"""Adapters beside one base model: which versions are alive, whose they are, who uses them.

A version is a folder of PEFT under a name of its own: `policy@7` is version 7 of the run's own
adapter, `USER@7` version 7 of a user's. An engine holds all that are alive at once, so a request
keeps the version it began with from its first token to its last and no publication pauses anybody:

    with adapters.use("ada") as served:  # the newest of ada's, else the run's own, else the base
        await policy.generate(ids, sampling, version=served.version, user=served.user)

A version leaves when a newer one serves and its last request has ended. Only so many of one user
are alive at a time; the next publication waits for room. Use it from one event loop.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.config import PolicyConfig
from clawrl_gym.core.errors import NotServed, PolicyError, PolicyUnavailable, boundary
from clawrl_gym.core.ownership import OWNER, wrong_name
from clawrl_gym.inference.weights.adapter_files import ADAPTER_SETTINGS, ADAPTER_WEIGHTS
from clawrl_gym.inference.weights.serving_folder import PUT, Take

SHARED_NAME = "policy"
"""An engine's name of the run's own adapter: the OWNER's and of all others who have none."""
MOST_VERSIONS = 4
"""Most versions of one user alive at a time: the newest, the next one, and some that end."""
FILES = (ADAPTER_SETTINGS, ADAPTER_WEIGHTS)
_OTHER_ADAPTERS, _MOST_ADAPTERS = 3, 32


def adapter_slots(config: PolicyConfig, users: int = 0) -> int:
    """Adapters that an engine answers with at a time, where so many users have their own."""
    if config.max_adapters != "auto":
        return config.max_adapters
    return min(max(users, 1) + _OTHER_ADAPTERS, _MOST_ADAPTERS)


def adapter_name(user: str, version: int) -> str:
    """An engine's name of an adapter. Raises PolicyError for an impossible user's name."""
    wrong = wrong_name(user) if user != OWNER else None
    if wrong is not None:
        raise PolicyError(f"an adapter cannot be named: {wrong}")
    return f"{user or SHARED_NAME}@{version}"


@dataclass(frozen=True, slots=True)
class Served:
    """The adapter that answers a request: whose it is, and its version."""

    user: str
    version: int


@dataclass(slots=True)
class Adapter:
    """One version that is alive."""

    user: str
    version: int
    folder: Path
    requests: int = 0
    """Number of requests that it answers now."""
    is_over: bool = False
    """A newer one serves: it leaves with its last request."""

    @property
    def name(self) -> str:
        return adapter_name(self.user, self.version)


class Adapters:
    """See the module's docstring."""

    def __init__(self, root: Path, most_versions: int = MOST_VERSIONS) -> None:
        """They lie in folders below `root` while they are alive; what is there goes."""
        self._root = root
        self._most_versions = most_versions
        self._alive: dict[tuple[str, int], Adapter] = {}
        self._newest: dict[str, Adapter] = {}
        self._left = asyncio.Event()
        self._leave: Callable[[Adapter], None] = lambda _: None
        shutil.rmtree(root, ignore_errors=True)

    def when_over(self, leave: Callable[[Adapter], None]) -> None:
        """Have `leave` called with each version whose last request has ended."""
        self._leave = leave

    @property
    def alive(self) -> list[Adapter]:
        """Adapters that an engine has to load when it starts, the oldest first."""
        return list(self._alive.values())

    def newest(self, user: str = OWNER) -> Served:
        """The adapter that answers a request of this user that begins now."""
        adapter = self._newest.get(user) or self._newest.get(OWNER)
        return Served(OWNER, 0) if adapter is None else Served(adapter.user, adapter.version)

    @contextmanager
    def use(self, user: str = OWNER) -> Iterator[Served]:
        """The newest of this user's, which stays alive meanwhile."""
        served = self.newest(user)
        with self.hold(served.user, served.version):
            yield served

    @contextmanager
    def hold(self, user: str, version: int) -> Iterator[str | None]:
        """Keep one version alive; its name, None for the base.

        Raises PolicyUnavailable for one that has left: ask for the newest.
        """
        if (user, version) == (OWNER, 0):
            yield None
            return
        adapter = self._alive.get((user, version))
        if adapter is None:
            name = adapter_name(user, version)
            raise PolicyUnavailable(f"{name} is no longer served: take a newer version")
        adapter.requests += 1
        try:
            yield adapter.name
        finally:
            adapter.requests -= 1
            self._end_if_over(adapter)

    async def room(self, user: str, limit_s: float) -> None:
        """Wait until another version of this user's may be alive. Raises NotServed."""
        try:
            async with asyncio.timeout(limit_s):
                while len(waited := self._of(user)) >= self._most_versions:
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            oldest = waited[0]
            raise NotServed(
                f"{oldest.requests} request(s) that began with {oldest.name} have not ended for "
                f"{limit_s:g} s, and at most {self._most_versions} versions are served at a time"
            ) from None

    async def stage(self, user: str, version: int, folder: Path, take: Take = "copy") -> Adapter:
        """Take a folder of PEFT in: engines may load it, nobody is answered with it yet."""
        name = adapter_name(user, version)
        if (user, version) in self._alive or (user, version) == (OWNER, 0):
            raise PolicyError(f"got {name}, which is there already, expected a new version")
        await asyncio.to_thread(_take_in, folder, self._root / name, take)
        adapter = self._alive[user, version] = Adapter(user, version, self._root / name)
        return adapter

    def promote(self, adapter: Adapter) -> None:
        """Answer requests that begin from now on with this one."""
        previous = self._newest.get(adapter.user)
        self._newest[adapter.user] = adapter
        if previous is not None:
            self._over(previous)

    def discard(self, adapter: Adapter) -> None:
        """Forget one that was refused."""
        if self._newest.get(adapter.user) is not adapter:
            self._over(adapter)

    def withdraw(self, user: str) -> None:
        """Answer this user with the run's own again; all of theirs leave with their requests."""
        if user == OWNER:
            raise PolicyError("the run's own adapter cannot be withdrawn")
        self._newest.pop(user, None)
        for adapter in self._of(user):
            self._over(adapter)

    def _of(self, user: str) -> list[Adapter]:
        return [adapter for adapter in self._alive.values() if adapter.user == user]

    def _over(self, adapter: Adapter) -> None:
        adapter.is_over = True
        self._end_if_over(adapter)

    def _end_if_over(self, adapter: Adapter) -> None:
        if not adapter.is_over or adapter.requests:
            return
        if self._alive.pop((adapter.user, adapter.version), None) is not None:
            self._left.set()
            self._leave(adapter)


def _take_in(folder: Path, target: Path, take: Take) -> None:
    with boundary(PolicyError, f"taking in the adapter {folder}"):
        missing = [name for name in FILES if not (folder / name).is_file()]
        if missing:
            raise PolicyError(
                f"got {folder} without {' and '.join(missing)}, expected a folder of PEFT"
            )
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for name in FILES:
            PUT[take](folder / name, target / name)
