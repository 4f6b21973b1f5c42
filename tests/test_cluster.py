"""Ray as a run has it: on this machine alone, whatever the process has done with Ray before."""

import os
import tempfile
from pathlib import Path

import pytest

from clawrl_gym.core.descendants import descendants
from clawrl_gym.run.cluster import Cluster
from tests.e2e.runs import still_alive
from tests.sockets import is_loopback, listening


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
