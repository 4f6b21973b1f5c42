"""How a learner gets its memory from the system, and gives it back.

glibc keeps blocks of up to 32 MiB in one heap, where those that are kept for the backward pass
stand between holes of those that are not: up to a third more memory for a large model. Blocks that
are mapped one by one go back to the system as soon as they are free.
"""

from __future__ import annotations

import ctypes
import mmap
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from clawrl_gym.policy.weights import shapes, weight_files

if TYPE_CHECKING:
    from torch import Tensor

_M_MMAP_THRESHOLD = -3
_MAPPED_BYTES = 1 << 20
_MADV_PAGEOUT = 21
"""Of Linux since 5.4, which Python does not name."""
_LARGE_PARAMETERS = 50_000_000
"""From here on: what a small model needs is quicker from the heap."""


def map_large_blocks(model_dir: Path) -> None:
    """For the rest of this process, if its model is large; without glibc nothing changes."""
    if sum(map(prod, shapes(weight_files(model_dir)).values())) < _LARGE_PARAMETERS:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)


def put_off(tensor: Tensor) -> None:
    """Have the system take back the memory of a tensor that lies in a mapped file.

    What was read of a model's file stays in memory as long as anything of the file is in use.
    Whoever looks at the tensor again has it read once more. Elsewhere than on Linux, and with a
    tensor that has memory of its own, nothing happens.
    """
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    start = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    length = tensor.data_ptr() + tensor.nbytes - start
    if madvise is not None and length > 0 and not tensor.untyped_storage().resizable():
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _MADV_PAGEOUT)
