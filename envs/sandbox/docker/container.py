"""One container: made, attached, started, its processes killed, removed.

It lives as long as its owner's connection: at the end of its input everything in it is killed,
and it removes itself.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import socket
import time
from dataclasses import dataclass
from functools import cached_property

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox import processes
from clawrl_gym.envs.sandbox.docker import ownership
from clawrl_gym.envs.sandbox.docker.changes import ContainerChanges, EngineChanges, LayerChanges
from clawrl_gym.envs.sandbox.docker.engine import engine, engine_call, error_text
from clawrl_gym.envs.sandbox.docker.host import HostView
from clawrl_gym.envs.sandbox.docker.init_process import INIT_SCRIPT, KILL_SCRIPT
from clawrl_gym.envs.sandbox.docker.seccomp_profile import security_options
from clawrl_gym.envs.sandbox.docker.transport import ContainerTransport
from clawrl_gym.envs.sandbox.interface import Limits, SandboxSpec
from clawrl_gym.envs.sandbox.loopback import listener_in

_OWN_PROCESSES = 3
"""Init process, feeder and shell: not counted against the sandbox's limit."""
_MAX_OPEN_FILES = 4_096
_REMOVE_S, _REMOVE_PAUSE_S = 30.0, 0.02
_OOM_SCORE = 500
"""OOM score: when the host runs out of memory, sandboxes go before what trains on them."""
_NO_LOG = {"Type": "none"}
"""The engine's default would write everything that is printed to the host's disk."""

_KILL_ROOM = 8
"""Processes allowed in addition while a command of ours runs in a container that may be full."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """Settings that a container is made from; its successor is made from the same."""

    image: str
    limits: Limits
    sandbox: SandboxSpec
    network: bool
    ttl_s: float

    def config(self, *, quota: bool) -> dict[str, object]:
        """Configuration in the engine's API. `quota`: with a limit on what is written."""
        limits, memory = self.limits, self.limits.memory_mb << 20
        ulimits = {"core": 0, "nofile": _MAX_OPEN_FILES, "fsize": limits.disk_mb << 20}
        host: dict[str, object] = {
            "AutoRemove": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": security_options(),
            "NetworkMode": "default" if self.network else "none",
            "Memory": memory,
            "MemorySwap": memory,
            "NanoCpus": int(limits.cpus * 1e9),
            "PidsLimit": limits.pids + _OWN_PROCESSES,
            "OomScoreAdj": _OOM_SCORE,
            "ShmSize": min(limits.disk_mb, limits.memory_mb) << 20,
            "LogConfig": _NO_LOG,
            "Ulimits": [{"Name": n, "Soft": v, "Hard": v} for n, v in ulimits.items()],
        }
        if self.sandbox.agent_mounts:
            shown = self.sandbox.agent_mounts.items()
            host["Binds"] = [f"{folder}:{inside}:ro" for inside, folder in shown]
        if quota:
            host["StorageOpt"] = {"size": f"{limits.disk_mb}M"}
        config: dict[str, object] = {
            "Image": self.image,
            "Entrypoint": ["/bin/bash", "--noprofile", "--norc", "-c", INIT_SCRIPT],
            "Cmd": [],
            "Env": [f"{name}={value}" for name, value in self.sandbox.env.items()],
            "WorkingDir": self.sandbox.workdir,
            "Hostname": "sandbox",
            "Labels": ownership.labels(self.ttl_s),
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "OpenStdin": True,
            "StdinOnce": True,
            "Healthcheck": {"Test": ["NONE"]},
            "HostConfig": host,
        }
        return config if self.sandbox.user is None else config | {"User": self.sandbox.user}


