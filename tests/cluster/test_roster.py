"""Workers on the nodes of a cluster: as nodes join and die, or cannot be used."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from clawrl_gym.cluster import roster as rosters
from clawrl_gym.cluster.nodes import Node
from clawrl_gym.cluster.roster import Roster
from clawrl_gym.core.errors import ConfigError, ConfigErrors, EnvError
from clawrl_gym.core.types import Episode, StopReason, TaskRef
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.rollout.collection.pool import EpisodeRunner, WorkerPool
from clawrl_gym.rollout.episodes.episode import EpisodeSpec
from clawrl_gym.rollout.episodes.stage import Stages, one_stage
from tests.support.waiting import until

STAGES = one_stage(TerminalEnvConfig())


def node(name: str, **resources: float) -> Node:
    return Node(name, f"10.0.0.{name[-1]}", name, {"CPU": 4.0} | resources)


@dataclass
class FakeCluster:
    nodes: tuple[Node, ...] = ()
    address: str = "10.0.0.1:6379"
    ends: list[str] = field(default_factory=list)

    def lose(self, why: str) -> None:
        self.ends.append(why)


@dataclass
class FakeWorker(EpisodeRunner):
    """Runs until `go`."""

    node: Node
    slots: int
    go: asyncio.Event
    is_closed: bool = False

    async def ready(self) -> None:
        pass

    async def run(self, spec: EpisodeSpec) -> Episode:
        await self.go.wait()
        return Episode(spec.session_id, spec.group_id, spec.task, StopReason.TERMINATED, 1.0, 1)

    async def close(self) -> None:
        self.is_closed = True


class Scene:
    """A roster over a cluster of fakes."""

    def __init__(self, *nodes: Node, node_timeout_s: float = 30.0) -> None:
        self.cluster = FakeCluster(nodes)
        self.workers: list[FakeWorker] = []
        self.lines: list[str] = []
        self.bad: dict[str, list[Exception]] = {}
        self.go = asyncio.Event()
        self.pool = WorkerPool()
        self.roster = Roster(
            self.cluster, self.pool, STAGES, self._admit, self._make,
            workers=2, slots=8, node_timeout_s=node_timeout_s, say=self.lines.append,
        )  # fmt: skip

    async def _admit(self, node: Node) -> Stages:
        if self.bad.get(node.id):
            raise self.bad[node.id].pop(0)
        return STAGES

    def _make(self, node: Node, stages: Stages, slots: int) -> FakeWorker:
        self.workers.append(FakeWorker(node, slots, self.go))
        return self.workers[-1]

    @asynccontextmanager
    async def started(self) -> AsyncIterator["Scene"]:
        async with AsyncExitStack() as stack:
            await self.roster.start(stack)
            yield self

    def begin(self, name: str) -> "asyncio.Task[Episode]":
        spec = EpisodeSpec(name, 0, TaskRef("a", 0, "train"), max_turns=1, timeout_s=5.0)
        return asyncio.create_task(self.pool.run(spec))

    async def until_capacity(self, count: int) -> None:
        await until(lambda: self.pool.capacity == count)


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rosters, "_LOOK_S", 0.001)


async def test_each_node_has_workers_by_its_resource_and_its_cores() -> None:
    scene = Scene(
        node("n1", sandbox=64),
        node("n2", sandbox=6),
        node("n3", sandbox=64, CPU=1.0),
        node("n4"),
        node("n5", docker=64),
    )
    async with scene.started():
        await scene.until_capacity(16 + 6 + 8)
        shares = {(worker.node.id, worker.slots) for worker in scene.workers}
        assert shares == {("n1", 8), ("n2", 3), ("n3", 8)}
    assert all(worker.is_closed for worker in scene.workers)


async def test_a_node_that_dies_loses_its_episodes_at_once_and_one_that_joins_is_used() -> None:
    async with Scene(node("n1", sandbox=2), node("n2", sandbox=2)).started() as scene:
        await scene.until_capacity(4)
        episodes = [scene.begin(f"e{number}") for number in range(6)]
        await asyncio.sleep(0.01)
        scene.cluster.nodes = scene.cluster.nodes[:1]
        await scene.until_capacity(2)
        scene.cluster.nodes += (node("n3", sandbox=3),)
        await scene.until_capacity(2 + 3)
        scene.go.set()
        ended = await asyncio.gather(*episodes)
    lost = [episode for episode in ended if episode.error]
    assert [episode.stop_reason for episode in lost] == [StopReason.ENV_ERROR] * 2
    assert "on node n2 (10.0.0.2) did not answer" in (lost[0].error or "")
    assert scene.lines[-2] == "node n2 (10.0.0.2) ended: its episodes are run again on others"
    assert scene.lines[-1].startswith("node n3 (10.0.0.3): 2 workers with 3 environments")
    assert not scene.cluster.ends


async def test_a_node_that_cannot_be_used_is_told_once_and_left_out() -> None:
    scene = Scene(node("n1", sandbox=2), node("n2", sandbox=2))
    scene.bad["n1"] = [ConfigError("it has ray 1.0, expected ray 2.0")]
    async with scene.started():
        await scene.until_capacity(2)
    assert [line for line in scene.lines if "n1" in line] == [
        "node n1 (10.0.0.1) cannot be used: it has ray 1.0, expected ray 2.0"
    ]


async def test_what_may_pass_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rosters, "growing_pauses_s", lambda first_s, longest_s: iter([0.0] * 9))
    scene = Scene(node("n1", sandbox=2))
    scene.bad["n1"] = [RuntimeError("no worker process yet"), TimeoutError()]
    async with scene.started():
        assert scene.pool.capacity == 2
    assert "is not ready: RuntimeError: no worker process yet" in scene.lines[0]


async def test_a_cluster_on_which_nothing_can_run_ends_the_start() -> None:
    scene = Scene(node("n1", sandbox=2), node("n2"))
    scene.bad["n1"] = [EnvError("bubblewrap is not installed")]
    with pytest.raises(ConfigErrors, match=r"node n1 .* cannot be used: bubblewrap is not"):
        async with scene.started():
            pass
    nobody = Scene(node("n2"), node("n3", docker=2.0), node_timeout_s=0.01)
    with pytest.raises(ConfigErrors, match=r"has the resource 'sandbox', .* docker 2\): join"):
        async with nobody.started():
            pass
    assert "waiting 0.01 s for one" in nobody.lines[0]


async def test_a_start_that_is_given_up_leaves_nothing_waiting() -> None:
    before = asyncio.all_tasks()
    scene = Scene(node("n2"))

    async def start() -> None:
        async with scene.started():
            pass

    starting = asyncio.create_task(start())
    await until(lambda: scene.lines)
    starting.cancel()
    await asyncio.wait({starting})
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_a_run_whose_last_node_is_gone_ends_after_a_while() -> None:
    async with Scene(node("n1", sandbox=2), node_timeout_s=0.01).started() as scene:
        scene.cluster.nodes = ()
        await until(lambda: scene.cluster.ends)
    assert (
        "no node of the cluster at 10.0.0.1:6379 has the resource 'sandbox'"
        in (scene.cluster.ends[0])
    )
