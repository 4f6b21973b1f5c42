"""Engines on a cluster of several nodes: Ray is real, what serves is a stub."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from clawrl_gym.cluster.admission import compare_machine
from clawrl_gym.cluster.engine_actor import RayProcess, put_chunk
from clawrl_gym.cluster.learner_away import RayLearnerAway
from clawrl_gym.cluster.nodes import Node, living_nodes
from clawrl_gym.cluster.placement import EngineNeeds, apart, beside, needs_of_engines
from clawrl_gym.config import LearnerConfig, PolicyConfig, TrainerConfig
from clawrl_gym.core.errors import ConfigError, LearnerDied, PolicyError, PolicyUnavailable
from clawrl_gym.inference.generation import Sampling
from clawrl_gym.inference.interface import EngineClient
from clawrl_gym.inference.servers import PolicyServers
from clawrl_gym.inference.transfer_store import TransferStore
from clawrl_gym.rollout.probe import import_path
from clawrl_gym.run.engines import ClusterEngines
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.updates.actor import LearnerSetup
from tests.support.stub_engine import StubEngine, digest
from tests.support.tiny_models import write_safetensors
from tests.support.waiting import until


def node(address: str, **resources: float) -> Node:
    return Node(hashlib.sha224(address.encode()).hexdigest(), address, "box", resources)


def test_engines_go_where_the_resource_is_else_to_gpus() -> None:
    nodes = [node("10.0.0.1", CPU=8, GPU=1), node("10.0.0.2", CPU=8, engine=2)]
    assert needs_of_engines(2, nodes) == EngineNeeds({"engine": 1.0}, 0.0)
    with_gpus = [node("10.0.0.1", CPU=8), node("10.0.0.2", CPU=8, engine=2, GPU=2)]
    assert needs_of_engines(2, with_gpus) == EngineNeeds({"engine": 1.0}, 1.0)
    gpus = [node("10.0.0.1", CPU=8, GPU=4), node("10.0.0.2", CPU=8)]
    assert needs_of_engines(4, gpus) == EngineNeeds({}, 1.0)
    assert needs_of_engines(4, gpus, learner_beside=True) == EngineNeeds({}, 0.9)


def test_a_learner_goes_beside_an_engine_or_to_a_node_of_its_own() -> None:
    nodes = [node("10.0.0.1", CPU=8, GPU=1), node("10.0.0.2", CPU=8, learner=1)]
    strategy = beside(nodes[0].id, nodes)["scheduling_strategy"]
    assert (strategy.node_id, strategy.soft) == (nodes[0].id, False)
    assert beside(nodes[0].id, nodes)["num_gpus"] == 0.1
    assert beside(nodes[1].id, nodes)["num_gpus"] == 0
    assert apart(nodes) == {"resources": {"learner": 1.0}, "num_gpus": 0}
    assert apart(nodes[:1]) == {"num_gpus": 1}
    with pytest.raises(ConfigError, match=r"no node .*`learner` or a GPU \(.*10.0.0.3.*CPU 2\)"):
        apart([node("10.0.0.3", CPU=2)])


def test_a_cluster_without_room_for_the_engines_is_one_line_with_what_its_nodes_have() -> None:
    nodes = [node("10.0.0.1", CPU=8, memory=1e9), node("10.0.0.2", CPU=2, sandbox=100)]
    with pytest.raises(ConfigError) as raised:
        needs_of_engines(2, nodes)
    message = str(raised.value)
    assert "\n" not in message
    assert "box (10.0.0.1): CPU 8; box (10.0.0.2): CPU 2, sandbox 100" in message


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False},
    )
    try:
        ray.init(
            address=cluster.address,
            log_to_driver=False,
            runtime_env={"env_vars": {"PYTHONPATH": import_path()}},
        )
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        shutil.rmtree(Path(tempfile.gettempdir(), "ray"), ignore_errors=True)


@pytest.mark.ray
@pytest.mark.slow
async def test_engines_serve_what_was_trained_and_go_on_elsewhere_when_a_node_dies(
    cluster: Any, tmp_path: Path
) -> None:

    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"max_position_embeddings": 4096}')
    own = write_safetensors(model / "model.safetensors", 9)
    first_node = cluster.add_node(num_cpus=1, resources={"engine": 1}, object_store_memory=80 << 20)
    cluster.add_node(num_cpus=1, resources={"engine": 1}, object_store_memory=80 << 20)

    async def needs() -> EngineNeeds:
        return needs_of_engines(2, living_nodes())

    phases: list[str] = []
    admitted: set[str] = set()

    async def admit(node_id: str) -> None:
        (node,) = [node for node in living_nodes() if node.id == node_id]
        await compare_machine(node, phases.append)
        admitted.add(node_id)

    config = PolicyConfig(servers=2, placement="nodes")
    spawn = partial(RayProcess, make=StubEngine, cache=str(tmp_path / "cache"))
    transfer_store = TransferStore(model, str(model), tmp_path / "depot", put_chunk)
    engines = ClusterEngines(config, transfer_store, needs, spawn=spawn, admit=admit)
    servers = PolicyServers(
        config,
        model,
        tmp_path / "serving",
        tmp_path / "logs",
        phases.append,
        make=engines,
    )
    fleet = servers.fleet(8)
    with pytest.raises(PolicyUnavailable, match="not started yet"):
        await fleet.of("s").render({"messages": []})
    try:
        await servers.start()
        watching = asyncio.create_task(servers.watch())
        assert await all_served(fleet.policies) == {(0, digest(own))}
        weights = write_safetensors(tmp_path / "w.safetensors", 9, 1)
        assert await servers.publish(1, weights) > 0
        assert await all_served(fleet.policies) == {(1, digest(weights))}
        assert len(stub_processes(tmp_path)) >= 2

        cluster.remove_node(first_node, allow_graceful=False)
        cluster.add_node(num_cpus=1, resources={"engine": 1}, object_store_memory=80 << 20)
        newer = write_safetensors(tmp_path / "x.safetensors", 9, 2)
        await servers.publish(2, newer)
        async with asyncio.timeout(90):
            while await all_served(fleet.policies) != {(2, digest(newer))}:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        assert not watching.done()
        watching.cancel()
        assert len(admitted) == 3, "the one that joined later, too"
        assert b"the stub starts" in (tmp_path / "logs" / "vllm.log").read_bytes()
    finally:
        await servers.stop()
        await servers.close_clients()
    await until(lambda: not stub_processes(tmp_path))
    assert not list((tmp_path / "cache" / "engines").iterdir())


NOTHING = SampleBatch.of([])


@pytest.mark.ray
@pytest.mark.slow
async def test_a_learner_on_another_node_sends_its_files_and_is_restarted_when_it_dies(
    cluster: Any, tmp_path: Path
) -> None:
    import ray

    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    own = write_safetensors(model / "model.safetensors", 9, 4)
    cluster.add_node(num_cpus=1, resources={"learner": 1}, object_store_memory=80 << 20)

    async def place() -> dict[str, Any]:
        return apart(living_nodes())

    learner = RayLearnerAway(
        LearnerSetup(
            TrainerConfig(), LearnerConfig(backend="simulated", simulated_step_s=0), 0, "cpu", 1.0
        ),
        TransferStore(model, str(model), tmp_path / "depot", put_chunk),
        "auto",
        place,
        cache=tmp_path / "cache",
    )
    await learner.ready()
    checkpoint = tmp_path / "checkpoints" / "000001"
    await learner.step(NOTHING, 0)
    await (await learner.publish(as_adapter=False)).to_folder(tmp_path / "new")
    assert (tmp_path / "new" / own.name).read_bytes() == own.read_bytes()
    await learner.save_checkpoint(str(checkpoint))
    assert (checkpoint / "updates").read_text() == "1"

    ray.kill(learner._actor)
    with pytest.raises(LearnerDied):
        await learner.step(NOTHING, 1)
    await learner.restart(str(checkpoint))
    await learner.step(NOTHING, 1)
    await learner.save_checkpoint(str(checkpoint))
    assert (checkpoint / "updates").read_text() == "2"


async def all_served(clients: tuple[EngineClient, ...]) -> set[tuple[int, str]]:
    """Versions and digests of what answers; of an engine that is away, (-1, "")."""
    return {await served(client) for client in clients}


async def served(client: EngineClient) -> tuple[int, str]:
    try:
        reply = await client.generate([1], Sampling(0, 1, 2), version=0)
    except PolicyError:
        return (-1, "")
    assert reply.text is not None
    return reply.versions_T[0], reply.text


def stub_processes(folder: Path) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if "tests.support.stub_engine" in (process.info["cmdline"] or [])
        and str(folder) in " ".join(process.info["cmdline"])
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]
