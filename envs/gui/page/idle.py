"""Wait for what an action has begun, and for nothing else.

A task or two of the page's own, changes of the document that follow each other, requests that began
since then, and navigations. Requests are waited for at most `POLL_S`: a page that polls for ever is
not worth more, and nobody is notified.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from clawrl_gym.envs.gui.page.tab import DocumentLeft, Tab

POLL_S = 2.0
REQUESTED_S = 0.3
"""Seconds in which a requested navigation may begin; it may come to nothing."""


async def wait_until_idle(tab: Tab, timeout_s: float) -> None:
    """Wait for navigations at most `timeout_s`; raises PageHangs when the page does not answer."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    for _ in range(10):
        left_s = start + timeout_s - loop.time()
        if left_s <= 0:
            return
        with suppress(DocumentLeft):
            await tab.query("calm", timeout_s=left_s)
        if not await _wait(tab, start, timeout_s):
            return


async def _wait(tab: Tab, start: float, timeout_s: float) -> bool:
    """True when something was waited for, so that the page has to come to rest again."""
    loop = asyncio.get_running_loop()
    waited = False
    while True:
        passed_s = loop.time() - start
        if tab.loading:
            limit_s = timeout_s
        elif tab.requests:
            limit_s = min(POLL_S, timeout_s)
        elif tab.requested_navigations:
            limit_s = min(REQUESTED_S, timeout_s)
        else:
            return waited
        if passed_s >= limit_s:
            tab.requested_navigations.clear()
            return False
        waited = True
        tab.changed.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(tab.changed.wait(), limit_s - passed_s)
