"""Read a page: the lines that are seen, with numbers on what can be acted on."""

from __future__ import annotations

import json
from typing import Any

from clawrl_gym.envs.gui.observation import Element, Line
from clawrl_gym.envs.gui.page.tab import DocumentLeft, Tab

_TRIES = 5


async def read_page(tab: Tab, timeout_s: float) -> tuple[str, str, tuple[Line, ...]]:
    """URL, title and lines. A document that goes away meanwhile is looked for again."""
    for _ in range(_TRIES - 1):
        try:
            return _read(await tab.query("look", timeout_s=timeout_s))
        except DocumentLeft:
            continue
    return _read(await tab.query("look", timeout_s=timeout_s))


def _read(text: str) -> tuple[str, str, tuple[Line, ...]]:
    url, title, lines = json.loads(text)
    return url, title, tuple(tuple(_part(part) for part in line) for line in lines)


def _part(part: Any) -> str | Element:
    if isinstance(part, str):
        return part
    number, role, name, value, states, options, *box, clipped = part
    x, y, width, height = box
    return Element(
        number, role, name, value, tuple(states), tuple(options), (x, y, width, height), clipped
    )
