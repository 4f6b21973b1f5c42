"""A fresh browser context: one episode's storage, clock, random numbers and permissions."""

from __future__ import annotations

import asyncio
import functools
import time
from importlib.resources import files
from typing import TYPE_CHECKING

from clawrl_gym.envs.gui.config import GuiEnvConfig
from clawrl_gym.envs.gui.task import GuiTask

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext

CLOCK_STARTS_S = 1_736_154_000
"""Time in every page when its episode begins: Monday 2025-01-06, 9:00 UTC."""


async def open_context(
    browser: Browser, proxy: str, task: GuiTask, options: GuiEnvConfig
) -> BrowserContext:
    """Open a context that holds nothing of any other; its only network is the proxy."""
    width, height = task.viewport or (options.width, options.height)
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        device_scale_factor=task.scale,
        proxy={"server": proxy, "bypass": "<-loopback>"},
        locale="en-US",
        timezone_id="UTC",
        reduced_motion="reduce",
        accept_downloads=False,
        service_workers="block",
    )
    script = f"({_script()})({(CLOCK_STARTS_S - time.time()) * 1e3:.0f}, {task.seed % 2**32})"
    await asyncio.gather(context.grant_permissions([]), context.add_init_script(script))
    return context


@functools.cache
def _script() -> str:
    """The file without its comments: an expression."""
    text = files("clawrl_gym.envs.gui.browser").joinpath("context.js").read_text()
    return text[text.index("(clockOffsetMs") :].strip()
