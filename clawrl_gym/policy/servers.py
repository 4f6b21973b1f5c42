"""PolicyServers: all vLLM servers of a run, which serve the same weights behind one gateway.

Each has a folder, a port and a key of its own, is watched for itself and comes back with what is
current. A swap reaches all of them at once. With several GPUs they are spread over them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from clawrl_gym.config import PolicyConfig
from clawrl_gym.core.errors import ConfigError, PolicyError
from clawrl_gym.policy import launch
from clawrl_gym.policy.client import PolicyClient, WithPictures
from clawrl_gym.policy.fleet import Fleet
from clawrl_gym.policy.models import visible_gpus
from clawrl_gym.policy.server import PolicyServer
from clawrl_gym.policy.serving_folder import Take
from clawrl_gym.policy.swap import WeightSwap

_AGAIN_S = 300.0
"""Until a server that was given up is tried again, while others serve."""

Hold = Callable[[], AbstractContextManager[None]]


class PolicyServers:
    """As many servers as `config.servers` says."""

    model_name = launch.MODEL_NAME

    def __init__(
        self,
        config: PolicyConfig,
        model_dir: Path | str,
        serving_dir: Path,
        logs_dir: Path,
        on_phase: Callable[[str], None],
        hold: Hold = nullcontext,
        *,
        make: Callable[..., PolicyServer] = PolicyServer,
    ) -> None:
        """`hold` keeps new requests away; it is entered while any server is paused."""
        self._config = config
        self._on_phase = on_phase
        self._hold = hold
        self._holding: AbstractContextManager[None] | None = None
        self._paused = 0
        self._version = 0
        self._publishing = asyncio.Lock()
        self._clients: list[PolicyClient] = []
        self._gpus = visible_gpus()
        self._servers = [
            make(
                _config_of(config, at, len(self._gpus)),
                model_dir,
                serving_dir / str(at),
                logs_dir / ("vllm.log" if at == 0 else f"vllm-{at}.log"),
                self._phase_of(at),
                gpu=self._gpus[at % len(self._gpus)] if config.servers > 1 and self._gpus else None,
            )
            for at in range(config.servers)
        ]
        self._swaps = [WeightSwap(server, hold=self._while_paused) for server in self._servers]

    @property
    def version(self) -> int:
        """The newest version that is served."""
        return self._version

    @property
    def servers(self) -> tuple[PolicyServer, ...]:
        return tuple(self._servers)

    def hold_with(self, hold: Hold) -> None:
        """Keep new requests away by `hold` from now on."""
        self._hold = hold

    def fleet(
        self,
        max_connections: int,
        *,
        with_pictures: WithPictures | None = None,
        unspoken: Sequence[int] = (),
    ) -> Fleet[PolicyClient]:
        """Clients of all servers, which need not have been started yet; `with_pictures` and
        `unspoken` as they have them.

        Raises ConfigError when a port is taken.
        """
        for server in self._servers:
            server.reserve()
        clients = [
            PolicyClient(
                server.base_url,
                server.key,
                server.model_name,
                self._config.request_timeout_s,
                max_connections,
                always_parse=self._config.reasoning_parser is not None,
                unspoken=unspoken,
                with_pictures=with_pictures,
            )
            for server in self._servers
        ]
        self._clients += clients
        return Fleet(clients)

    async def close_clients(self) -> None:
        """Close the connections of all fleets."""
        for client in self._clients:
            await client.close()

    async def start(self, version: int = 0, weights: Path | None = None) -> None:
        """Serve the model's own weights, or others, as `version`; returns when all answer.

        Raises ConfigError or PolicyError; what has been started is left to `stop`.
        """
        self._version = version
        if 0 < len(self._gpus) < len(self._servers):
            for server in self._servers:  # each must see how much memory is left on a shared GPU
                await server.start(version, weights)
        else:
            await _all([server.start(version, weights) for server in self._servers])

    async def stop(self) -> None:
        """End all servers and everything they started; idempotent."""
        await asyncio.gather(*(server.stop() for server in self._servers))

    async def watch(self) -> None:
        """Start servers that died again, until `stop`.

        A server that dies too often is tried again later; the error is raised when no other
        server answers either.
        """
        await _all([self._keep(server) for server in self._servers])

    async def publish(self, version: int, weights: Path, take: Take = "copy") -> float:
        """Serve `weights` as `version` everywhere; the longest pause of a server, in seconds.

        The weights are taken once. PolicyError when no server takes them: all serve the old ones
        then. A server that alone cannot take them is started again with them.
        """
        async with self._publishing:
            await asyncio.to_thread(self._stage, version, weights, take)
            swaps = (swap.switch(version) for swap in self._swaps)
            results = await asyncio.gather(*swaps, return_exceptions=True)
            failed = [result for result in results if isinstance(result, BaseException)]
            if len(failed) == len(results):
                raise failed[0]
            for server, result in zip(self._servers, results, strict=True):
                if isinstance(result, BaseException):
                    await self._renew(server, version, result)
            self._version = version
            return max(result for result in results if isinstance(result, float))

    def _stage(self, version: int, weights: Path, take: Take) -> None:
        first, *rest = (server.folder for server in self._servers)
        first.stage(version, weights, take)
        for folder in rest:
            folder.stage(version, first.of_version(version), "share")

    async def _renew(self, server: PolicyServer, version: int, error: BaseException) -> None:
        self._on_phase(f"a server could not take version {version} ({error}): starting it again")
        whole = next(s.folder for s in self._servers if s.folder.version == version)
        async with server.changing:
            source = whole.of_version(version)
            await asyncio.to_thread(server.folder.stage, version, source, "share")
            server.folder.switch(version)
            server.kill()

    async def _keep(self, server: PolicyServer) -> None:
        while True:
            try:
                return await server.watch()
            except (PolicyError, ConfigError) as error:
                if not any(sibling.alive for sibling in self._servers):
                    raise
                self._on_phase(f"{error}; the other servers go on")
            await asyncio.sleep(_AGAIN_S)

    @contextmanager
    def _while_paused(self) -> Iterator[None]:
        """Hold once, from the first server that is paused until the last one goes on."""
        self._paused += 1
        if self._paused == 1:
            self._holding = self._hold()
            self._holding.__enter__()
        try:
            yield
        finally:
            self._paused -= 1
            if self._paused == 0 and self._holding is not None:
                self._holding.__exit__(None, None, None)

    def _phase_of(self, at: int) -> Callable[[str], None]:
        if self._config.servers == 1:
            return self._on_phase
        return lambda phase: self._on_phase(f"{phase} (server {at + 1})")


async def _all(coroutines: Iterable[Coroutine[None, None, None]]) -> None:
    """All at once; when one fails, its error is raised and the others are cancelled."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _config_of(config: PolicyConfig, at: int, gpus: int) -> PolicyConfig:
    """A server's own: the next port, and its part of a GPU that it shares."""
    sharing = math.ceil(config.servers / max(1, gpus))
    return config.model_copy(
        update={
            "port": config.port and config.port + at,
            "gpu_memory_utilization": config.gpu_memory_utilization / sharing,
        }
    )