class Container:
    """A container that this process owns; made by `start`."""

    def __init__(self, spec: ContainerSpec, identity: str) -> None:
        self.spec = spec
        self.id = identity
        self.expires_s = time.time() + spec.ttl_s
        self._root_fd = -1

    @classmethod
    def create(cls, spec: ContainerSpec) -> Container:
        """Raises docker's ImageNotFound for an image that is not there; then nothing is left."""
        name = f"clawrl-{secrets.token_hex(8)}"
        try:
            return cls(spec, _create(spec, name))
        except BaseException:
            remove(name)  # an engine that answered too late may have made it
            raise

    def start(self) -> ContainerTransport:
        """Attach first, so that nothing is missed and the owner's death is always noticed."""
        api = engine().api
        with engine_call(f"could not start a container of the image {self.spec.image!r}"):
            streams = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            attached = api.attach_socket(self.id, params=streams)
            stream = ContainerTransport(_own_socket(attached))
            try:
                api.start(self.id)
            except BaseException:
                stream.close()
                raise
            return stream

    def listener(self) -> socket.socket:
        """A listening socket on the container's own loopback. Raises SandboxError."""
        if not self._host.pid:
            raise SandboxError(
                "an agent inside a container needs an engine on this machine, and root: run as "
                "root, or take sandbox=bubblewrap"
            )
        return listener_in(self._host.pid)

    def kill_all_but(self, spared: set[int]) -> None:
        """Kill all processes but the first and those that have one of these numbers inside.

        Raises SandboxError when the container has ended: its processes' numbers are others' then.
        """
        spared = spared | {1}
        host = self._host
        if host.pid:

            def running_pids() -> list[int]:
                pids = processes.namespace_members(host.pid)
                if not processes.alive(host.process):
                    raise SandboxError(f"the sandbox's container ended: {self.death_reason()}")
                return [pid for pid in pids if processes.inner_pid(pid) not in spared]

            processes.kill_all(running_pids, set(), 0)
        else:
            self._kill_inside(spared)

    def _kill_inside(self, spared: set[int]) -> None:
        """Kill from inside, after making room: a container may be full of processes."""
        api = engine().api
        room = self.spec.limits.pids + _OWN_PROCESSES
        command = [
            "/bin/bash",
            "--noprofile",
            "--norc",
            "-c",
            KILL_SCRIPT,
            " ".join(map(str, spared)),
        ]
        with engine_call(f"could not kill what runs in the container {self.id[:12]}"):
            self._limit_processes(room + _KILL_ROOM)
            execution = api.exec_create(self.id, command, stdout=False, stderr=False)
            api.exec_start(execution["Id"])
            self._limit_processes(room)

    def _limit_processes(self, most: int) -> None:
        api = engine().api
        url = f"{api.base_url}/v{api.api_version}/containers/{self.id}/update"
        api.post(url, json={"PidsLimit": most}, timeout=api.timeout).raise_for_status()

    def changes(self) -> ContainerChanges:
        """Changes in what is carried; nothing but the first process may run."""
        host = self._host
        if host.layer:
            layer = LayerChanges(self.id, host.volumes, host.layer)
            if layer.is_whole:
                return layer
        return EngineChanges(self.id, host.volumes)

    @property
    def root_fd(self) -> int:
        """The root folder where it is in reach without the engine, -1 where not."""
        if self._root_fd < 0 and self._host.root:
            with engine_call(f"could not reach the files of the container {self.id[:12]}"):
                self._root_fd = os.open(self._host.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return self._root_fd

    @cached_property
    def _host(self) -> HostView:
        with engine_call(f"the container {self.id[:12]}"):
            return HostView.of(engine().api.inspect_container(self.id))

    def death_reason(self) -> str:
        """Reason of its end in words, after its stream has ended."""
        if time.time() > self.expires_s:
            return f"its time to live of {self.spec.ttl_s:.0f} s is over"
        try:
            engine().api.inspect_container(self.id)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is the answer)
            if getattr(getattr(error, "response", None), "status_code", 0) != 404:
                return f"the Docker engine says: {error_text(error)}"
        return "it was ended from outside, or its first process was killed for memory"

    def remove(self) -> None:
        """End it and wait until nothing is left; idempotent, never raises."""
        if self._root_fd >= 0:
            os.close(self._root_fd)
            self._root_fd = -1
        remove(self.id)


_quotas: dict[str, bool] = {}
"""Whether the engine at an address can limit what a container writes."""


def has_quota() -> bool:
    """Whether containers made here have a hard limit on what they write."""
    return _quotas.get(engine().api.base_url, False)


def _create(spec: ContainerSpec, name: str) -> str:
    """Create it, with a quota if the engine's storage has one, which only trying tells."""
    from docker.errors import APIError

    api = engine().api
    if _quotas.get(api.base_url, True):
        try:
            container = api.create_container_from_config(spec.config(quota=True), name=name)
        except APIError as error:
            if "storage-opt" not in error_text(error) and "StorageOpt" not in error_text(error):
                raise
            _quotas[api.base_url] = False
        else:
            _quotas[api.base_url] = True
            return str(container["Id"])
    return str(api.create_container_from_config(spec.config(quota=False), name=name)["Id"])


def remove(identity: str) -> None:
    """Best effort: what is left after an engine's failure, the reaper removes."""
    deadline_s = time.monotonic() + _REMOVE_S
    with contextlib.suppress(Exception):
        while time.monotonic() < deadline_s and not _removed(identity):
            time.sleep(_REMOVE_PAUSE_S)


def _removed(identity: str) -> bool:
    """False while the engine is removing it on its own account."""
    from docker.errors import APIError, NotFound

    try:
        engine().api.remove_container(identity, force=True, v=True)
    except NotFound:
        return True
    except APIError as error:
        if error.status_code != 409:
            raise
        return False
    return True


def _own_socket(attached: io.RawIOBase | socket.socket) -> socket.socket:
    """A socket of our own on the attached connection; what the client wrapped it in is closed."""
    inner = getattr(attached, "_sock", attached)
    copy = socket.socket(fileno=os.dup(inner.fileno()))
    response = getattr(attached, "_response", None)
    if response is not None:
        response.close()
    attached.close()
    return copy
