"""What serves shows no key, listens on this machine alone, and writes for its owner alone."""

import os
import stat
from pathlib import Path

import pytest

from clawrl_gym.core.processes.descendants import descendants
from tests.e2e.serving import Serving
from tests.support.sockets import is_loopback, listening

pytestmark = [pytest.mark.slow, pytest.mark.vllm, pytest.mark.ray, pytest.mark.timeout(600)]


def test_every_port_is_on_loopback(serving: Serving) -> None:
    family = {serving.process.pid, *descendants(serving.process.pid)}
    found = listening(family)
    assert {"gcs_server", "raylet"} <= {name for name, _ in found}
    assert {(name, ip) for name, ip in found if not is_loopback(ip)} == set()


def test_ray_wants_a_token_of_this_run(serving: Serving) -> None:
    (gcs, *_) = serving.pids("gcs_server")
    variables = Path(f"/proc/{gcs}/environ").read_text().split("\0")
    assert "RAY_AUTH_MODE=token" in variables
    (token,) = (v.partition("=")[2] for v in variables if v.startswith("RAY_AUTH_TOKEN="))
    assert len(token) >= 32


def test_the_key_is_nowhere_but_in_its_file(serving: Serving) -> None:
    serving.http.get("/v1/models", headers={"Authorization": "Bearer wrong"})
    assert serving.key not in "\n".join(serving.lines)
    holders = [
        path.name
        for path in serving.folder.rglob("*")
        if path.is_file() and serving.key.encode() in path.read_bytes()
    ]
    assert holders == ["gateway.key"]
    assert any("gateway.key" in line for line in serving.lines), "it is told where it is"


def test_what_it_writes_is_its_owners_alone(serving: Serving) -> None:
    for place, _, names in os.walk(serving.folder):
        paths = [Path(place), *(Path(place, name) for name in names)]
        open_to_others = [
            str(path)
            for path in paths
            if not path.is_symlink() and path.exists() and path.stat().st_mode & 0o077
        ]
        assert open_to_others == []
    assert stat.S_IMODE(serving.folder.stat().st_mode) == 0o700
