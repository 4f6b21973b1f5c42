"""An engine on another machine, without one: a dictionary carries the chunks, a stub serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import psutil
import pytest

from clawrl_gym.config import PolicyConfig
from clawrl_gym.core.errors import PolicyError, TransferError
from clawrl_gym.core.files.log_files import PROGRAM_FULL_BYTES, files_of_log, full_files
from clawrl_gym.inference.engine_host import EngineHost
from clawrl_gym.inference.models.source import ModelSource, source_of
from clawrl_gym.inference.transfer_store import TransferStore
from clawrl_gym.inference.vllm.client import PolicyClient, Sampling
from tests.support.stub_engine import StubEngine, digest
from tests.support.tiny_models import write_safetensors
from tests.support.waiting import until

HERE = "127.0.0.1"


class Network:
    """Carries chunks; those that it breaks arrive as zeros."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.breaks = False

    def put(self, chunk: bytes) -> int:
        self.chunks.append(chunk)
        return len(self.chunks) - 1

    def fetch(self, handle: object) -> bytes:
        assert isinstance(handle, int)
        chunk = self.chunks[handle]
        return b"\0" * len(chunk) if self.breaks else chunk


class Head:
    """The driver's machine: a model, and what its engines are given."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.model = folder / "model"
        self.model.mkdir(parents=True)
        (self.model / "config.json").write_text('{"max_position_embeddings": 4096}')
        write_safetensors(self.model / "model.safetensors", 9)
        self._folder = folder
        self.transfer_store = TransferStore(
            self.model, str(self.model), folder / "depot", network.put
        )

    def weights(self, fill: int) -> Path:
        return write_safetensors(self._folder / f"{fill}.safetensors", 9, fill)

    async def away(self) -> ModelSource:
        """The model's source, as if its folder were not to be seen from where the engine is."""
        source = await self.transfer_store.source()
        return ModelSource("/not/here", source.manifest)


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def head(tmp_path: Path, network: Network) -> Head:
    return Head(tmp_path / "head", network)


@asynccontextmanager
async def hosting(node: Path, network: Network) -> AsyncIterator[EngineHost]:
    host = EngineHost(
        PolicyConfig(), "key", HERE, network.fetch, make=StubEngine, cache=node / "cache"
    )
    try:
        yield host
    finally:
        await host.stop()


async def served(url: str) -> tuple[int, str]:
    """The version and the digest of the weights that answer."""
    client = PolicyClient(url, "key", "policy", 5.0, 2)
    try:
        reply = await client.generate([1], Sampling(0, 1, 2), version=0)
    finally:
        await client.close()
    assert reply.text is not None
    return reply.versions_T[0], reply.text


async def test_an_engine_serves_the_model_that_was_sent_and_then_every_version(
    head: Head, network: Network, tmp_path: Path
) -> None:
    node = tmp_path / "node"
    await head.transfer_store.open(0, None)
    async with hosting(node, network) as host:
        assert not await host.find_model(await head.away())
        await host.take_model(await head.transfer_store.model())
        url = await host.start(0, await head.transfer_store.weights())
        assert await served(url) == (0, digest(head.model / "model.safetensors"))
        for version in (1, 2):
            weights = head.weights(version)
            transfer = await head.transfer_store.stage(version, weights, "copy")
            await host.stage(version, transfer)
            assert (await served(url))[0] == version - 1
            assert await host.switch(version) > 0
            await head.transfer_store.commit(version)
            assert await served(url) == (version, digest(weights))
        news = await host.news(0, 0)
        assert "ready" in news.phases
        assert b"the stub starts" in news.log
        assert await host.news(0, 0) == news, "an answer may be lost on its way"
        assert (await host.news(1, 4)).phases == news.phases[1:]
        assert (await host.news(1, 4)).log == news.log[4:]
        await the_log_gets_full(host)
    assert not list((node / "cache" / "engines").iterdir())


