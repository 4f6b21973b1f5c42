"""The moving average of the trained weights: a teacher that changes slowly.

    a <- decay a + (1 - decay) w        after each update; it begins as the weights

It takes the memory of what is trained once more, an adapter's alone where an adapter is trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from clawrl_gym.core.errors import TrainerError


class MovingAverage:
    """Moving average of the trained parameters of `net`, the model of both."""

    def __init__(self, net: nn.Module, decay: float) -> None:
        self._decay = decay
        self._trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
        self.tensors: list[Tensor] = []
        """The averaged tensors, in the order of the parameters."""
        self.begin()

    def begin(self) -> None:
        """Start the average at the current weights."""
        self.tensors = [parameter.detach().clone() for parameter in self._trained]

    def follow(self) -> None:
        """Take in the weights after an update."""
        with torch.no_grad():
            for average, parameter in zip(self.tensors, self._trained, strict=True):
                average.lerp_(parameter, 1 - self._decay)

    def load(self, tensors: Sequence[Tensor]) -> None:
        """Resume from another average's `tensors`. Raises TrainerError for those of another net."""
        shapes = [tensor.shape for tensor in tensors]
        if shapes != [own.shape for own in self.tensors]:
            raise TrainerError(
                f"got a moving average of {len(shapes)} other weights, expected the "
                f"{len(self.tensors)} that are trained: resume with the run's own configuration"
            )
        self.tensors = [tensor.to(own) for tensor, own in zip(tensors, self.tensors, strict=True)]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Context: the model has these weights; nothing is copied, and nothing may be trained."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for at, parameter in enumerate(self._trained):
            parameter.data, self.tensors[at] = self.tensors[at], parameter.data
