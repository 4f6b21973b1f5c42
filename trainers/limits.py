"""Limits of learning: no memory left, or numbers that are not finite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.core.errors import TrainerError

_SAYINGS = ("can't allocate memory", "not enough memory", "out of memory")
"""Messages of PyTorch on a CPU and of CUDA's libraries, whose errors have no own class."""


@contextmanager
def memory_errors(part: str, trainer: TrainerConfig, learner: LearnerConfig) -> Iterator[None]:
    """Turn memory errors of the block into a TrainerError that names the part and what to lower.

    It holds no frame of the block, so that its memory is free for the caller.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_of_memory(error):
            raise
        words = str(error).splitlines()[0] if str(error) else type(error).__name__
        message = (
            f"got no more memory {part} ({words}), expected room for it: "
            f"{', '.join(_cures(trainer, learner))}; `python -m clawrl_gym.doctor` with the run's "
            "arguments shows the memory of each part. The weights are those before this update; "
            "resume from the last checkpoint with resume="
        )
    else:
        return
    raise TrainerError(message)


def is_of_memory(error: BaseException) -> bool:
    """Whether the error says that no memory was left."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        words in str(error) for words in _SAYINGS
    )


def _cures(trainer: TrainerConfig, learner: LearnerConfig) -> Iterator[str]:
    """Settings to change, the cheapest first."""
    if not learner.checkpoint_layers:
        yield "set learner.checkpoint_layers=true"
    yield f"lower trainer.max_tokens_per_pack={trainer.max_tokens_per_pack}"
    yield "lower policy.max_model_len, which bounds the longest sequence"
    if learner.placement != "apart":
        yield "lower policy.gpu_memory_utilization, the engine's share of the same GPU"
    if learner.adapter is None:
        yield (
            "take learner=lora" if learner.offload else "take learner=lora or learner.offload=true"
        )
    elif learner.base != "nf4":
        yield "take learner.base=nf4"


class FiniteGradients:
    """Counts updates that were left out because their gradients were not finite."""

    def __init__(self, most_in_a_row: int, loss: str = "ppo") -> None:
        """`loss`: its name in the configuration, or an import path: then it may be the cause."""
        self._most_in_a_row = most_in_a_row
        self._own_loss = loss if ":" in loss else None
        self._in_a_row = 0

    def saw(self, finite: bool) -> None:
        """Record a step. Raises TrainerError after too many in a row that were not finite."""
        self._in_a_row = 0 if finite else self._in_a_row + 1
        if self._in_a_row >= self._most_in_a_row:
            raise TrainerError(
                f"got a gradient that is not finite in {self._in_a_row} steps in a row "
                "(learner.max_skipped), expected numbers: these steps changed no weight, but "
                "something before them did: start from an older checkpoint "
                "(policy.model=RUN/checkpoints/NUMBER) with a lower learner.lr, or learner.base="
                "float32 if it is another"
                + (f"; or correct the loss {self._own_loss}" if self._own_loss else "")
            )
