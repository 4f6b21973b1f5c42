"""Engine: what generates for a run, as many times as `policy.servers` says.

`policy.engine` names its class: one of ours, an entry point or an import path. A class of your own
extends `Engine`: what its capabilities leave out has a body here that refuses, or does nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from clawrl_gym.config import AdapterConfig, PolicyConfig
from clawrl_gym.core.errors import PolicyError
from clawrl_gym.core.types import Message
from clawrl_gym.inference.capabilities import EngineCapabilities
from clawrl_gym.inference.device import ConfiguredDevice, Device, torch_device
from clawrl_gym.inference.interface import EngineClient
from clawrl_gym.inference.port import LOOPBACK
from clawrl_gym.inference.weights.adapters import Adapter, Adapters
from clawrl_gym.inference.weights.serving_folder import Take

Hold = Callable[[], AbstractContextManager[None]]
"""Keeps new requests away while it is entered."""
OnPhase = Callable[[str], None]
"""Is told what an engine is doing, for people."""
WithPictures = Callable[[list[Message]], list[Message]]
"""Puts the bytes of pictures in the place of their hashes."""


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """Settings and files of one engine."""

    config: PolicyConfig
    """Its own configuration: its port, its share of a GPU."""
    model: Path | None
    """Folder of `policy.model`; None where its class loads none."""
    folder: Path
    """For what it serves from. It need not be there."""
    log: Path
    """Log file of its output."""
    on_phase: OnPhase
    hold: Hold = nullcontext
    """Entered while its requests are paused."""
    gpu: str | None = None
    """The one device that it sees; None: all."""
    adapter: AdapterConfig | None = None
    """The form of the `adapters` that it serves; None: it serves weights."""
    adapters: Adapters | None = None
    host: str = LOOPBACK
    """Host where it listens, if it does."""
    key: str | None = None
    """API key of its server, if it has one; None: it makes one."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Address and key for clients of an engine."""

    max_connections: int
    with_pictures: WithPictures | None = None
    """Puts pictures into messages; None: it is shown none."""
    unspoken: Sequence[int] = ()
    """Ids that stand for pictures and are never sampled."""


class Engine(Protocol):
    """Generates. Made from an `EngineSetup`, and its `Options` if its class has some, before
    anything else of the run; changes of its weights are never interleaved."""

    label: ClassVar[str] = "engine"
    """Its name in messages; in lower case, the name of its log."""
    capabilities: ClassVar[EngineCapabilities] = EngineCapabilities()

    @classmethod
    def problems(cls, config: PolicyConfig, model: Path | None) -> Iterable[str]:
        """Reasons why it could not serve, a line each; nothing heavy is imported, nothing started.
        `model` None: it is still to be downloaded, or the class loads none."""
        return ()

    @classmethod
    def device(cls, configured: ConfiguredDevice) -> Device:
        """The device of it and the learner. Raises ConfigError."""
        return torch_device(configured)

    @classmethod
    def has_compiled(cls) -> bool:
        """Whether an earlier run left something compiled, of whatever model."""
        return False

    @property
    def alive(self) -> bool:
        """Whether it has answered, and is there: what becomes current now must be loaded by it."""
        ...

    @property
    def secrets(self) -> Sequence[str]:
        """Keys that no log may show."""
        return ()

    def reserve(self) -> None:
        """Take the port if it has one. Raises ConfigError when it is taken."""
        return

    def when_lost(self, close: Callable[[], Awaitable[None]]) -> None:
        """Have connections closed when the engine's machine is gone: they would wait for long."""
        return

    def connect(self, connection: Connection) -> EngineClient:
        """A client, which may be made before the engine is started."""
        ...

    async def start(self, version: int, weights: Path | None) -> None:
        """Serve the model's own weights, or those of a file or folder, as `version`; returns when
        it answers. Raises ConfigError or PolicyError; what was started is left to `stop`."""
        ...

    async def stop(self) -> None:
        """End what was started; idempotent."""
        ...

    async def watch(self) -> None:
        """Start it again whenever it dies, until `stop`. Raises what it dies of when that is too
        often."""
        ...

    # Of those with `weights`.

    async def stage(self, version: int, weights: Path, take: Take) -> None:
        """Take weights of this machine in, not yet served. Raises PolicyError."""
        raise self._unable("weights")

    def of_version(self, version: int) -> Path:
        """Local folder of weights that it has taken in."""
        raise self._unable("weights")

    async def switch(self, version: int) -> float:
        """Serve staged weights; the seconds for which requests were paused. One that is down takes
        them when it comes back. The version before stays at hand, to be switched back to."""
        raise self._unable("weights")

    async def settle(self) -> None:
        """Make the served version final: older weights may go."""
        raise self._unable("weights")

    async def renew(self, version: int, weights: Path) -> None:
        """Restart it with weights that it did not take."""
        raise self._unable("weights")

    # Of those with `adapter_ranks`.

    async def load_adapter(self, adapter: Adapter) -> None:
        """Have an adapter beside the others. One that is down loads it when it comes back.

        Raises PolicyError when it does not take it.
        """
        raise self._unable("adapter_ranks")

    async def unload_adapter(self, adapter: Adapter) -> None:
        """Forget one that answers nobody; harmless when it is not there."""
        return

    # Of those with `nodes`: the class is made there, and asked from here.

    @property
    def base_url(self) -> str:
        """Its address. Raises PolicyUnavailable while it has none."""
        raise self._unable("nodes")

    @classmethod
    def client_at(
        cls, config: PolicyConfig, base_url: Callable[[], str], key: str, connection: Connection
    ) -> EngineClient:
        """A client of one on another machine; `base_url` is asked for at every request."""
        raise cls._unable("nodes")

    @classmethod
    def _unable(cls, capability: str) -> PolicyError:
        return PolicyError(f"{cls.label} has no {capability}: its class does not declare it")