async def the_log_gets_full(host: EngineHost) -> None:
    """What is told of it goes on where it was, across its files."""
    log = host._log_path
    with log.open("ab", buffering=0) as file:
        file.write(b"".join(b"%015d\n" % line for line in range(PROGRAM_FULL_BYTES // 16)))
        await until(lambda: full_files(log))
        file.write(b"the last line\n")
    told = b""
    while not told.endswith(b"the last line\n"):
        told += (await host.news(10**6, len(told))).log
    assert told == b"".join(path.read_bytes() for path in files_of_log(log))
    assert b"the stub starts" in told


async def test_the_next_engine_of_a_node_has_the_model_and_begins_with_what_is_current(
    head: Head, network: Network, tmp_path: Path
) -> None:
    await head.transfer_store.open(0, None)
    async with hosting(tmp_path, network) as host:
        await host.take_model(await head.transfer_store.model())
    weights = head.weights(7)
    await head.transfer_store.stage(7, weights, "move")
    await head.transfer_store.commit(7)
    async with hosting(tmp_path, network) as host:
        assert await host.find_model(await head.away())
        url = await host.start(head.transfer_store.version, await head.transfer_store.weights())
        current = head.transfer_store.of_version(7) / "model.safetensors"
        assert await served(url) == (7, digest(current))
        kept = [*(tmp_path / "cache" / "engines").rglob("*.safetensors")]
        assert {path.parent.name for path in kept} == {"v7"}, "what arrived is there once"


async def test_a_folder_that_both_machines_see_is_not_sent(
    head: Head, network: Network, tmp_path: Path
) -> None:
    async with hosting(tmp_path / "node", network) as host:
        assert await host.find_model(await head.transfer_store.source())
    assert network.chunks == []


async def test_a_folder_of_the_same_name_with_another_model_is_not_taken_for_it(
    head: Head, network: Network, tmp_path: Path
) -> None:
    source = await head.transfer_store.source()
    write_safetensors(head.model / "model.safetensors", 9, 3)
    async with hosting(tmp_path / "node", network) as host:
        assert not await host.find_model(source)


async def test_weights_that_break_on_their_way_are_refused_and_the_old_ones_serve(
    head: Head, network: Network, tmp_path: Path
) -> None:
    await head.transfer_store.open(0, None)
    async with hosting(tmp_path / "node", network) as host:
        await host.find_model(await head.transfer_store.source())
        url = await host.start(0, None)
        transfer = await head.transfer_store.stage(1, head.weights(1), "copy")
        network.breaks = True
        with pytest.raises(TransferError, match="not what was sent"):
            await host.stage(1, transfer)
        assert await served(url) == (0, digest(head.model / "model.safetensors"))


async def test_a_version_that_is_published_again_with_other_weights_is_sent_again(
    head: Head, network: Network
) -> None:
    """As when the learner died after a publication that failed, and repeats the update."""
    await head.transfer_store.open(0, None)
    first = await head.transfer_store.stage(1, head.weights(1), "copy")
    same = await head.transfer_store.stage(1, head.transfer_store.of_version(1), "share")
    other = await head.transfer_store.stage(1, head.weights(2), "copy")
    assert first is same
    assert other.manifest.digest != first.manifest.digest


async def test_an_engine_without_a_model_says_so(network: Network, tmp_path: Path) -> None:
    async with hosting(tmp_path, network) as host:
        with pytest.raises(PolicyError, match="no model to serve"):
            await host.start(0, None)


async def test_what_a_killed_engine_left_goes_with_the_next_start(
    network: Network, tmp_path: Path
) -> None:
    left = tmp_path / "cache" / "engines" / "clawrl-engine-left"
    left.mkdir(parents=True)
    (left / ".lock").touch()
    async with hosting(tmp_path, network) as one:
        assert not left.exists()
        async with hosting(tmp_path, network):
            assert one._scratch.path.is_dir()


async def test_a_server_that_dies_comes_back_and_the_host_tells_it(
    head: Head, network: Network, tmp_path: Path
) -> None:
    await head.transfer_store.open(0, None)
    async with hosting(tmp_path, network) as host:
        await host.find_model(await head.transfer_store.source())
        url = await host.start(0, None)
        pid = cast(StubEngine, host._engine).server.pid
        assert pid is not None
        psutil.Process(pid).kill()
        phases: list[str] = []
        async with asyncio.timeout(60):
            while not any("starting it again" in phase for phase in phases) or (
                phases[-1] != "ready"
            ):
                phases += (await host.news(len(phases), 0)).phases
        assert await served(url) == (0, digest(head.model / "model.safetensors"))


def test_a_snapshot_of_the_hub_is_named_by_its_commit(tmp_path: Path) -> None:
    folder = tmp_path / "models--a--b" / "snapshots" / "abc123"
    folder.mkdir(parents=True)
    write_safetensors(folder / "model.safetensors", 9)
    source = source_of(folder, "a/b")
    assert (source.hub_id, source.commit) == ("a/b", "abc123")
    assert source_of(folder, str(folder)).hub_id is None
