"""The Ray cluster: the rollout workers and the learner as actors, behind plain handles.

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
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from clawrl_gym.config import AgentConfig, EnvConfig, RayConfig
from clawrl_gym.core import redact
from clawrl_gym.core.descendants import command_of, descendants
from clawrl_gym.core.errors import (
    ClusterError,
    ConfigError,
    EnvError,
    LearnerDied,
    TrainerError,
    boundary,
)
from clawrl_gym.core.interrupt import INTERRUPTS
from clawrl_gym.core.pauses import growing_pauses_s
from clawrl_gym.core.plugins import ALGORITHMS, LEARNERS, check_fingerprints, fingerprints
from clawrl_gym.core.reaper import Reaper
from clawrl_gym.core.scratch import Scratch
from clawrl_gym.core.types import Episode, Sample, StepStats
from clawrl_gym.envs.sandbox.cgroup import remove_groups_of_the_dead
from clawrl_gym.rollout.batches import Batches, Beginning, Ending
from clawrl_gym.rollout.chat import PolicyAddress
from clawrl_gym.rollout.episode import EpisodeSpec
from clawrl_gym.rollout.pool import EpisodeRunner
from clawrl_gym.rollout.probe import import_path
from clawrl_gym.run import joining
from clawrl_gym.run.joining import Membership
from clawrl_gym.run.modules import stage
from clawrl_gym.run.nodes import Node, answer_of, living_nodes, own_node_id, placed_on
from clawrl_gym.trainers.actor import LearnerActor, LearnerSetup

_OBJECT_STORE_BYTES = 128 << 20
_LAST_WORDS = (b"Fatal Python error", b"Traceback (most", b"*** SIG")
_RAY_PROCESSES = ("gcs_server", "raylet")
_JOIN_S = 60.0
_LOOK_S = 1.0
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
        self._heard_s = 0.0
        self.address = self._config.address
        """HOST:PORT of the head of a joined cluster."""
        self.host = "127.0.0.1"
        """Where other nodes reach this one."""
        self.nodes: tuple[Node, ...] = ()
        """Those of a joined cluster that live."""
        self.own_node: str | None = None
        """The id of this machine's node in a joined cluster."""

    @property
    def is_joined(self) -> bool:
        """Whether it has other machines, and outlives the run."""
        return self._config.is_joined

    @property
    def node_timeout_s(self) -> float:
        return self._config.node_timeout_s

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
        """Look who lives, until the cluster is not wanted any more."""
        while not self._unwanted.wait(_LOOK_S):
            with contextlib.suppress(Exception):  # the head is away: `_watch` counts the seconds
                nodes = living_nodes()
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._hear, nodes)

    def _hear(self, nodes: tuple[Node, ...]) -> None:
        self.nodes, self._heard_s = nodes, time.monotonic()
        if self.own_node not in {node.id for node in nodes}:
            self.lose(
                "Ray on this machine ended, so that the run is no part of its cluster any more"
            )

    @asynccontextmanager
    async def required(self) -> AsyncIterator[None]:
        """What runs inside ends with a ClusterError when Ray ends under it."""
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch())
            yield
            watching.cancel()

    def stop(self) -> None:
        """End what is the run's own, leave what is not; idempotent."""
        self._watched.close()
        self._unwanted.set()
        if self._thread is not None and self._up:
            self._thread.join()

    def lose(self, why: str) -> None:
        """What is `required` ends, for this reason."""
        self._why_lost = self._why_lost or why
        self._lost.set()

    async def _watch(self) -> None:
        while not self._lost.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._lost.wait()
            if self.is_joined and time.monotonic() - self._heard_s > _SILENCE_S:
                self.lose(
                    f"the head of the cluster at {self.address} has not answered for "
                    f"{_SILENCE_S:g} s: it ended, or the network between is cut"
                )
        raise ClusterError(self._why_lost)

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
    """With all that it and its actors put into temporary folders below `folder`."""
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


def _join_ray(member: Membership, modules: Iterable[str], folder: Path) -> None:
    """Raises ConfigError where Ray is another version."""
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


async def _checked_remotely(plugins: Mapping[str, str]) -> None:
    """Compare plug-ins in a process of the cluster. Raises ConfigError."""
    import ray

    await answer_of(ray.remote(num_cpus=0)(check_fingerprints).remote(plugins))


