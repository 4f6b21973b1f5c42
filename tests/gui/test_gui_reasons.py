# ruff: noqa: E501 - pages are written in one piece
"""What is said of actions that cannot be done."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from clawrl_gym.envs.gui.action import GuiAction
from clawrl_gym.envs.gui.page.act import carry_out
from tests.support.gui_page_rig import chromium, page_rig

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as one:
        yield one


REASONS: dict[str, tuple[str, dict[str, Any], str]] = {
    "disabled": (
        "<button disabled>Buy</button>", {"kind": "click", "id": 1},
        'button "Buy" [1] is disabled',
    ),
    "disabled by a fieldset": (
        "<fieldset disabled><input aria-label=a></fieldset>",
        {"kind": "type", "id": 1, "text": "x"}, 'textbox "a" [1] is disabled',
    ),
    "unknown": ("<button>Buy</button>", {"kind": "click", "id": 7},
        "there is no element [7]; known are [1] to [1]"),
    "nothing known": ("<p>x", {"kind": "click", "id": 7},
        "there is no element [7]; there are none on this page"),
    "no place": ("<p>x", {"kind": "click"}, "say where: the number of an element, or x and y"),
    "no number": ("<p>x", {"kind": "click", "x": float("nan"), "y": 1.0},
        "say where: the number of an element, or x and y"),
    "outside": ("<p>x", {"kind": "click", "x": 800, "y": 10},
        "(800, 10) is outside of the page's 800 x 600 pixels"),
    "a list is not clicked": ("<select aria-label=a><option>x</select>", {"kind": "click", "id": 1},
        'combobox "a" [1] is a list of options: choose one with select(1, OPTION)'),
    "a file": ("<input type=file>", {"kind": "click", "id": 1},
        'button "Choose file" [1]: files cannot be chosen'),
    "type into a button": ("<button>Buy</button>", {"kind": "type", "id": 1, "text": "x"},
        'button "Buy" [1] is not a field that one can type in'),
    "type into a box": ("<input type=checkbox aria-label=a>", {"kind": "type", "id": 1, "text": "x"},
        'checkbox "a" [1] is not a field that one can type in: click it'),
    "type into a list": ("<select aria-label=a></select>", {"kind": "type", "id": 1, "text": "x"},
        'combobox "a" [1] is a list of options: use select(1, OPTION)'),
    "read-only": ("<input aria-label=a readonly>", {"kind": "type", "id": 1, "text": "x"},
        'textbox "a" [1] is read-only'),
    "no focus": ("<input aria-label=a>", {"kind": "type", "text": "x"},
        "nothing has the keyboard's focus: say which field by its number, or click it first"),
    "no number in it": ("<input type=number aria-label=a>", {"kind": "type", "id": 1, "text": "ten"},
        'spinbutton "a" [1] wants a number, not "ten"'),
    "no date": ("<input type=date aria-label=a>", {"kind": "type", "id": 1, "text": "1/2/26"},
        'textbox "a" [1] wants YYYY-MM-DD, not "1/2/26"'),
    "no colour": ("<input type=color aria-label=a>", {"kind": "type", "id": 1, "text": "red"},
        'textbox "a" [1] wants #rrggbb, not "red"'),
    "too far": ("<input type=range aria-label=a max=10>", {"kind": "type", "id": 1, "text": "11"},
        'slider "a" [1] goes from 0 to 10 in steps of 1: it is at 10 now'),
    "no such option": (
        "<select aria-label=a><option>Red<option>Green</select>",
        {"kind": "select", "id": 1, "text": "Blue"},
        'combobox "a" [1] has no option "Blue"; it has "Red", "Green"',
    ),
    "option disabled": (
        "<select aria-label=a><option>Red<option disabled>Green</select>",
        {"kind": "select", "id": 1, "text": "Green"}, 'the option "Green" of [1] is disabled',
    ),
    "no list": ("<button>B</button>", {"kind": "select", "id": 1, "text": "x"},
        'button "B" [1] is not a list of options: click it, then click what you want'),
    "no key": ("<p>x", {"kind": "press", "keys": "Entr"}, "there is no key 'Entr'; keys are"),
    "no keys": ("<p>x", {"kind": "press"}, "say which keys, such as Enter or Control+a"),
    "two keys": ("<p>x", {"kind": "press", "keys": "a+b"},
        "'a+b' is not one combination: modifiers come first, then one key"),
    "nothing to scroll": ("<p>x", {"kind": "scroll"}, "the page has nothing to scroll down"),
    "scrolled to the end": ("<p style='height:3000px'>x", {"kind": "scroll", "direction": "up"},
        "the page cannot be scrolled further up"),
    "no amount": ("<p>x", {"kind": "scroll", "amount": -1.0},
        "the amount to scroll is -1; it must be above 0"),
    "drag to nowhere": ("<button>B</button>", {"kind": "drag", "id": 1},
        "say where: the number of an element, or x and y"),
    "not its business": ("<p>x", {"kind": "goto"}, "goto is not done on a page"),
}  # fmt: skip


@pytest.mark.parametrize("case", REASONS)
async def test_what_cannot_be_done_is_told(browser: Browser, case: str) -> None:
    html, fields, reason = REASONS[case]
    async with page_rig(browser) as at:
        await at.show(f"<!doctype html>{html}")
        await at.lines()
        refusal = await carry_out(at.tab, GuiAction(**fields), 5)
        assert refusal is not None
        assert refusal.startswith(reason)
