"""The folder that an engine serves from: which weights are current, and under which version.

    ROOT/base/        configuration and tokenizer
    ROOT/v7/          links into base, and the weights of version 7
    ROOT/current      a link to v7, replaced atomically: a server that starts or reloads reads it

The link alone says what is current, so a server that died comes back with the right weights.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from clawrl_gym.core.errors import PolicyError, boundary
from clawrl_gym.core.files.files import link_or_copy
from clawrl_gym.inference.weights.files import check_fit, files_beside_weights, weight_files

_COPY_LIMIT_BYTES = 64 * 2**20
Take = Literal["copy", "share", "move"]
"""`copy`: the files may be overwritten later; `share`: they are never written again, as those of
another such folder, and no copy is made where the file system can share them; `move`: they are
needed here only."""


class ServingFolder:
    """See the module's docstring. One writer at a time."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def current(self) -> Path:
        """The folder that it is started from and reloads from."""
        return self._root / "current"

    @property
    def version(self) -> int:
        """The version of the current weights."""
        return int(self.current.readlink().name.removeprefix("v"))

    def create(self, model_dir: Path, version: int = 0, weights: Path | None = None) -> None:
        """Start afresh from a model's folder, with its own weights unless others are given.

        `weights` are never written again, as those of a checkpoint.
        """
        with boundary(PolicyError, f"making the serving folder {self._root}"):
            shutil.rmtree(self._root, ignore_errors=True)
            base = self._root / "base"
            base.mkdir(parents=True)
            for source in files_beside_weights(model_dir):
                _copy_or_link(source, base / source.name)
            if weights is None:
                self._fill(version, weight_files(model_dir), _link)
            else:
                self._fill(version, weight_files(weights), link_or_copy)
            self.switch(version)

    def of_version(self, version: int) -> Path:
        """Folder of a version's weights."""
        return self._root / f"v{version}"

    def stage(self, version: int, weights: Path, take: Take = "copy") -> None:
        """Take weights (a file, or a folder with shards) in as `version`, not yet current."""
        with boundary(PolicyError, f"taking the weights of version {version} from {weights}"):
            files = weight_files(weights)
            check_fit(files, weight_files(self.current))
            self._fill(version, files, PUT[take])

    def switch(self, version: int) -> None:
        """Make a staged version current, atomically."""
        link = self._root / "current.new"
        link.unlink(missing_ok=True)
        link.symlink_to(f"v{version}")
        link.replace(self.current)

    def settle(self) -> None:
        """Delete all versions that are not current."""
        for folder in self._root.glob("v[0-9]*"):
            if folder.name != f"v{self.version}":
                shutil.rmtree(folder, ignore_errors=True)

    def discard(self, version: int) -> None:
        """Delete a version that is no longer current."""
        if version != self.version:
            shutil.rmtree(self.of_version(version), ignore_errors=True)

    def _fill(
        self, version: int, files: dict[str, Path], put: Callable[[Path, Path], object]
    ) -> None:
        partial = self._root / f"v{version}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        for source in (self._root / "base").iterdir():
            (partial / source.name).symlink_to(Path("..", "base", source.name))
        for name, source in files.items():
            put(source, partial / name)
        target = self.of_version(version)
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)


def _copy_or_link(source: Path, target: Path) -> None:
    put = shutil.copyfile if source.stat().st_size <= _COPY_LIMIT_BYTES else _link
    put(source, target)


def _link(source: Path, target: Path) -> None:
    target.symlink_to(source.resolve())


PUT: Mapping[Take, Callable[[Path, Path], object]] = MappingProxyType(
    {"copy": shutil.copyfile, "share": link_or_copy, "move": shutil.move}
)
