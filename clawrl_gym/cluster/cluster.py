"""The Ray cluster that workers, learner and engines of a run live in.

One of the run's own ends with it, listens on loopback alone and answers only who knows its token;
telemetry and dashboard are off, and import paths reach its workers through PYTHONPATH, never
through driver state. One that is joined is somebody else's: the run brings its modules to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from clawrl_gym.cluster import joining
from clawrl_gym.cluster.joining import Membership
from clawrl_gym.cluster.modules import stage
from clawrl_gym.cluster.nodes import Node, living_nodes, own_node_id
from clawrl_gym.config import RayConfig
from clawrl_gym.core import redact
from clawrl_gym.core.errors import (
    ClusterError,
    ConfigError,
    HeadLost,
    boundary,
)
from clawrl_gym.core.files.scratch import Scratch
from clawrl_gym.core.processes.descendants import command_of, descendants
from clawrl_gym.core.processes.interrupt import INTERRUPTS
from clawrl_gym.core.processes.reaper import Reaper
from clawrl_gym.envs.sandbox.cgroup import remove_groups_of_the_dead
from clawrl_gym.rollout.probe import import_path

_OBJECT_STORE_BYTES = 128 << 20
_LAST_WORDS = (b"Fatal Python error", b"Traceback (most", b"*** SIG")
_RAY_PROCESSES = ("gcs_server", "raylet")
_JOIN_S = 60.0
_LOOK_S = 1.0
_APPEARS_S = 10.0
_SILENCE_S = 20.0
"""Ray itself ends this process after a minute without its head."""


class Cluster:
    """Ray, started or joined, held and left by a thread of its own.

    Nobody waits for a start that is no longer wanted: the thread ends it as soon as it can.
    """

    def __init__(
        self,
        config: RayConfig | None = None,
        modules: Iterable[str] = (),
        kept_logs: Path | None = None,
    ) -> None:
        """`modules`: those of the user's own that nodes of a joined cluster have to get.
        `kept_logs`: where Ray's own logs are put when the run's own fails; else they go with it."""
        self._config = config or RayConfig()
        self._modules = frozenset(modules)
        self._kept_logs = kept_logs
        self._unwanted = threading.Event()
        self._thread: threading.Thread | None = None
        self._up = False
        self._watched = contextlib.ExitStack()
        self._lost = asyncio.Event()
        self._why_lost = ""
        self._has_head = True
        self._heard_s = 0.0
        self.address = self._config.address
        """HOST:PORT of the head of a joined cluster."""
        self.host = "127.0.0.1"
        """Address of this node for the others."""
        self.nodes: tuple[Node, ...] = ()
        """Living nodes of a joined cluster."""
        self.own_node: str | None = None
        """The id of this machine's node in a joined cluster."""

    @property
    def is_joined(self) -> bool:
        """Whether it has other machines, and outlives the run."""
        return self._config.is_joined

    @property
    def node_timeout_s(self) -> float:
        return self._config.node_timeout_s

    async def node(self, node_id: str) -> Node:
        """One of a joined cluster, which may have joined just now. Raises ConfigError when it is
        not there."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_APPEARS_S):
                while True:
                    for node in self.nodes:
                        if node.id == node_id:
                            return node
                    await asyncio.sleep(_LOOK_S / 4)
        raise ConfigError("it has left the cluster")

    async def start(self) -> None:
        """Start or join it; takes some seconds. Raises ClusterError, or ConfigError for a cluster
        that cannot be joined."""
        loop = asyncio.get_running_loop()
        started: asyncio.Future[None] = loop.create_future()

        def hold() -> None:  # Ray's processes die with the thread that started them
            error = None
            scratch = Scratch("ray")
            reaper = Reaper(scratch.path)  # Ray's agents outlive a killed raylet by a minute
            try:
                self._begin(scratch.path)
            except Exception as failure:  # noqa: BLE001 - raised below, in the loop
                error = failure
                self._keep_logs(scratch.path)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(_settle, started, error)
            if error is None and self.is_joined:
                self._follow(loop)
            self._unwanted.wait()
            if self._why_lost or _has_crashed(scratch.path):
                self._keep_logs(scratch.path)
            if self._has_head:
                _stop_ray()
            reaper.end_all()
            scratch.remove()
            remove_groups_of_the_dead()  # Ray kills what its workers have started

        self._thread = threading.Thread(target=hold, name="ray", daemon=True)
        self._thread.start()
        doing = f"joining the cluster at {self.address}" if self.is_joined else "starting Ray"
        with boundary(ClusterError, doing):
            await self._begun(started)
            self._heard_s = time.monotonic()
            if not self.is_joined:
                self._notice_ends()
        self._up = True
        INTERRUPTS.renew()  # Ray answers SIGTERM with a trace of its own, and aborts

    async def _begun(self, started: asyncio.Future[None]) -> None:
        """A start ends by itself; joining may wait for an answer that never comes."""
        if not self.is_joined:
            return await started
        try:
            async with asyncio.timeout(_JOIN_S):
                await started
        except TimeoutError:
            raise ClusterError(
                f"the cluster at {self.address} did not let this machine join within {_JOIN_S:g} s:"
                " its head is overloaded, or a firewall closes ports between its nodes"
            ) from None

    def _begin(self, folder: Path) -> None:
        if not self.is_joined:
            return _start_ray(folder)
        member = joining.membership(self._config)
        self.address, self.host = member.address, member.host
        _join_ray(member, self._modules, folder / "modules")
        self.own_node = own_node_id()
        self.nodes = living_nodes()

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch which nodes live, until the cluster is closed."""
        while not self._unwanted.wait(_LOOK_S):
            with contextlib.suppress(Exception):  # the head is away: `_watch` counts the seconds
                nodes = living_nodes()
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._hear, nodes)

    def _hear(self, nodes: tuple[Node, ...]) -> None:
        self.nodes, self._heard_s = nodes, time.monotonic()
        if self.own_node not in {node.id for node in nodes}:
            self.lose("Ray on this machine ended, so the run is no longer part of its cluster")

    @asynccontextmanager
    async def required(self) -> AsyncIterator[None]:
        """End the block with a ClusterError when Ray ends under it."""
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch())
            yield
            watching.cancel()

    def stop(self) -> None:
        """End what is the run's own, leave what is not; idempotent.

        Without its head a joined cluster cannot be left: Ray ends the process within a minute.
        """
        self._watched.close()
        self._unwanted.set()
        if self._thread is not None and self._up and self._has_head:
            self._thread.join()

    def lose(self, why: str) -> None:
        """End whatever is `required`, for this reason."""
        self._why_lost = self._why_lost or why
        self._lost.set()

    async def _watch(self) -> None:
        while not self._lost.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._lost.wait()
            if self.is_joined and time.monotonic() - self._heard_s > _SILENCE_S:
                self._has_head = False
                self.lose(
                    f"the head of the cluster at {self.address} has not answered for "
                    f"{_SILENCE_S:g} s: it ended, or the network between is cut"
                )
        raise ClusterError(self._why_lost) if self._has_head else HeadLost(self._why_lost)

    def _keep_logs(self, folder: Path) -> None:
        if self._kept_logs is not None and not self.is_joined:
            with contextlib.suppress(OSError, shutil.Error):  # perhaps it is the disk that is full
                shutil.copytree(folder / "session_latest/logs", self._kept_logs, dirs_exist_ok=True)

    def _notice_ends(self) -> None:
        """Have the loop say when a process ends that the run's own cluster stands on."""
        loop = asyncio.get_running_loop()
        for pid in descendants(os.getpid()):
            if (name := command_of(pid)) in _RAY_PROCESSES:
                descriptor = os.pidfd_open(pid)
                self._watched.callback(os.close, descriptor)
                loop.add_reader(descriptor, self._lose_process, descriptor, name)
                self._watched.callback(loop.remove_reader, descriptor)

    def _lose_process(self, descriptor: int, name: str) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        self.lose(
            f"Ray's {name} ended: it was killed, or there was no memory for it"
            + (f"; Ray's own logs: {self._kept_logs}" if self._kept_logs else "")
        )


