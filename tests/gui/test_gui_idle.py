"""What is waited for after an action: what it has begun, and nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from clawrl_gym.envs.gui.action import GuiAction
from clawrl_gym.envs.gui.page.act import carry_out
from clawrl_gym.envs.gui.page.idle import wait_until_idle
from clawrl_gym.envs.gui.page.shot import shot
from clawrl_gym.envs.gui.page.snapshot import read_page
from clawrl_gym.envs.gui.page.tab import PageGone, PageHangs
from tests.support.gui_page_rig import HOST, PageRig, chromium, page_rig

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as one:
        yield one


async def test_a_link_is_followed_to_the_end(browser: Browser) -> None:
    async with page_rig(browser) as at:

        async def slow() -> str:
            await asyncio.sleep(0.2)
            return "<title>Next</title><h1>There</h1>"

        at.bodies[HOST + "/next"] = slow
        await at.show("<a href=/next>Go</a>")
        before = at.tab.documents
        assert await at.do("click", "Go") is None
        assert await at.texts() == ["# There"]
        assert at.tab.documents == before + 1


async def test_a_form_that_is_sent_is_waited_for(browser: Browser) -> None:
    async with page_rig(browser) as at:
        at.bodies[HOST + "/post"] = "<p>Sent</p>"
        await at.show("<form method=post action=/post><label>Name <input name=n></label></form>")
        assert await at.do("type", "Name", text="pens\n") is None
        assert await at.texts() == ["Sent"]
        assert at.requests[-1] == f"POST {HOST}/post"


async def test_a_script_that_goes_elsewhere_is_followed(browser: Browser) -> None:
    async with page_rig(browser) as at:
        at.bodies[HOST + "/next"] = "<p>There</p>"
        await at.show("<button onclick=\"setTimeout(() => location = '/next', 0)\">Go</button>")
        assert await at.do("click", "Go") is None
        assert await at.texts() == ["There"]


async def test_what_a_click_fetches_is_there_afterwards(browser: Browser) -> None:
    async with page_rig(browser) as at:

        async def slow() -> str:
            await asyncio.sleep(0.2)
            return "fresh"

        at.bodies[HOST + "/data"] = slow
        await at.show(
            "<button onclick=\"fetch('/data').then(r => r.text()).then(t => out.textContent = t)\">"
            "Load</button><p id=out>stale</p>"
        )
        assert await at.do("click", "Load") is None
        assert (await at.texts())[1] == "fresh"


async def test_a_page_that_polls_is_waited_for_two_seconds_at_most(browser: Browser) -> None:
    async with page_rig(browser) as at:
        never = asyncio.Event()
        at.bodies[HOST + "/poll"] = never.wait
        await at.show("<button onclick=\"fetch('/poll')\">Poll</button>")
        began = time.monotonic()
        assert await at.do("click", "Poll") is None
        assert 1.5 < time.monotonic() - began < 20
        shortest_s = 60.0
        for _ in range(3):
            began = time.monotonic()
            assert await at.do("hover", "Poll") is None
            shortest_s = min(shortest_s, time.monotonic() - began)
        assert shortest_s < 1.5, "what an earlier action began is nobody's business"
        never.set()


async def test_an_animation_that_ends_is_waited_for(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            """<button onclick="let n = 0; const t = setInterval(() => {
              out.textContent = ++n; if (n === 10) clearInterval(t); }, 15);
              out.style.opacity = 0.5">Run</button>
            <p id=out>0</p>"""
        )
        assert await at.do("click", "Run") is None
        assert (await at.texts())[1] == "10"


async def test_a_transition_that_ends_is_waited_for(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            """<style>p { opacity: 0.1; transition: opacity 0.2s } p.on { opacity: 1 }</style>
            <button onclick="out.className = 'on'">Show</button><p id=out>text</p>"""
        )
        assert await at.do("click", "Show") is None
        assert await at.js("getComputedStyle(out).opacity") == "1"


async def test_a_page_that_never_rests_is_given_up_soon(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            "<button>Press</button><p id=out></p>"
            "<script>setInterval(() => { out.style.left = performance.now() + 'px' }, 5)</script>"
        )
        for _ in range(4):
            assert await at.do("click", "Press") is None
        shortest_s = 60.0
        for _ in range(3):
            began = time.monotonic()
            assert await at.do("click", "Press") is None
            shortest_s = min(shortest_s, time.monotonic() - began)
        assert shortest_s < 1


async def test_a_navigation_that_comes_to_nothing_is_no_failure(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show("<a href='mailto:a@b.test'>Mail</a> <a href='#below'>Down</a><p>Here</p>")
        assert await at.do("click", "Mail") is None
        assert await at.do("click", "Down") is None
        assert at.tab.documents == 1
        assert (await at.texts())[1] == "Here"


async def test_a_page_that_hangs_is_told_and_answers_again_when_its_script_is_stopped(
    browser: Browser,
) -> None:
    async with page_rig(browser) as at:
        await at.show("<button onclick='for (;;);'>Hang</button>")
        number = (await at.element("Hang")).id
        with pytest.raises(PageHangs, match=r"does not answer within 0\.5 s"):
            await carry_out(at.tab, GuiAction("click", id=number), 0.5)
        with pytest.raises(PageHangs):
            await read_page(at.tab, 0.3)
        with pytest.raises(PageHangs):
            await shot(at.tab, timeout_s=0.3)
        await at.tab.stop_script()
        assert await at.texts() == ['button "Hang" [1]']


async def test_a_page_that_is_closed_is_gone(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show("<p>Hello</p>")
        await at.page.close()
        with pytest.raises(PageGone):
            await read_page(at.tab, 2)
        with pytest.raises(PageGone):
            await wait_until_idle(at.tab, 2)


async def test_a_dialog_does_not_stop_the_click(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            "<button onclick=\"out.textContent = confirm('Sure?')\">Ask</button><p id=out></p>"
        )
        assert await at.do("click", "Ask") is None
        assert (await at.texts())[1] == "false"


async def test_a_picture_is_a_jpeg_of_the_viewport(browser: Browser) -> None:
    from io import BytesIO

    from PIL import Image

    async with page_rig(browser, 320, 200) as at:
        await at.show("<body style='background: #f00'></body>")
        with Image.open(BytesIO(await shot(at.tab, 80))) as picture:
            assert (picture.format, picture.size) == ("JPEG", (320, 200))
            red, green, _ = picture.convert("RGB").getpixel((100, 100))  # type: ignore[misc]
            assert red > 200 > green
    assert isinstance(at, PageRig)
