"""A picture of what the viewport shows."""

from __future__ import annotations

import asyncio
import base64

from clawrl_gym.core.errors import EnvError
from clawrl_gym.envs.gui.page.tab import Tab

_NOT_DRAWN_YET = "Unable to capture screenshot"
_REDRAW_S = 0.1


async def shot(tab: Tab, quality: int = 70, timeout_s: float = 5.0) -> bytes:
    """JPEG; raises PageHangs where a script keeps the page busy.

    A browser on a busy machine refuses where it has not drawn the page yet: asked again until
    `timeout_s` has passed.
    """
    parameters = {"format": "jpeg", "quality": quality, "optimizeForSpeed": True}
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    while True:
        try:
            reply = await tab.send("Page.captureScreenshot", parameters, timeout_s)
            return base64.b64decode(reply["data"])
        except EnvError as error:
            if _NOT_DRAWN_YET not in str(error) or loop.time() + _REDRAW_S > end:
                raise
        await asyncio.sleep(_REDRAW_S)
