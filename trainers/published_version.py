"""A version of the weights on its way from a learner to the engines that serve it.

Which ways there are depends on where a learner computes; how each is gone, only the version knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

Way = Literal["folder", "object_store", "nccl", "ipc", "name"]
"""`folder`: files on the run's machine. `object_store`: Ray's. `nccl`, `ipc`: from the learner's
memory to the engine's. `name`: the engine fetches by itself what has this name."""
ENGINE_WAYS: tuple[Way, ...] = ("folder",)
"""Ways that engines support today."""


class PublishedVersion(Protocol):
    """Weights, or an adapter, that a learner published; unchanged until its next update."""

    @property
    def ways(self) -> tuple[Way, ...]:
        """Ways in which they can travel, the best first."""
        ...

    async def to_folder(self, folder: Path) -> None:
        """The way `folder`: put `model.safetensors` into it, or make it an adapter's folder as PEFT
        has it. Raises TrainerError; LearnerDied where the learner is gone."""
        ...


def way_of(ways: Sequence[Way]) -> Way | None:
    """The best way that engines support too; None: there is none."""
    return next((way for way in ways if way in ENGINE_WAYS), None)
