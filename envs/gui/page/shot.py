"""A picture of what the viewport shows."""

from __future__ import annotations

import base64

from clawrl_gym.envs.gui.page.tab import Tab


async def shot(tab: Tab, quality: int = 70, timeout_s: float = 5.0) -> bytes:
    """JPEG; raises PageHangs where a script keeps the page busy."""
    parameters = {"format": "jpeg", "quality": quality, "optimizeForSpeed": True}
    reply = await tab.send("Page.captureScreenshot", parameters, timeout_s)
    return base64.b64decode(reply["data"])
