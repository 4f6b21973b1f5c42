"""Ray as a run has it: on this machine alone, whatever the process has done with Ray before."""

import os

import pytest

from clawrl_gym.core.descendants import descendants
from clawrl_gym.run.cluster import Cluster
from tests.sockets import is_loopback, listening


@pytest.mark.ray
async def test_it_starts_again_and_again_on_loopback_with_another_token() -> None:
    import ray

    tokens = set()
    for _ in range(2):
        cluster = Cluster()
        await cluster.start()
        try:
            found = listening({os.getpid(), *descendants(os.getpid())})
            assert "gcs_server" in {name for name, _ in found}
            assert {(name, ip) for name, ip in found if not is_loopback(ip)} == set()
            assert ray.is_initialized()
            tokens.add(os.environ["RAY_AUTH_TOKEN"])
        finally:
            cluster.stop()
    assert len(tokens) == 2