class RayWorker(EpisodeRunner):
    """A rollout worker in a Ray actor; restarted by Ray when its process dies."""

    def __init__(
        self,
        env: EnvConfig,
        agent: AgentConfig,
        slots: int,
        policy: PolicyAddress,
        request_timeout_s: float,
        growth_mb: int = 0,
        node_id: str | None = None,
    ) -> None:
        """`node_id`: it lives and dies with this node."""
        import ray

        from clawrl_gym.rollout.worker import RolloutWorker, plugins_of

        actor = ray.remote(RolloutWorker).options(
            num_cpus=0,
            max_concurrency=slots + 8,
            max_restarts=-1,
            max_task_retries=0,
            **placed_on(node_id),
        )
        self._plugins = plugins_of(env, agent)
        self._actor = actor.remote(
            env, agent, slots, policy, request_timeout_s, self._plugins, growth_mb
        )
        self._batches = Batches(_Actor(self._actor))
        self._process_id = 0
        """Of the process that is known to be ready."""

    async def ready(self) -> None:
        """Raises ConfigError when plug-ins of the worker's process are not this one's."""
        import ray.exceptions

        try:
            await answer_of(self._actor.ready.remote())
            if not self._process_id:
                await self._actor.may_be_replaced.remote()
                self._process_id = await self._actor.process_id.remote()
        except ray.exceptions.RayError:  # a class that is not there cannot even be handed over
            if not self._process_id:
                await _checked_remotely(self._plugins)
            raise

    async def run(self, spec: EpisodeSpec) -> Episode:
        """Raises EnvError when the worker's process ends under it, WorkerRetired when it is about
        to."""
        import ray.exceptions

        try:
            return await self._batches.run(spec)
        except ray.exceptions.RayActorError as error:
            raise EnvError(f"its process ended{_why_ended(error)}") from None
        except ray.exceptions.RayTaskError as error:
            raise EnvError(_last_line(error)) from None

    async def recovered(self) -> None:
        """Answers once Ray has started another process, or the one that there is goes on."""
        import ray.exceptions

        for pause_s in growing_pauses_s(0.1, 1.0):
            with contextlib.suppress(ray.exceptions.RayError):
                if await self._actor.process_id.remote() != self._process_id:
                    self._process_id = 0
                    return await self.ready()
                if not await self._actor.retire_if_empty.remote():
                    return
            await asyncio.sleep(pause_s)

    def kill(self) -> None:
        """End its process; Ray starts another one."""
        import ray

        ray.kill(self._actor, no_restart=False)

    async def close(self) -> None:
        self._batches.close()
        await self._actor.close.remote()


def _why_ended(error: Exception) -> str:
    """As far as Ray knows."""
    if "running low on memory" in str(error):
        return ": Ray killed it, for the machine was low on memory"
    return ": it was killed, its memory was full, or its code crashed or called os._exit"


class _Actor:
    """A worker's actor, as batches go to it."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def begin(self, epoch: int, is_first: bool, beginnings: list[Beginning]) -> None:
        await self._actor.begin.remote(epoch, is_first, beginnings)

    async def ended(self, epoch: int) -> list[Ending]:
        endings: list[Ending] = await self._actor.ended.remote(epoch)
        return endings


def _last_line(error: Exception) -> str:
    """What was raised in the other process; the traceback before it is in its log."""
    return next((line for line in reversed(str(error).splitlines()) if line.strip()), repr(error))


class RayLearner:
    """The learner in a Ray actor of its own."""

    def __init__(self, setup: LearnerSetup, model_dir: str, node_id: str | None = None) -> None:
        """`node_id`: it runs on this node alone."""
        trainer, learner = setup.trainer, setup.learner
        self._backend = learner.backend
        self._plugins = fingerprints(
            path
            for path in (LEARNERS.path(learner.backend), ALGORITHMS.path(trainer.algorithm))
            if not path.startswith("clawrl_gym.")
        )
        self._gpus = 0.01 if setup.device == "cuda" else 0
        self._environment = {"env_vars": {"OMP_NUM_THREADS": str(learner.threads)}}
        self._setup = setup
        self._model_dir = model_dir
        self._placement = placed_on(node_id)
        self._begin()

    def _begin(self) -> None:
        import ray

        actor = ray.remote(LearnerActor).options(
            num_cpus=0,
            num_gpus=self._gpus,
            runtime_env=self._environment,
            **self._placement,
        )
        arguments = self._setup.arguments(self._model_dir)
        self._actor = actor.remote(self._backend, arguments, str(Path.cwd()))

    async def _call(self, method: str, *arguments: Any) -> Any:
        import ray.exceptions

        try:
            return await getattr(self._actor, method).remote(*arguments)
        except ray.exceptions.RayActorError as error:
            raise LearnerDied(
                f"the learner's process ended in {method.strip('_')}{_why_ended(error)}"
            ) from error
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, ConfigError):
                raise ConfigError(str(cause)) from error
            raise TrainerError(f"the learner failed in {method}: {_last_line(error)}") from error

    async def revive(self, checkpoint: str | None) -> None:
        """A new process in place of one that died, at a checkpoint or at the first weights."""
        self._begin()
        await self.ready()
        if checkpoint is not None:
            await self.load_checkpoint(checkpoint)

    async def ready(self) -> None:
        """Answers once the model is loaded.

        Raises ConfigError when plug-ins of the learner's process are not this one's.
        """
        await self._check_plugins()
        await self._call("__ray_ready__")

    async def _check_plugins(self) -> None:
        if self._plugins:
            await _checked_remotely(self._plugins)

    async def step(self, samples: list[Sample], version: int) -> StepStats:
        stats: StepStats = await self._call("step", samples, version)
        return stats

    async def save_weights(self, folder: str) -> None:
        await self._call("save_weights", folder)

    async def save_checkpoint(self, folder: str) -> None:
        await self._call("save_checkpoint", folder)

    async def load_checkpoint(self, folder: str) -> None:
        await self._call("load_checkpoint", folder)
