"""The learner on another node than the driver's: its model, weights and checkpoints travel.

The run's folder stays on the driver's machine, so what is published, checkpointed and gone on from
lies there as ever; a learner whose node is gone is restarted wherever there is room.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from clawrl_gym.cluster.engine_actor import fetch_chunk, put_chunk
from clawrl_gym.cluster.ray_learner import RayLearner
from clawrl_gym.core.errors import LearnerDied, TrainerError, TransferError
from clawrl_gym.core.files.transfer import Transfer, manifest_of, receive, send
from clawrl_gym.core.files.whole_folder import begin_folder, end_folder
from clawrl_gym.inference.transfer_store import TransferStore
from clawrl_gym.trainers.published_version import PublishedVersion, Way
from clawrl_gym.trainers.updates.actor import LearnerAway, LearnerSetup, files_below

_PLACING_S = 120.0
Place = Callable[[], Awaitable[Mapping[str, Any]]]
"""Options of Ray for where the learner runs; answers once that can be known."""


class RayLearnerAway(RayLearner):
    """See the module's docstring."""

    def __init__(
        self,
        setup: LearnerSetup,
        transfer_store: TransferStore,
        device: Literal["auto", "cpu", "cuda"],
        place: Place,
        *,
        cache: Path | None = None,
    ) -> None:
        """`transfer_store` has the model; `device` is as configured: the learner's node decides."""
        self._transfer_store = transfer_store
        self._device = device
        self._place = place
        self._cache = None if cache is None else str(cache)
        super().__init__(setup)

    def _begin(self) -> None:
        """Do nothing: `ready` places it."""

    async def ready(self) -> None:
        import ray

        await self._check_plugins()
        options = await self._place()
        actor = ray.remote(LearnerAway).options(
            num_cpus=0, runtime_env=self._environment, **options
        )
        self._actor = actor.remote(put_chunk, fetch_chunk, self._cache)
        try:
            async with asyncio.timeout(_PLACING_S):
                await self._call("__ray_ready__")
        except TimeoutError:
            raise TrainerError(
                f"no node of the cluster had room for the learner within {_PLACING_S:g} s"
            ) from None
        if not await self._call("find_model", await self._transfer_store.source()):
            await self._call("take_model", await self._transfer_store.model())
        await self._call("begin", self._setup, self._device)

    async def publish(self, *, as_adapter: bool) -> PublishedVersion:
        transfer = await self._call("send_adapter" if as_adapter else "send_weights")
        return _TransferredVersion(self, cast(Transfer, transfer))

    async def save_checkpoint(self, folder: str) -> None:
        transfer = cast(Transfer, await self._call("send_checkpoint"))
        await self._arrived(_take_checkpoint, transfer, Path(folder))

    async def load_checkpoint(self, folder: str) -> None:
        transfer = await asyncio.to_thread(_sent, Path(folder))
        await self._call("load_checkpoint", transfer)

    async def use(self, user: str, checkpoint: str | None) -> None:
        transfer = None
        if checkpoint is not None:
            transfer = await asyncio.to_thread(_sent, Path(checkpoint))
        await self._call("use", user, transfer)

    async def _arrived(
        self, take: Callable[[Transfer, Path], None], transfer: Transfer, folder: Path
    ) -> None:
        """Receive a transfer. Raises LearnerDied when its node went before all had come."""
        import ray.exceptions

        try:
            await asyncio.to_thread(take, transfer, folder)
        except ray.exceptions.RayError as error:
            raise LearnerDied(f"the learner died while its files came: {error}") from error
        except TransferError as error:
            raise TrainerError(f"the learner's files did not come to {folder}: {error}") from error


@dataclass(frozen=True, slots=True)
class _TransferredVersion:
    """A version that lies in Ray's object store, on the learner's node."""

    learner: RayLearnerAway
    transfer: Transfer
    ways: tuple[Way, ...] = ("object_store", "folder")

    async def to_folder(self, folder: Path) -> None:
        await self.learner._arrived(_take_weights, self.transfer, folder)


def _take_weights(transfer: Transfer, folder: Path) -> None:
    """Put the files into the folder, each in one step."""
    scratch = folder.with_name(f".{folder.name}.arrived")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        receive(transfer, scratch, fetch_chunk)
        folder.mkdir(parents=True, exist_ok=True)
        for path in scratch.iterdir():
            path.replace(folder / path.name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _take_checkpoint(transfer: Transfer, folder: Path) -> None:
    """The checkpoint takes the place of the folder, whole."""
    receive(transfer, begin_folder(folder), fetch_chunk)
    end_folder(folder)


def _sent(folder: Path) -> Transfer:
    return send(manifest_of(files_below(folder)), put_chunk)
