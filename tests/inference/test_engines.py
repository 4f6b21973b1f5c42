"""The driver's side of engines elsewhere: what dies, falls silent or refuses. All is in this
process, but the stub that serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from clawrl_gym.cluster.engine_actor import Lost
from clawrl_gym.cluster.placement import EngineNeeds
from clawrl_gym.config import PolicyConfig
from clawrl_gym.core.errors import ConfigError, PolicyError, PolicyUnavailable
from clawrl_gym.inference.engine import EngineSetup
from clawrl_gym.inference.engine_host import EngineHost
from clawrl_gym.inference.transfer_store import TransferStore
from clawrl_gym.inference.weights.adapters import Adapter
from clawrl_gym.run import engines
from clawrl_gym.run.engines import ClusterEngines, RemoteEngine
from tests.inference.test_engine_host import HERE, Network, served
from tests.support.stub_engine import StubEngine, digest
from tests.support.tiny_models import write_safetensors
from tests.support.waiting import PATIENCE_S, until


class Node:
    """Where processes of engines are begun; it can die and fall silent."""

    def __init__(self, folder: Path, network: Network) -> None:
        self._folder = folder
        self._network = network
        self.processes: list[NearProcess] = []
        self.refuses: ConfigError | None = None
        self.dies_at_once = False
        self.needs: list[EngineNeeds] = []

    def spawn(self, config: PolicyConfig, key: str, needs: EngineNeeds) -> NearProcess:
        self.needs.append(needs)
        host = EngineHost(
            config,
            "key",
            HERE,
            self._network.fetch,
            make=StubEngine,
            cache=self._folder,
            news_s=0.05,
        )
        self.processes.append(NearProcess(host, f"node {len(self.processes) + 1}", self.refuses))
        if self.dies_at_once:
            self.processes[-1].kill()
        return self.processes[-1]


class NearProcess:
    """Takes the place of an actor of Ray's."""

    def __init__(self, host: EngineHost, name: str, refuses: ConfigError | None) -> None:
        self._host = host
        self._name = name
        self._refuses = refuses
        self._dead = asyncio.Event()
        self.heard = asyncio.Event()
        self.heard.set()

    @property
    def is_dead(self) -> bool:
        return self._dead.is_set()

    async def place(self) -> tuple[str, str]:
        return self._name, f"id of {self._name}"

    async def call(self, method: str, *arguments: object) -> object:
        if method == "start" and self._refuses is not None:
            raise self._refuses
        if self._dead.is_set() and method != "stop":
            raise Lost("the actor died")
        dying = asyncio.ensure_future(self._dead.wait())
        calling = asyncio.ensure_future(self._answer(method, arguments))
        await asyncio.wait({dying, calling}, return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if not calling.done():
            calling.cancel()
            raise Lost("the actor died")
        return calling.result()

    def kill(self) -> None:
        self._dead.set()

    async def end(self) -> None:
        await self._host.stop()

    async def _answer(self, method: str, arguments: tuple[object, ...]) -> object:
        await self.heard.wait()
        return await getattr(self._host, method)(*arguments)


class Rig:
    """One engine and the machine of its driver."""

    def __init__(self, folder: Path, unresponsive_s: float = 30.0, **config: object) -> None:
        self.network = network = Network()
        self._folder = folder
        self.node = Node(folder / "node", network)
        model = folder / "model"
        model.mkdir()
        (model / "config.json").write_text('{"max_position_embeddings": 4096}')
        self.first = write_safetensors(model / "model.safetensors", 9)
        self.phases: list[str] = []
        self.nodes: list[str] = []
        self.held = self.asked = 0
        self._transfer_store = TransferStore(model, str(model), folder / "depot", network.put)
        self.engine = RemoteEngine(
            PolicyConfig.model_validate(config),
            self._needs,
            self._transfer_store,
            folder / "logs" / "vllm.log",
            self.phases.append,
            self._hold,
            spawn=self.node.spawn,
            on_node=self.nodes.append,
            admit=self._admit,
            unresponsive_s=unresponsive_s,
            refused_pause_s=0.01,
        )
        self.other_versions: set[str] = set()
        """Names of nodes that have them."""

    def engines(self) -> ClusterEngines:
        """As a run makes them."""
        return ClusterEngines(
            PolicyConfig(), self._transfer_store, self._needs,
            spawn=self.node.spawn, admit=self._admit,
        )  # fmt: skip

    def setup(self, log: str) -> EngineSetup:
        folder = self._folder
        return EngineSetup(
            PolicyConfig(), folder / "model", folder / "s", folder / "logs" / log,
            self.phases.append,
        )  # fmt: skip

    async def publish(self, version: int) -> Path:
        weights = write_safetensors(self._folder / f"{version}.safetensors", 9, version)
        await self.engine.stage(version, weights, "copy")
        await self.engine.switch(version)
        return weights

    async def until_served(self, version: int, weights: Path) -> None:
        async with asyncio.timeout(60):
            while await self.served() != (version, digest(weights)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def served(self) -> tuple[int, str]:
        return await served(self.engine.base_url) if self.engine.alive else (-1, "")

    async def _admit(self, node_id: str) -> None:
        if node_id.removeprefix("id of ") in self.other_versions:
            raise ConfigError("it has ray 1.0, expected ray 2.0")

    async def _needs(self) -> EngineNeeds:
        self.asked += 1
        return EngineNeeds({"engine": 1.0}, 0)

    @contextmanager
    def _hold(self) -> Iterator[None]:
        self.held += 1
        yield


@asynccontextmanager
async def watched(rig: Rig) -> AsyncIterator[asyncio.Task[None]]:
    await rig.engine.start(0, None)
    watching = asyncio.create_task(rig.engine.watch())
    try:
        yield watching
    finally:
        watching.cancel()
        await rig.engine.stop()
        for process in rig.node.processes:
            await process.end()


async def test_an_engine_serves_its_model_then_every_version(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    with pytest.raises(PolicyUnavailable, match="not started yet"):
        rig.engine.base_url  # noqa: B018
    async with watched(rig):
        assert await served(rig.engine.base_url) == (0, digest(rig.first))
        weights = await rig.publish(1)
        assert await served(rig.engine.base_url) == (1, digest(weights))
        assert rig.held == 1
        assert rig.phases[:2] == ["waiting for a node", "on the node node 1"]
        assert rig.nodes == ["id of node 1"]
        await until((tmp_path / "logs" / "vllm.log").exists)
    assert not rig.engine.alive
    assert rig.node.processes[0].is_dead
    assert rig.phases.count("ready") == 1, "what it tells is told once"
    assert (tmp_path / "logs" / "vllm.log").read_text().count("the stub starts") == 1


async def test_weights_stay_on_both_sides_until_they_are_settled(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with watched(rig):
        await rig.publish(1)
        weights = await rig.publish(2)
        first = rig.engine.of_version(1)
        assert first.exists()
        await rig.engine.settle()
        here = rig.engine.of_version(2) / "model.safetensors"
        assert here.read_bytes() == weights.read_bytes()
        assert not first.exists()
        (there,) = (tmp_path / "node").glob("engines/*/*/v*")
        assert there.name == "v2"


async def test_an_engine_on_a_node_takes_no_adapter(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    adapter = Adapter("", 1, tmp_path)
    with pytest.raises(PolicyError, match=r"merged weights alone: policy.serve=weights"):
        await rig.engine.load_adapter(adapter)
    await rig.engine.unload_adapter(adapter)


async def test_one_whose_process_ends_while_it_starts_says_so(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.node.dies_at_once = True
    with pytest.raises(PolicyError, match="process ended while it started: the actor died"):
        await rig.engine.start(0, None)
    assert not rig.engine.alive
    assert rig.node.processes[0].is_dead


async def test_the_engines_of_a_run_have_logs_of_their_own_and_ask_once_what_they_need(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    engines = rig.engines()
    made = [engines(rig.setup(name)) for name in ("vllm.log", "vllm-1.log")]
    placed = asyncio.create_task(engines.a_node())
    await asyncio.sleep(0)
    assert not placed.done()
    for engine in made:
        await engine.start(0, None)
    assert await placed == "id of node 1", "a first one is enough"
    assert await engines.a_node() == "id of node 2"
    assert rig.asked == 1
    assert rig.node.needs == [EngineNeeds({"engine": 1.0}, 0)] * 2
    assert len({engine.key for engine in made}) == 2
    logs = [tmp_path / "logs" / name for name in ("vllm.log", "vllm-1.log")]
    watching = [asyncio.create_task(engine.watch()) for engine in made]
    await until(lambda: all(log.exists() for log in logs))
    for engine, task in zip(made, watching, strict=True):
        task.cancel()
        await engine.stop()
    for process in rig.node.processes:
        await process.end()


async def test_one_that_dies_is_begun_again_with_what_has_become_current(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    closed = []

    async def close() -> None:
        closed.append(True)

    rig.engine.when_lost(close)
    async with watched(rig) as watching:
        await rig.publish(1)
        rig.node.processes[0].kill()
        weights = await rig.publish(2)  # waits for nobody
        await rig.until_served(2, weights)
        assert len(rig.node.processes) == 2
        assert closed
        assert "the actor died; starting another" in rig.phases
        assert not watching.done()


async def test_what_a_lost_process_had_taken_in_is_given_to_the_next_one(tmp_path: Path) -> None:
    """It died between the two steps of a publication."""
    rig = Rig(tmp_path)
    async with watched(rig):
        weights = write_safetensors(tmp_path / "1.safetensors", 9, 1)
        await rig.engine.stage(1, weights, "copy")
        rig.node.processes[0].kill()
        await until(lambda: len(rig.node.processes) == 2 and rig.engine.alive)
        await rig.engine.switch(1)
        assert await rig.served() == (1, digest(weights))


async def test_a_node_that_joins_with_another_version_takes_no_engine(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.other_versions = {"node 2", "node 3"}
    async with watched(rig):
        rig.node.processes[0].kill()
        await until(lambda: len(rig.node.processes) == 4)
        weights = await rig.publish(1)
        await rig.until_served(1, weights)
        assert [process.is_dead for process in rig.node.processes] == [True, True, True, False]
    refused = [line for line in rig.phases if "takes no engine" in line]
    assert refused == [
        "the node node 2 takes no engine: it has ray 1.0, expected ray 2.0; waiting for another "
        "node",
        "the node node 3 takes no engine: it has ray 1.0, expected ray 2.0; waiting for another "
        "node",
    ]


async def test_where_every_node_has_another_version_the_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_PLACING_S", 0.3)
    rig = Rig(tmp_path)
    rig.other_versions = {f"node {number}" for number in range(1, 1000)}
    with pytest.raises(PolicyError, match=r"no node .* within 0.3 s \(the node .* expected ray"):
        await rig.engine.start(0, None)
    assert rig.node.processes[-1].is_dead


async def test_a_silent_one_is_not_waited_for_and_catches_up_when_it_is_heard_again(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, unresponsive_s=0.5)
    closed: list[bool] = []

    async def close() -> None:
        closed.append(rig.engine.alive)

    rig.engine.when_lost(close)
    async with watched(rig) as watching:
        (process,) = rig.node.processes
        process.heard.clear()
        await until(lambda: not rig.engine.alive)
        await until(lambda: closed == [False])  # whoever waits for its answers asks elsewhere
        with pytest.raises(PolicyUnavailable, match="node 1 has not been heard of"):
            rig.engine.base_url  # noqa: B018
        await rig.publish(1)
        weights = await rig.publish(2)
        process.heard.set()
        await rig.until_served(2, weights)
        assert len(rig.node.processes) == 1
        assert not watching.done()


async def test_what_keeps_it_from_starting_names_the_node(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.node.refuses = ConfigError("lower policy.max_model_len")
    with pytest.raises(ConfigError, match=r"lower policy.max_model_len \(on the node node 1\)"):
        await rig.engine.start(0, None)
    for process in rig.node.processes:
        await process.end()


async def test_weights_that_break_on_their_way_are_refused_and_named_with_the_node(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    async with watched(rig):
        rig.network.breaks = True
        with pytest.raises(PolicyError, match=r"not what was sent.* \(on the node node 1\)"):
            await rig.publish(1)
        assert await rig.served() == (0, digest(rig.first))
        rig.network.breaks = False
        weights = await rig.publish(1)
        assert await rig.served() == (1, digest(weights))


async def test_one_that_cannot_be_begun_again_is_given_up(tmp_path: Path) -> None:
    rig = Rig(tmp_path, max_restarts=1)
    async with watched(rig) as watching:
        rig.node.refuses = ConfigError("no room for the cache")
        rig.node.processes[0].kill()
        with pytest.raises(PolicyError, match=r"no room for the cache .* after 1 restarts"):
            await asyncio.wait_for(asyncio.shield(watching), PATIENCE_S)
    assert len(rig.node.processes) == 2


async def test_one_that_is_renewed_comes_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with watched(rig):
        weights = await rig.publish(1)
        await rig.engine.renew(1, rig.engine.of_version(1))
        assert not rig.engine.alive
        await rig.until_served(1, weights)
