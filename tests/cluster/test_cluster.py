"""Ray as a run has it: on this machine alone, whatever the process has done with Ray before."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from clawrl_gym.cluster import cluster as module
from clawrl_gym.cluster.cluster import Cluster
from clawrl_gym.cluster.nodes import Node
from clawrl_gym.config import RayConfig
from clawrl_gym.core.errors import ClusterError, ConfigError, HeadLost
from clawrl_gym.core.processes.descendants import descendants
from tests.e2e.runs import still_alive
from tests.support.sockets import is_loopback, listening


def rays_folders() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("clawrl-ray-*"))


def words_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


@pytest.mark.ray
async def test_it_starts_again_and_again_on_loopback_with_another_token() -> None:
    import ray

    tokens = set()
    for _ in range(2):
        before = descendants(os.getpid())
        cluster = Cluster()
        await cluster.start()
        started = descendants(os.getpid()) - before
        try:
            found = listening({os.getpid(), *descendants(os.getpid())})
            assert "gcs_server" in {name for name, _ in found}
            assert {(name, ip) for name, ip in found if not is_loopback(ip)} == set()
            assert ray.is_initialized()
            programs = {part for pid in started for part in words_of(pid)}
            assert any(part.endswith("/raylet") for part in programs)
            for name in ("monitor.py", "log_monitor.py", "dashboard.py"):
                assert not any(part.endswith(f"/{name}") for part in programs), name
            tokens.add(os.environ["RAY_AUTH_TOKEN"])
            folder = next(
                folder
                for folder in rays_folders()
                if Path(ray._private.worker._global_node.get_session_dir_path()).is_relative_to(
                    folder
                )
            )
        finally:
            cluster.stop()
        assert still_alive(started) == set(), "its agents have ended, too"
        assert not folder.exists()
    assert len(tokens) == 2


JOINED = RayConfig(address="head:6379", node_timeout_s=7)


async def needing(cluster: Cluster) -> BaseException:
    """What ends something that goes on for ever with this cluster."""
    with pytest.raises(ExceptionGroup) as lost:
        await _for_ever(cluster)
    (error,) = lost.value.exceptions
    return error


async def _for_ever(cluster: Cluster) -> None:
    async with cluster.required():
        await asyncio.Event().wait()


async def test_what_needs_a_cluster_ends_for_the_first_reason_why_it_is_lost() -> None:
    cluster = Cluster()
    async with cluster.required():
        pass  # it may end by itself
    cluster.lose("Ray's raylet ended")
    cluster.lose("Ray's gcs_server ended")
    error = await needing(cluster)
    assert type(error) is ClusterError
    assert str(error) == "Ray's raylet ended"
    cluster.stop()
    cluster.stop()


async def test_a_head_that_is_silent_for_long_is_lost_and_one_that_is_heard_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.01)
    own = Cluster()
    async with own.required():
        await asyncio.sleep(0.05)  # nobody has to be heard of on one machine
    error = await needing(Cluster(JOINED))
    assert isinstance(error, HeadLost)
    assert str(error).startswith("the head of the cluster at head:6379 has not answered for 20 s")


async def test_a_node_that_has_just_joined_is_waited_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(JOINED)
    assert (cluster.is_joined, cluster.node_timeout_s, cluster.own_node) == (True, 7, None)
    here = Node("a", "10.0.0.1", "box", {"CPU": 1})
    cluster.nodes = (Node("b", "10.0.0.2", "box", {}), here)
    assert await cluster.node("a") is here
    waiting = asyncio.create_task(cluster.node("c"))
    await asyncio.sleep(0)
    late = Node("c", "10.0.0.3", "box", {})
    cluster.nodes = (*cluster.nodes, late)
    assert await waiting is late
    monkeypatch.setattr(module, "_APPEARS_S", 0.02)
    with pytest.raises(ConfigError, match="it has left the cluster"):
        await cluster.node("d")