def _has_crashed(folder: Path) -> bool:
    """Whether a process of the cluster has said something at its end."""
    return any(
        sign in path.read_bytes()
        for path in folder.glob("session_latest/logs/worker-*.err")
        for sign in _LAST_WORDS
    )


def _start_ray(folder: Path) -> None:
    """Start Ray, with all that it and its actors put into temporary folders below `folder`."""
    joining.authenticate(secrets.token_hex(32))
    # Ray takes loopback for an address of the network, unless told that there is no other machine.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    # Workers in advance, one a core, would idle for the whole run: actors have environments of
    # their own and take none of them.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    _prepare_ray(alone=True)
    import ray

    temporary = folder / "tmp"
    temporary.mkdir()
    for is_last in (False, True):
        try:
            with _needed_processes():
                ray.init(
                    address="local",
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    object_store_memory=_OBJECT_STORE_BYTES,
                    _temp_dir=str(folder),
                    runtime_env={
                        "env_vars": {"PYTHONPATH": import_path(), "TMPDIR": str(temporary)},
                    },
                )
            return
        except Exception:
            if is_last:
                raise
            ray.shutdown()  # on a busy machine its processes are too late for each other


@contextlib.contextmanager
def _needed_processes() -> Iterator[None]:
    """No others are started: one that asks clouds for machines, one that forwards workers' logs,
    and a dashboard without pages take a third of the start and 150 MiB."""
    node: Any = importlib.import_module("ray._private.node").Node
    names = ("start_monitor", "start_log_monitor", "start_api_server")
    starts = {name: getattr(node, name) for name in names if hasattr(node, name)}  # Ray's own names
    for name in starts:
        setattr(node, name, _not_started)
    try:
        yield
    finally:
        for name, start in starts.items():
            setattr(node, name, start)


def _not_started(node: object, **settings: object) -> None:
    pass


def _join_ray(member: Membership, modules: Iterable[str], folder: Path) -> None:
    """Join Ray. Raises ConfigError where it is another version."""
    redact.install([member.token])
    joining.authenticate(member.token)
    os.environ.pop("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", None)
    _prepare_ray(alone=False)
    import ray

    brings = {"working_dir": str(folder)} if stage(modules, folder) else {}
    try:
        ray.init(
            address=member.address,
            _node_ip_address=member.host,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env=brings,
        )
    except RuntimeError as error:
        if (line := joining.versions_differ(error)) is not None:
            raise ConfigError(line) from error
        raise


def _prepare_ray(*, alone: bool) -> None:
    """Import it with what it reads from the environment; `alone`: there is no other machine."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray  # noqa: F401 - read now, corrected below

    with contextlib.suppress(ImportError, AttributeError):  # names of Ray's own
        _read_variables_again(alone=alone)
        # It prints pages of a lost node's log between a run's lines.
        worker: Any = importlib.import_module("ray._private.worker")
        worker.listen_error_messages = _unheard


def _unheard(worker: object, stopped: object) -> None:
    pass


def _read_variables_again(*, alone: bool) -> None:
    """Ray took them in when it was imported, or when it was started before in this process."""
    from ray._private import ray_constants

    ray_constants.ENABLE_RAY_CLUSTER = not alone
    raylet = importlib.import_module("ray._raylet")
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()


def _stop_ray() -> None:
    import ray

    ray.shutdown()


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
