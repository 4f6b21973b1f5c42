"""Schedule of garbage collection in a process that holds thousands of conversations.

Python collects after every 700 new objects, and through all of them once a quarter is new: with
2,000 episodes in flight that is most of the CPU. There is little to find, because nearly everything
is freed by reference counts. So this process collects at fixed intervals, and sooner only where
memory grows.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_EVERY_S = 10.0
_NEW_OBJECTS = 100_000


@asynccontextmanager
async def collected_by_the_clock(every_s: float = _EVERY_S) -> AsyncIterator[None]:
    """Collect at fixed intervals inside; objects that exist at the start are taken to stay."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *thresholds[1:])
    collecting = asyncio.create_task(_collect(every_s))
    try:
        yield
    finally:
        collecting.cancel()
        gc.set_threshold(*thresholds)
        gc.unfreeze()


async def _collect(every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        gc.collect()
