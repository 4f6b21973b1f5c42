"""What serves shows no key, listens on this machine alone, and writes for its owner alone."""

import ipaddress
import os
import stat
from pathlib import Path

import psutil
import pytest

from clawrl_gym.core.descendants import descendants
from tests.e2e.serving import Serving

pytestmark = [pytest.mark.slow, pytest.mark.vllm, pytest.mark.ray, pytest.mark.timeout(600)]


def test_every_port_is_on_loopback(serving: Serving) -> None:
    family = {serving.process.pid, *descendants(serving.process.pid)}
    listening = {
        (psutil.Process(socket.pid).name(), socket.laddr[0])
        for socket in psutil.net_connections("inet")
        if socket.pid in family and socket.status == psutil.CONN_LISTEN and socket.laddr
    }
    assert {"gcs_server", "raylet"} <= {name for name, _ in listening}
    others = {(name, ip) for name, ip in listening if not _is_loopback(ip)}
    assert others == set()


def _is_loopback(ip: str) -> bool:
    address = ipaddress.ip_address(ip)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


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
