"""The versions of one set of weights that can serve again, and when the next of them is due.

What is kept for how long is not decided here but by `Retention`, which runs once an update is
recorded.
"""

from __future__ import annotations

import math
from pathlib import Path

from clawrl_gym.config import LearnerConfig
from clawrl_gym.core.errors import TrainerError
from clawrl_gym.core.files.whole_folder import link_folder
from clawrl_gym.inference.weights.checkpoints import checkpoint_dir, list_checkpoints
from clawrl_gym.trainers.versions.retention import size_bytes

_SMALL_BYTES = 1 << 30
_MOST_UPDATES = 16
"""Most updates between two checkpoints, however large they are."""


class KeptVersions:
    """Versions of one set of weights that can serve again; see the module's docstring."""

    def __init__(self, config: LearnerConfig, checkpoints: Path, begins_at: int = 0) -> None:
        """`begins_at`: the version that needs no checkpoint, because its weights can be loaded
        again."""
        self._every = config.checkpoint_every
        self._checkpoints = checkpoints
        self.begins_at = begins_at

    def all(self) -> list[int]:
        """All kept versions, the oldest first; 0 is what the run began with."""
        return sorted({0, *list_checkpoints(self._checkpoints)})

    def folder(self, version: int) -> Path:
        """Checkpoint folder of a version, whether it is written yet or not."""
        return checkpoint_dir(self._checkpoints, version)

    def checkpoint(self, version: int) -> str | None:
        """Checkpoint of a kept version; None: the first weights."""
        folder = self.folder(version)
        return str(folder) if folder.is_dir() else None

    def needs_checkpoint(self, version: int) -> bool:
        """Whether its weights could not be loaded again without a checkpoint."""
        return version != self.begins_at and not self.folder(version).is_dir()

    def to_restart_at(self, version: int) -> str | None:
        """The checkpoint of the weights that serve; None: a learner has them from the start.

        Raises TrainerError when they were never checkpointed.
        """
        if version == self.begins_at:
            return None
        if self.needs_checkpoint(version):
            raise TrainerError(
                f"the learner died at version {version}, which has no checkpoint: resume from the "
                "last one with resume=, or set learner.checkpoint_every=1"
            )
        return str(self.folder(version))

    def newest(self, version: int) -> int:
        """Newest version up to this one that has a checkpoint, or needs none."""
        kept = [earlier for earlier in list_checkpoints(self._checkpoints) if earlier <= version]
        return max(kept, default=self.begins_at)

    def is_due(self, version: int) -> bool:
        """Whether a version gets a checkpoint."""
        if self._every != "auto":
            return version % self._every == 0
        earlier = [v for v in list_checkpoints(self._checkpoints) if v < version]
        if not earlier:
            return True
        size = size_bytes(self.folder(max(earlier)))
        updates = min(math.ceil(size / _SMALL_BYTES), _MOST_UPDATES)
        return version - max(earlier) >= updates

    def keep_again(self, earlier: int, version: int) -> bool:
        """Make a version a copy of an earlier one, which takes no room; returns whether files keep
        it."""
        source = self.folder(earlier)
        if source.is_dir():
            link_folder(source, self.folder(version))
            return True
        return False
