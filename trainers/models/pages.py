"""Memory that the learner gives back to the system."""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_MADV_PAGEOUT = 21
"""Constant of Linux since 5.4, which Python does not name."""


def put_off(tensor: Tensor) -> None:
    """Have the system take back the memory of a tensor that lies in a mapped file.

    What was read of a model's file stays in memory as long as anything of the file is in use.
    The next use of the tensor reads it again. Elsewhere than on Linux, and with a
    tensor that has memory of its own, nothing happens.
    """
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    start = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    length = tensor.data_ptr() + tensor.nbytes - start
    if madvise is not None and length > 0 and not tensor.untyped_storage().resizable():
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _MADV_PAGEOUT)
