"""Waits that end as soon as what they wait for is there.

Their limit is for code that is wrong: so long that no machine under load comes near it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE_S = 60.0


async def until(holds: Callable[[], object]) -> None:
    """Fails when it does not come true."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - what others do is looked at
            await asyncio.sleep(0.005)


def becomes_true(holds: Callable[[], object]) -> bool:
    """Whether it does; of processes and threads, for tests without an event loop."""
    ends_s = time.monotonic() + PATIENCE_S
    while not (true := bool(holds())) and time.monotonic() < ends_s:
        time.sleep(0.01)
    return true
