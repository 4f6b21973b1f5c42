"""RayLearner: the learner in a process of the cluster, behind a plain handle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawrl_gym.cluster.actors import compare_plugins, last_line, why_ended
from clawrl_gym.cluster.nodes import placed_on
from clawrl_gym.core.errors import ConfigError, LearnerDied, TrainerError
from clawrl_gym.core.plugins import LEARNERS, LOSSES, fingerprints
from clawrl_gym.core.processes.jemalloc import jemalloc_variables
from clawrl_gym.core.provenance import threads_of
from clawrl_gym.core.types import StepStats
from clawrl_gym.inference.weights.probe import Reading
from clawrl_gym.trainers.published_version import PublishedVersion, Way
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.updates.actor import LearnerActor, LearnerSetup
from clawrl_gym.trainers.updates.guard import Review


class RayLearner:
    """The learner in a Ray actor of its own; an `AsyncLearner`."""

    def __init__(
        self,
        setup: LearnerSetup,
        node_id: str | None = None,
        gpu: str | None = None,
    ) -> None:
        """`node_id`: it runs on this node alone. `gpu`: the one that it sees; None: what Ray gives
        it."""
        learner = setup.learner
        paths = (LEARNERS.path(learner.backend), LOSSES.path(setup.trainer.loss.type))
        self._plugins = fingerprints(path for path in paths if not path.startswith("clawrl_gym."))
        self._gpus = 0.01 if setup.device == "cuda" and gpu is None else 0
        variables = {"OMP_NUM_THREADS": str(threads_of(learner.threads))}
        if setup.device == "cpu":
            variables |= jemalloc_variables()
        if gpu is not None:  # Ray leaves it as it is for who takes no GPU of its count
            variables["CUDA_VISIBLE_DEVICES"] = gpu
        self._environment = {"env_vars": variables}
        self._setup = setup
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
        self._actor = actor.remote(self._setup, str(Path.cwd()))

    async def _call(self, method: str, *arguments: Any) -> Any:
        import ray.exceptions

        try:
            return await getattr(self._actor, method).remote(*arguments)
        except ray.exceptions.RayActorError as error:
            raise LearnerDied(
                f"the learner's process ended in {method.strip('_')}{why_ended(error)}"
            ) from error
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, ConfigError):
                raise ConfigError(str(cause)) from error
            raise TrainerError(f"the learner failed in {method}: {last_line(error)}") from error

    async def reset(self) -> None:
        """Reset to the first weights; in a new process, since nothing else has them whole."""
        await self.restart(None)

    async def restart(self, checkpoint: str | None) -> None:
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
            await compare_plugins(self._plugins)

    async def step(self, batch: SampleBatch, version: int) -> StepStats:
        stats: StepStats = await self._call("step", batch, version)
        return stats

    async def review(self, batch: SampleBatch) -> Review:
        review: Review = await self._call("review", batch)
        return review

    async def probe(self) -> Reading:
        reading: Reading = await self._call("probe")
        return reading

    async def publish(self, *, as_adapter: bool) -> PublishedVersion:
        return _Written(self, "save_adapter" if as_adapter else "save_weights")

    async def save_checkpoint(self, folder: str) -> None:
        await self._call("save_checkpoint", folder)

    async def load_checkpoint(self, folder: str) -> None:
        await self._call("load_checkpoint", folder)

    async def use(self, user: str, checkpoint: str | None) -> None:
        """Go on with a user's adapter and optimizer, as `Learner.use`."""
        await self._call("use", user, checkpoint)

    async def forget(self, user: str) -> None:
        await self._call("forget", user)


@dataclass(frozen=True, slots=True)
class _Written:
    """A version that the learner's process writes where it shall be."""

    learner: RayLearner
    save: str
    """The method that writes it."""
    ways: tuple[Way, ...] = ("folder",)

    async def to_folder(self, folder: Path) -> None:
        await self.learner._call(self.save, str(folder))
