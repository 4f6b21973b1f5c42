"""The local Ray cluster: the rollout workers and the learner as actors, behind plain handles.

The one file that speaks to Ray. Telemetry and dashboard are off; the cluster is the run's own, ends
with it, listens on loopback alone and answers only who knows its token. Import paths reach the
workers through PYTHONPATH, never through driver state.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import secrets
import shutil
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from clawrl_gym.config import AgentConfig, EnvConfig
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
from clawrl_gym.core.scratch import Scratch
from clawrl_gym.core.types import Episode, Sample, StepStats
from clawrl_gym.envs.sandbox.cgroup import remove_groups_of_the_dead
from clawrl_gym.rollout.chat import PolicyAddress
from clawrl_gym.rollout.episode import EpisodeSpec
from clawrl_gym.rollout.pool import EpisodeRunner, WorkerRetired
from clawrl_gym.rollout.probe import import_path
from clawrl_gym.trainers.actor import LearnerActor, LearnerSetup

_OBJECT_STORE_BYTES = 128 << 20
_RAY_PROCESSES = ("gcs_server", "raylet")


class Cluster:
    """Ray on this machine, started, held and ended by a thread of its own.

    Nobody waits for a start that is no longer wanted: the thread ends it as soon as it can.
    """

    def __init__(self, kept_logs: Path | None = None) -> None:
        """`kept_logs`: where Ray's own logs are put when it fails; else they go with it."""
        self._kept_logs = kept_logs
        self._unwanted = threading.Event()
        self._thread: threading.Thread | None = None
        self._up = False
        self._watched = contextlib.ExitStack()
        self._lost = asyncio.Event()
        self._lost_process = ""
        self._agents: list[int] = []
        """Descriptors of the processes that the raylet began with."""

    async def start(self) -> None:
        """Start it; takes some seconds. Raises ClusterError."""
        loop = asyncio.get_running_loop()
        started: asyncio.Future[None] = loop.create_future()

        def hold() -> None:  # Ray's processes die with the thread that started them
            error = None
            scratch = Scratch("ray")
            try:
                _start_ray(scratch.path)
            except Exception as failure:  # noqa: BLE001 - raised below, in the loop
                error = failure
                self._keep_logs(scratch.path)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(_settle, started, error)
            self._unwanted.wait()
            if self._lost_process:
                self._keep_logs(scratch.path)
            _stop_ray()
            self._end_agents()
            scratch.remove()
            remove_groups_of_the_dead()  # Ray kills what its workers have started

        self._thread = threading.Thread(target=hold, name="ray", daemon=True)
        self._thread.start()
        with boundary(ClusterError, "starting Ray"):
            await started
            self._notice_ends()
        self._up = True
        INTERRUPTS.renew()  # Ray answers SIGTERM with a trace of its own, and aborts

    @asynccontextmanager
    async def required(self) -> AsyncIterator[None]:
        """What runs inside ends with a ClusterError when one of Ray's own processes ends."""
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch())
            yield
            watching.cancel()

    def stop(self) -> None:
        """End it and every process of it; idempotent."""
        self._watched.close()
        self._unwanted.set()
        if self._thread is not None and self._up:
            self._thread.join()

    async def _watch(self) -> None:
        await self._lost.wait()
        raise ClusterError(
            f"Ray's {self._lost_process} ended: it was killed, or there was no memory for it"
            + (f"; Ray's own logs: {self._kept_logs}" if self._kept_logs else "")
        )

    def _keep_logs(self, folder: Path) -> None:
        if self._kept_logs is not None:
            with contextlib.suppress(OSError, shutil.Error):  # perhaps it is the disk that is full
                shutil.copytree(folder / "session_latest/logs", self._kept_logs, dirs_exist_ok=True)

    def _notice_ends(self) -> None:
        """Have the loop say when a process ends that the cluster stands on."""
        loop = asyncio.get_running_loop()
        for pid in descendants(os.getpid()):
            if (name := command_of(pid)) in _RAY_PROCESSES:
                descriptor = os.pidfd_open(pid)
                self._watched.callback(os.close, descriptor)
                loop.add_reader(descriptor, self._lose, descriptor, name)
                self._watched.callback(loop.remove_reader, descriptor)
                self._agents += [os.pidfd_open(below) for below in descendants(pid)]

    def _end_agents(self) -> None:
        """Ray's own ones outlive a raylet that was killed, by a minute."""
        for descriptor in self._agents:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            os.close(descriptor)
        self._agents.clear()

    def _lose(self, descriptor: int, name: str) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        self._lost_process = self._lost_process or name
        self._lost.set()


def _start_ray(folder: Path) -> None:
    """With all that it and its actors put into temporary folders below `folder`."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Ray takes loopback for an address of the network, unless told that there is no other machine.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Workers in advance, one a core, would idle for the whole run: actors have environments of
    # their own and take none of them.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    import ray

    with contextlib.suppress(ImportError, AttributeError):  # names of Ray's own
        _read_variables_again()
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


def _read_variables_again() -> None:
    """Ray took them in when it was imported, or when it was started before in this process."""
    from ray._private import ray_constants

    ray_constants.ENABLE_RAY_CLUSTER = False
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

    await _awaited(ray.remote(num_cpus=0)(check_fingerprints).remote(plugins))


async def _awaited(answer: Awaitable[object]) -> None:
    """Wait; a ConfigError of the other process is one here, in one line."""
    import ray.exceptions

    try:
        await answer
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ConfigError):
            raise ConfigError(str(error.cause)) from error
        raise


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
    ) -> None:
        import ray

        from clawrl_gym.rollout.worker import RolloutWorker, plugins_of

        actor = ray.remote(RolloutWorker).options(
            num_cpus=0, max_concurrency=slots + 8, max_restarts=-1, max_task_retries=0
        )
        self._plugins = plugins_of(env, agent)
        self._actor = actor.remote(
            env, agent, slots, policy, request_timeout_s, self._plugins, growth_mb
        )
        self._process_id = 0
        """Of the process that is known to be ready."""

    async def ready(self) -> None:
        """Raises ConfigError when plug-ins of the worker's process are not this one's."""
        import ray.exceptions

        try:
            await _awaited(self._actor.ready.remote())
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
            episode: Episode = await self._actor.run.remote(spec)
            return episode
        except ray.exceptions.RayActorError as error:
            raise EnvError(
                "its process ended: its memory was full, or an environment's code crashed or "
                f"called os._exit ({_last_line(error)})"
            ) from None
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, WorkerRetired):
                raise WorkerRetired(str(error.cause)) from None
            raise

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
        await self._actor.close.remote()


def _last_line(error: Exception) -> str:
    """What was raised in the other process; the traceback before it is in its log."""
    return next((line for line in reversed(str(error).splitlines()) if line.strip()), repr(error))


class RayLearner:
    """The learner in a Ray actor of its own."""

    def __init__(self, setup: LearnerSetup, model_dir: str) -> None:
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
        self._begin()

    def _begin(self) -> None:
        import ray

        actor = ray.remote(LearnerActor).options(
            num_cpus=0, num_gpus=self._gpus, runtime_env=self._environment
        )
        self._actor = actor.remote(self._backend, self._setup.arguments(self._model_dir))

    async def _call(self, method: str, *arguments: Any) -> Any:
        import ray.exceptions

        try:
            return await getattr(self._actor, method).remote(*arguments)
        except ray.exceptions.RayActorError as error:
            raise LearnerDied(f"the learner died in {method}: {_last_line(error)}") from error
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
