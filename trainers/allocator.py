"""How a learner on a CPU gets its memory from the system.

glibc keeps blocks of up to 32 MiB in one heap, where those that are kept for the backward pass
stand between holes of those that are not: up to a third more memory for a large model. Blocks that
are mapped one by one go back to the system as soon as they are free.
"""

from __future__ import annotations

import ctypes
from math import prod
from pathlib import Path

from clawrl_gym.policy.weights import shapes, weight_files

_M_MMAP_THRESHOLD = -3
_MAPPED_BYTES = 1 << 20
_LARGE_PARAMETERS = 50_000_000
"""From here on: what a small model needs is quicker from the heap."""


def map_large_blocks(model_dir: Path) -> None:
    """For the rest of this process, if its model is large; without glibc nothing changes."""
    if sum(map(prod, shapes(weight_files(model_dir)).values())) < _LARGE_PARAMETERS:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
