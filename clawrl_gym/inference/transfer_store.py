"""TransferStore: what engines on other machines are given, on the driver's machine.

The model, and the weights that are current, as files; they are put where others can fetch them
when somebody needs them, once for all who need them at the same time.
"""

from __future__ import annotations

import asyncio
import weakref
from pathlib import Path

from clawrl_gym.core.files.transfer import Manifest, Put, Transfer, manifest_of, send
from clawrl_gym.inference.models.source import ModelSource, source_of
from clawrl_gym.inference.weights.files import weight_files
from clawrl_gym.inference.weights.serving_folder import ServingFolder, Take


class TransferStore:
    """See the module's docstring. One for all engines of a run."""

    def __init__(self, model_dir: Path, model: str, folder: Path, put: Put) -> None:
        """`model` is what `policy.model` says, `folder` where the current weights are kept."""
        self._model_dir = model_dir
        self._model = model
        self._folder = ServingFolder(folder)
        self._put = put
        self._busy = asyncio.Lock()
        self._opened = False
        self._own_weights = True
        self._source: ModelSource | None = None
        self._sent: weakref.WeakValueDictionary[str, Transfer] = weakref.WeakValueDictionary()
        self._staged: dict[int, Transfer] = {}

    @property
    def version(self) -> int:
        """Version of the current weights."""
        return self._folder.version

    async def open(self, version: int, weights: Path | None) -> None:
        """Begin with the model's own weights, or with others; the first call counts."""
        async with self._busy:
            if not self._opened:
                self._opened, self._own_weights = True, weights is None
                await asyncio.to_thread(self._folder.create, self._model_dir, version, weights)

    async def source(self) -> ModelSource:
        """The model's source."""
        async with self._busy:
            if self._source is None:
                self._source = await asyncio.to_thread(source_of, self._model_dir, self._model)
            return self._source

    async def model(self) -> Transfer:
        """The model's files."""
        source = await self.source()
        async with self._busy:
            return await self._transfer(source.manifest)

    async def weights(self) -> Transfer | None:
        """The current weights; None when they are the model's own."""
        async with self._busy:
            return None if self._own_weights else await self._weights(self._folder.version)

    async def stage(self, version: int, weights: Path, take: Take) -> Transfer:
        """Take weights in that are to be current, unless they lie here already."""
        async with self._busy:
            if weights != self.of_version(version) or version not in self._staged:
                await asyncio.to_thread(self._folder.stage, version, weights, take)
                self._staged[version] = await self._weights(version)
            return self._staged[version]

    async def commit(self, version: int) -> None:
        """Make staged weights current; those before stay until `settle`."""
        async with self._busy:
            if version != self._folder.version:
                self._folder.switch(version)
                self._own_weights = False

    async def settle(self) -> None:
        """Keep only what is current."""
        async with self._busy:
            self._staged.clear()
            await asyncio.to_thread(self._folder.settle)

    def of_version(self, version: int) -> Path:
        """Folder of a version's weights."""
        return self._folder.of_version(version)

    async def _weights(self, version: int) -> Transfer:
        files = weight_files(self._folder.of_version(version))
        return await self._transfer(await asyncio.to_thread(manifest_of, files))

    async def _transfer(self, manifest: Manifest) -> Transfer:
        transfer = self._sent.get(manifest.digest)
        if transfer is None:
            transfer = await asyncio.to_thread(send, manifest, self._put)
            self._sent[manifest.digest] = transfer
        return transfer
