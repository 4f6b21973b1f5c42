"""EngineHost: one engine on a machine that shares nothing with the driver but a network.

Its model is found here or sent, its weights come as transfers. All that it writes lies in a folder
of its own, which the next host on this machine deletes when this one could not.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.config import PolicyConfig
from clawrl_gym.core.errors import PolicyError, TransferError, boundary
from clawrl_gym.core.files.files import cache_root
from clawrl_gym.core.files.log_files import full_files
from clawrl_gym.core.files.scratch import Scratch
from clawrl_gym.core.files.transfer import Get, Transfer, receive
from clawrl_gym.inference.engine import Engine, EngineSetup
from clawrl_gym.inference.engine_classes import make_engine
from clawrl_gym.inference.models.source import ModelFinder, ModelSource
from clawrl_gym.inference.weights.cache import ModelCache

MakeEngine = Callable[[EngineSetup], Engine]
_NEWS_S = 2.0
_LOG_BYTES = 1 << 20
_ENGINES = "engines"


@dataclass(frozen=True, slots=True)
class News:
    """News of an engine."""

    phases: tuple[str, ...]
    log: bytes
    """The engine's own."""


class EngineHost:
    """See the module's docstring. All calls from one event loop."""

    def __init__(
        self,
        config: PolicyConfig,
        key: str,
        address: str,
        get: Get,
        *,
        make: MakeEngine = make_engine,
        cache: Path | None = None,
        news_s: float = _NEWS_S,
    ) -> None:
        """Host an engine at `address`; `get` fetches the chunks of transfers. After `news_s`
        without news it says so."""
        cache = cache or cache_root()
        self._get = get
        self._news_s = news_s
        self._address = address
        with boundary(TransferError, f"making a folder for an engine in {cache}"):
            (cache / _ENGINES).mkdir(parents=True, exist_ok=True, mode=0o700)
            self._scratch = Scratch("engine", cache / _ENGINES)
        self._finder = ModelFinder(ModelCache(cache / "models"))
        self._log_path = self._scratch.path / "engine.log"
        self._log_start = 0
        """Bytes that were written before those that are in this file."""
        self._full_logs: dict[Path, int] = {}
        """Full files of the log, and how much was written before each."""
        self._phases: list[str] = []
        self._has_news = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._model: Path | None = None
        self._make: Callable[[Path], Engine] = lambda model: make(
            EngineSetup(
                config,
                model,
                self._scratch.path / "serving",
                self._log_path,
                self._tell,
                host=address,
                key=key,
            )
        )
        self._engine: Engine | None = None

    async def find_model(self, source: ModelSource) -> bool:
        """Whether the model need not be sent."""
        self._model = await asyncio.to_thread(self._finder.find, source)
        return self._model is not None

    async def take_model(self, transfer: Transfer) -> None:
        """Receive the model. Raises TransferError."""
        self._model = await asyncio.to_thread(self._finder.take, transfer, self._get)

    async def start(self, version: int, weights: Transfer | None) -> str:
        """Serve the model's own weights, or others; returns the URL once it answers.

        Raises ConfigError, PolicyError or TransferError.
        """
        if self._model is None:
            raise PolicyError("got no model to serve, expected find_model or take_model before")
        self._engine = engine = self._make(self._model)
        folder = None if weights is None else await self._received(version, weights)
        try:
            await engine.start(version, folder)
        finally:  # the serving folder has them
            if folder is not None:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        self._watching = asyncio.create_task(engine.watch())
        return engine.base_url

    async def stage(self, version: int, weights: Transfer) -> None:
        """Take weights in, not yet served. Raises TransferError or PolicyError."""
        engine = self._started()
        folder = await self._received(version, weights)
        await engine.stage(version, folder, "share")
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def switch(self, version: int) -> float:
        """Serve staged weights; the seconds for which requests were paused."""
        return await self._started().switch(version)

    async def settle(self) -> None:
        """Make the served version final: older weights may go."""
        await self._started().settle()

    async def news(self, phases: int, log_bytes: int) -> News:
        """News for a caller who has heard so many phases and read so much of the log; waits some
        seconds for any. A lost answer is given again.

        Raises what the engine died of when it is not started again.
        """
        if phases >= len(self._phases):
            self._has_news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._news_s):
                    await self._has_news.wait()
        new = tuple(self._phases[phases:])
        log = await asyncio.to_thread(self._log_after, log_bytes)
        if not (new or log) and self._watching is not None and self._watching.done():
            if self._watching.cancelled():
                raise PolicyError("the engine was stopped")
            await self._watching
        return News(new, log)

    def _tell(self, phase: str) -> None:
        self._phases.append(phase)
        self._has_news.set()

    def _log_after(self, position: int) -> bytes:
        """The engine's log after a position, no more than a network takes at once. Full files go
        long after they have been read."""
        for path in full_files(self._log_path):
            if path not in self._full_logs:
                self._full_logs[path] = self._log_start
                self._log_start += path.stat().st_size
        files = [*self._full_logs.items(), (self._log_path, self._log_start)]
        path, start = [(path, start) for path, start in files if start <= position][-1]
        try:
            with path.open("rb") as file:
                file.seek(position - start)
                return file.read(_LOG_BYTES)
        except FileNotFoundError:
            return b""

    async def stop(self) -> None:
        """End the engine and delete what was written; idempotent."""
        if self._watching is not None:
            self._watching.cancel()
        if self._engine is not None:
            await self._engine.stop()
        self._finder.close()
        await asyncio.to_thread(self._scratch.remove)

    async def _received(self, version: int, weights: Transfer) -> Path:
        folder = self._scratch.path / f"received-{version}"
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        await asyncio.to_thread(receive, weights, folder, self._get)
        return folder

    def _started(self) -> Engine:
        if self._engine is None:
            raise PolicyError("the engine was not started")
        return self._engine
