"""ModelSource: a model as the driver's machine has it, and how another machine comes to the same.

To the last byte: the same folder where both machines see it, the same commit from the hub, or files
that were sent and are kept by what they contain.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files.transfer import Get, Manifest, Transfer, manifest_of
from clawrl_gym.inference.models.resolve import HUB_ID, at_commit
from clawrl_gym.inference.weights.cache import CachedModel, ModelCache
from clawrl_gym.inference.weights.files import files_beside_weights, weight_files


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model as the driver's machine has it, and where another may find the same."""

    folder: str
    manifest: Manifest
    hub_id: str | None = None
    commit: str | None = None


def source_of(folder: Path, model: str) -> ModelSource:
    """Describe a model's folder, which `policy.model` named; reads all of its files."""
    files = {path.name: path for path in files_beside_weights(folder)} | weight_files(folder)
    is_snapshot = folder.parent.name == "snapshots" and HUB_ID.match(model) is not None
    return ModelSource(
        str(folder),
        manifest_of(files),
        model if is_snapshot else None,
        folder.name if is_snapshot else None,
    )


class ModelFinder:
    """A model on this machine, found or received; it stays until `close`."""

    def __init__(self, cache: ModelCache) -> None:
        self._cache = cache
        self._cached: CachedModel | None = None

    def find(self, source: ModelSource) -> Path | None:
        """The model's folder if this machine has it or can have it by itself."""
        folder = Path(source.folder)
        if _is_same(folder, source.manifest):
            return folder
        if (cached := self._cache.find(source.manifest)) is not None:
            self._cached = cached
            return cached.folder
        if source.hub_id is None or source.commit is None:
            return None
        try:
            folder = at_commit(source.hub_id, source.commit)
        except ConfigError:  # no way to the hub from here: it is sent
            return None
        return folder if _is_same(folder, source.manifest) else None

    def take(self, transfer: Transfer, get: Get) -> Path:
        """The model's folder, from what was sent. Raises TransferError."""
        self._cached = self._cache.take(transfer, get)
        return self._cached.folder

    def close(self) -> None:
        if self._cached is not None:
            self._cached.close()


def _is_same(folder: Path, manifest: Manifest) -> bool:
    """Whether a folder here has the very files."""
    files = {file.name: folder / file.name for file in manifest.files}
    try:
        if any(files[f.name].stat().st_size != f.size_bytes for f in manifest.files):
            return False
        return manifest_of(files).digest == manifest.digest
    except OSError:
        return False
