"""PolicyServer: vLLM as a child process, with a random key, started and watched by us; on loopback
unless it serves other machines of a cluster.

It runs in a session of its own (Ctrl-C reaches us first) and dies with this process, however that
ends. After a crash it comes back on the same port with the current weights and version, forked
from a fork server that has imported vLLM. Start it from the thread of an event loop that lives as
long as the server shall.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from clawrl_gym.config import AdapterConfig, PolicyConfig
from clawrl_gym.core.errors import ConfigError, PolicyError
from clawrl_gym.core.files.log_files import rotate_program_log
from clawrl_gym.core.files.scratch import Scratch
from clawrl_gym.inference.device import Device
from clawrl_gym.inference.interface import MODEL_NAME
from clawrl_gym.inference.models.resolve import check_context
from clawrl_gym.inference.port import LOOPBACK, reserve_port
from clawrl_gym.inference.vllm import launch
from clawrl_gym.inference.vllm.build import vllm_device
from clawrl_gym.inference.vllm.client import Health, PolicyClient, Sampling
from clawrl_gym.inference.vllm.forkserver import ForkServer, ServerProcess, signal_group
from clawrl_gym.inference.vllm.server_log import WITHOUT_A_WORD, ServerLog, advice
from clawrl_gym.inference.weights.adapters import Adapters
from clawrl_gym.inference.weights.serving_folder import ServingFolder

_STOP_S = 3.0
_POLL_S = 0.2
_CHECK_EVERY_S = 5.0
_FORGIVEN_S = 300.0
"""A server that was healthy for so long starts the count of deaths afresh."""
_PATIENCE = 6
"""Health checks without an answer, one after the other, after which a living server counts as dead
(a minute: each begins after `_CHECK_EVERY_S`, and waits as long for its answer)."""
_LOSS: dict[Health, int] = {"healthy": -_PATIENCE, "unresponsive": 1, "dead": _PATIENCE // 2}
"""Cost of one check in that patience: a dead engine does not come back, but its server may hang on
its way out."""


class Killed(PolicyError):
    """The server, or its engine, ended in a way that says nothing of the configuration."""


class PolicyServer:
    """One vLLM that serves one model as `policy`."""

    model_name = MODEL_NAME

    def __init__(
        self,
        config: PolicyConfig,
        model_dir: Path | str,
        serving_dir: Path,
        log_path: Path,
        on_phase: Callable[[str], None],
        *,
        gpu: str | None = None,
        host: str = LOOPBACK,
        key: str | None = None,
        adapter: AdapterConfig | None = None,
        adapters: Adapters | None = None,
    ) -> None:
        """`gpu`: the one device that the server sees; None lets it see all. `host`: where it
        listens. `key`: None makes a random one. `adapter` is the form of the `adapters` that it
        serves; None: it serves weights."""
        self.key = key or secrets.token_urlsafe(32)
        self.folder = ServingFolder(serving_dir)
        self._config = config
        self._model_dir = Path(model_dir)
        self._log_path = log_path
        self._on_phase = on_phase
        self._gpu = gpu
        self._host = host
        self._adapter = adapter
        self._adapters = adapters
        self._device: Device = "cpu"
        self._port = 0
        self._socket: socket.socket | None = None
        self._log = ServerLog(log_path)
        self._process: ServerProcess | None = None
        self._fork_server: ForkServer | None = None
        self._scratch: Scratch | None = None
        self._ready_s: float | None = None
        self._stopping = False
        self._launching = asyncio.Lock()
        self.changing = asyncio.Lock()
        """Held while weights or version change: a start and a swap must not mix."""

    @property
    def base_url(self) -> str:
        """Known, and kept for good, once `reserve` was called or `start` has begun."""
        return f"http://{self._host}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The server's process, also the id of its process group; None when it does not run."""
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        """It has answered, and its process runs: what becomes current now must be loaded by it."""
        process = self._process
        return self._ready_s is not None and process is not None and process.returncode is None

    def reserve(self) -> None:
        """Take the port, so that clients can be made before the server is up."""
        if self._socket is None:
            self._socket = reserve_port(self._config.port, self._host)
            self._port = self._socket.getsockname()[1]

    async def start(self, version: int = 0, weights: Path | None = None) -> None:
        """Serve the model's own weights, or others, as `version`; returns when it answers.

        What is killed while it starts is started once more. Raises ConfigError or PolicyError in
        one line, with vLLM's own last words; leaves nothing behind then.
        """
        self._device = vllm_device(self._config.device)
        check_context(self._config.max_model_len, self._model_dir)
        self._stopping = False
        try:
            self.reserve()
            await asyncio.to_thread(self.folder.create, self._model_dir, version, weights)
            await self._launch_first()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the server and everything it started; idempotent."""
        self._stopping = True
        await asyncio.shield(asyncio.ensure_future(self._end_for_good()))

    async def watch(self) -> None:
        """Start a server that died again, until `stop`.

        Raises what it died of when it dies too often in a row; called again, it tries again.
        """
        deaths = 0
        while not self._stopping:
            reason = await self._death()
            if self._stopping:
                return
            deaths = 1 if self._lived_s() > _FORGIVEN_S else deaths + 1
            if deaths > self._config.max_restarts:
                failure = self._failure(f"{reason}, after {deaths - 1} restarts in a row")
                raise PolicyError(str(failure))  # the configuration has served before
            self._on_phase(f"vLLM {reason}, starting it again")
            await self._end()
            try:
                await self._launch()
            except (PolicyError, ConfigError) as error:
                if not self._stopping:
                    self._on_phase(str(error))

    def kill(self) -> None:
        """End the server at once; `watch` starts it again."""
        if self._process is not None:
            signal_group(self._process.pid, signal.SIGKILL)

    async def _launch_first(self) -> None:
        try:
            await self._launch()
        except Killed as error:
            if self._stopping:
                raise
            self._on_phase(f"{error}; starting it again")
            await self._launch()

    async def _launch(self) -> None:
        async with self._launching:
            self._on_phase("starting vLLM")
            self._log_path.parent.mkdir(parents=True, exist_ok=True)
            self._log = ServerLog(self._log_path)
            self._ready_s = None
            self._process = await self._spawn()
            try:
                await self._until_ready(self._process)
            except BaseException:
                await asyncio.shield(asyncio.ensure_future(self._end()))
                raise
            self._on_phase("ready")

    async def _spawn(self) -> ServerProcess:
        if self._fork_server is not None and not self._fork_server.alive:
            await self._close_fork_server()
        if self._fork_server is None:
            base = os.environ | ({"CUDA_VISIBLE_DEVICES": self._gpu} if self._gpu else {})
            environment = launch.environment(
                self._config, self.key, self._device, base, adapters=self._adapter is not None
            )
            environment["TMPDIR"] = str(self._scratch_of_process().path)
            environment.setdefault("VLLM_CACHE_ROOT", str(launch.compile_cache()))
            environment["PYTHONPATH"] = launch.module_path(base)
            with self._log_path.open("ab") as output:
                # By a relative name: vLLM finds what it compiled for a model of the same name only.
                self._fork_server = await ForkServer.open(
                    self._argv(), environment, output, self.folder.current.parent
                )
        return await self._fork_server.server()

    def _argv(self) -> list[str]:
        """Command line of the fork server and so of all servers that it forks."""
        current = self.folder.current
        return launch.command(
            self._config, current, self._port, self._device, self._host, self._adapter,
            path=current.name,
        )  # fmt: skip

    async def _close_fork_server(self) -> None:
        if self._fork_server is not None:
            await self._fork_server.close()
            self._fork_server = None
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

    def _scratch_of_process(self) -> Scratch:
        """Folder for vLLM's sockets and whatever else it does not clean up."""
        self._scratch = self._scratch or Scratch("vllm")
        return self._scratch

    async def _until_ready(self, process: ServerProcess) -> None:
        deadline_s = time.monotonic() + self._config.start_timeout_s
        client = PolicyClient(
            self.base_url, self.key, self.model_name, self._config.request_timeout_s, 2
        )
        try:
            while not await client.healthy():
                for phase in self._log.new_phases():
                    self._on_phase(phase)
                if self._stopping:
                    raise PolicyError("vLLM was stopped while it started")
                if process.returncode is not None:
                    raise self._failure(_ended(process.returncode))
                if time.monotonic() > deadline_s:
                    limit_s = self._config.start_timeout_s
                    raise self._failure(f"was not ready within {limit_s:g} s")
                await asyncio.sleep(_POLL_S)
            async with self.changing:
                await self._try_out(client)
                self._ready_s = time.monotonic()
        finally:
            await client.close()

    async def _try_out(self, client: PolicyClient) -> None:
        """Load what is current, name it and draw once: what is first is slow, and may fail here.

        Nobody else is served before the version is named, so no token can be under a wrong one.
        """
        version, timeout_s = self.folder.version, self._config.request_timeout_s
        if self._adapters is None:
            await client.reload_weights(timeout_s)
        for adapter in [] if self._adapters is None else self._adapters.alive:
            await client.load_adapter(adapter.name, str(adapter.folder), timeout_s)
        await client.set_version(version, timeout_s)
        await client.generate([0], Sampling(1.0, 1.0, 2), version=version)

    def _lived_s(self) -> float:
        """For how long the server has been healthy."""
        return 0.0 if self._ready_s is None else time.monotonic() - self._ready_s

    async def _death(self) -> str:
        """Wait until the server has died or has been unresponsive for too long; says which."""
        process = self._process
        if process is None:
            return "did not start again"
        client = self._client(_CHECK_EVERY_S)
        lost = 0
        try:
            while lost < _PATIENCE:
                with contextlib.suppress(TimeoutError):
                    return _ended(await asyncio.wait_for(process.wait(), _CHECK_EVERY_S))
                with contextlib.suppress(OSError):  # a full disk: it is tried again
                    await asyncio.to_thread(rotate_program_log, self._log_path)
                lost = max(0, lost + _LOSS[await client.health(_CHECK_EVERY_S)])
        finally:
            await client.close()
        return "stopped answering"

    async def _end_for_good(self) -> None:
        await self._end()
        async with self._launching:  # a launch under way sees that it is to stop
            await self._end()
            await self._close_fork_server()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def _end(self) -> None:
        process = self._process
        if process is None:
            return
        if process.forked:
            if self._ready_s is not None:  # one that starts does not listen, and has nothing to end
                signal_group(process.pid, signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), _STOP_S)
            signal_group(process.pid, signal.SIGKILL)
        else:
            await self._close_fork_server()
        await process.wait()
        self._process = None

    def _client(self, timeout_s: float) -> PolicyClient:
        return PolicyClient(self.base_url, self.key, self.model_name, timeout_s, 1)

    def _failure(self, symptom: str) -> PolicyError | ConfigError:
        process = self._process
        was_killed = process is not None and process.returncode == -signal.SIGKILL
        words = "" if was_killed else f": {self._log.last_words()}"  # it had no time to say why
        cure = advice(words)
        message = f"vLLM {symptom}{words}; "
        if cure is None:
            kind = Killed if was_killed or WITHOUT_A_WORD in words else PolicyError
            return kind(message + f"the whole log is {self._log_path}")
        return ConfigError(message + f"{cure} (log: {self._log_path})")


def _ended(code: int) -> str:
    if code == -signal.SIGKILL:
        return "was killed (signal 9: out of memory?)"
    return f"died of signal {-code}" if code < 0 else f"ended with exit code {code}"
