# ruff: noqa: E501 - pages are written in one piece
"""Mouse, drag and scrolling on real pages: trusted, and out of the reach of the page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from clawrl_gym.envs.gui.action import Kind
from tests.support.gui_page_rig import LOG, chromium, page_rig

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as one:
        yield one


CLICKS: dict[Kind, list[tuple[str, int]]] = {
    "click": [("click", 1)],
    "double_click": [("click", 1), ("click", 2), ("dblclick", 2)],
    "triple_click": [("click", 1), ("click", 2), ("dblclick", 2), ("click", 3)],
    "right_click": [("contextmenu", 0)],
    "hover": [],
}


@pytest.mark.parametrize("kind", CLICKS)
@pytest.mark.parametrize("by", ["id", "place"])
async def test_the_mouse_is_trusted(browser: Browser, kind: Kind, by: str) -> None:
    """Defect of the reference (4.3): triple clicks were offered and did nothing."""
    async with page_rig(browser) as at:
        await at.show(f"<button id=b style='position:fixed;left:50px;top:50px'>B</button>{LOG}")
        where: dict[str, Any] = (
            {"id": (await at.element("B")).id} if by == "id" else {"x": 55, "y": 55}
        )
        assert await at.do(kind, **where) is None
        log = await at.js("log")
        found = [(type, detail) for type, _, detail, *_ in log if "c" in type]
        assert found == CLICKS[kind] or kind == "right_click"
        assert ("contextmenu" in [type for type, *_ in log]) == (kind == "right_click")
        assert "mouseover" in [type for type, *_ in log]
        assert all(trusted for _, _, _, trusted, _ in log)


async def test_what_is_out_of_sight_is_brought_into_view(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            "<div style='height:5000px'></div><div style='height:50px;overflow:auto'><div style="
            "'height:900px'></div><button onclick='this.textContent = 1'>Far</button></div>"
        )
        assert await at.do("click", "Far") is None
        assert (await at.element("1")).id == 1


DEEP = "<div style='height:300px'>top</div><button onclick=\"parent.document.title = 'inner'\">Deep</button>"


@pytest.mark.parametrize("outer", ["", "<div style='height:5000px'></div>"])
async def test_what_is_scrolled_out_of_a_frame_is_brought_into_view(
    browser: Browser, outer: str
) -> None:
    async with page_rig(browser) as at:
        at.bodies["http://page.test/inner"] = DEEP
        await at.show(
            f"<body style='height:600px' onclick='document.title = 1'>{outer}"
            "<iframe src=/inner style='height:100px;display:block'></iframe>"
        )
        assert await at.do("click", "Deep") is None
        assert await at.page.title() == "inner"


async def test_what_a_frame_never_shows_is_not_clicked_on_the_page_around_it(
    browser: Browser,
) -> None:
    async with page_rig(browser) as at:
        at.bodies["http://page.test/inner"] = "<body style='margin:0'>" + DEEP
        await at.show(
            "<body style='height:600px' onclick='document.title = 1'>"
            "<iframe src=/inner style='height:100px;pointer-events:none'></iframe>"
        )
        assert await at.do("click", "Deep") == 'button "Deep" [1] cannot be brought into view'
        assert await at.page.title() == ""


async def test_frames_of_a_frameset_are_clicked(browser: Browser) -> None:
    async with page_rig(browser) as at:
        at.bodies["http://page.test/inner"] = DEEP
        await at.show("<frameset cols='50%,50%'><frame src=/inner><frame></frameset>")
        assert await at.do("click", "Deep") is None
        assert await at.page.title() == "inner"


async def test_what_is_covered_is_told_with_what_covers_it(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            "<button onclick='hit = 1'>Buy</button> <label>Name <input></label> "
            "<select aria-label=S><option>a<option>b</select>"
            "<div style='position:fixed;inset:0;background:#0008'><div><h2>Cookies?</h2>"
            "<p>We like them.</p></div></div>"
        )
        assert await at.do("click", "Buy") == '[1] is covered by "Cookies?"'
        assert await at.do("hover", "Buy") == '[1] is covered by "Cookies?"'
        assert await at.do("type", "Name", text="x") == '[2] is covered by "Cookies?"'
        assert await at.do("select", "S", text="b") == '[3] is covered by "Cookies?"'
        assert await at.js("typeof hit") == "undefined"


async def test_what_is_covered_in_part_is_reached_beside_it(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            "<button style='position:fixed;left:0;top:0;width:200px;height:50px' "
            "onclick='this.textContent = 1'>Wide</button>"
            "<div style='position:fixed;left:40px;top:0;width:130px;height:50px'>over</div>"
        )
        assert await at.do("click", "Wide") is None
        assert (await at.element("1")).states == ("covered",)


async def test_a_link_over_two_lines_is_reached(browser: Browser) -> None:
    async with page_rig(browser, width=220) as at:
        await at.show(
            "<p style='font:16px monospace;width:200px'>aaaaaaaaaaaaaaa <a href='#x'>bbb cccc</a> ddddddddddd"
        )
        assert await at.do("click", "bbb cccc") is None
        assert await at.js("location.hash") == "#x"


async def test_a_hidden_box_is_clicked_through_its_label(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            "<label><input id=a type=checkbox style='opacity:0;position:absolute'><i>Over</i></label>"
            "<label><input id=b type=checkbox style='display:none'>Stand</label>"
        )
        assert await at.do("click", "Over") is None
        assert await at.do("click", "Stand") is None
        assert await at.js("[a.checked, b.checked]") == [True, True]


async def test_an_element_that_has_gone_is_told(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show("<button id=b>Buy</button><button id=c>Hide</button>")
        await at.lines()
        await at.js("b.remove(); c.style.display = 'none'")
        assert await at.do("click", id=1) == "[1] is gone: the page has changed"
        assert await at.do("click", id=2) == 'button "Hide" [2] is not visible'
        await at.show("<button>Other</button>", "/other")
        assert await at.do("click", id=1) == "there is no element [1]; there are none on this page"


async def test_pages_and_boxes_are_scrolled_in_four_directions(browser: Browser) -> None:
    """Defect of the reference (4.3): scrolling to the side was offered and did nothing."""
    async with page_rig(browser) as at:
        await at.show(
            "<body style='margin:0;width:5000px;height:5000px'><div id=d tabindex=0 style='width:100px;"
            "height:100px;overflow:auto'><div style='width:900px;height:900px'>x</div></div>"
        )
        number = (await at.elements())[0].id
        for direction, place in [
            ("down", [0, 600]),
            ("right", [800, 600]),
            ("up", [800, 0]),
            ("left", [0, 0]),
        ]:
            assert await at.do("scroll", direction=direction) is None
            assert await at.js("[scrollX, scrollY]") == place
        assert await at.do("scroll", id=number, direction="down", amount=2.0) is None
        assert await at.do("scroll", x=50, y=50, direction="right", amount=0.5) is None
        assert await at.js("[d.scrollLeft, d.scrollTop, scrollX, scrollY]") == [50, 200, 0, 0]


async def test_a_page_whose_box_scrolls_is_scrolled_there(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            "<body style='margin:0'><div id=d style='height:600px;overflow:auto'><p style='height:3000px'>x"
        )
        assert await at.do("scroll") is None
        assert await at.js("d.scrollTop") == 600


async def test_things_are_dragged_with_moves_in_between(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            """<div id=d style="position:fixed;left:10px;top:10px;width:40px;height:40px;cursor:move;z-index:1">D</div>
            <div style="position:fixed;left:300px;top:300px;width:40px;height:40px" tabindex=0>T</div>
            <script>let held = 0; moves = 0; d.onmousedown = (e) => { held = 1; e.preventDefault() };
            onmousemove = (e) => { if (held) { moves++; d.style.left = e.clientX - 20 + 'px';
              d.style.top = e.clientY - 20 + 'px' } }; onmouseup = () => held = 0;</script>"""
        )
        target = await at.element("T")
        assert await at.do("drag", "D", to_id=target.id) is None
        assert await at.js("[d.style.left, d.style.top]") == ["300px", "300px"]
        assert await at.js("moves") >= 5
        assert await at.do("drag", x=320, y=320, to_x=120, to_y=70) is None
        assert (await at.element("D")).box == (100, 50, 40, 40)


async def test_what_is_draggable_by_html_is_dropped(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            """<p draggable=true id=a ondragstart="event.dataTransfer.setData('text/plain', 'note')">Note</p>
            <p id=b tabindex=0 ondragover="event.preventDefault()"
              ondrop="this.textContent = event.dataTransfer.getData('text/plain')">Bin</p>"""
        )
        bin_ = await at.element("Bin")
        assert await at.do("drag", "Note", to_id=bin_.id) is None
        assert await at.js("b.textContent") == "note"


async def test_fields_in_frames_and_shadow_roots_take_what_is_typed(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            "<iframe srcdoc='<input aria-label=f><select aria-label=s><option>a<option>b</select>'></iframe>"
            "<x-a></x-a><script>customElements.define('x-a', class extends HTMLElement { constructor() { "
            "super(); this.attachShadow({mode: 'open'}).innerHTML = '<input aria-label=g>' } })</script>"
        )
        assert await at.do("type", "f", text="one") is None
        assert (await at.element("f")).states == ("focused",)
        assert await at.do("select", "s", text="b") is None
        assert await at.do("type", "g", text="two") is None
        assert [element.value for element in await at.elements()] == ["one", "b", "two"]
        assert (await at.element("g")).states == ("focused",)


async def test_a_page_cannot_forge_what_is_done(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            """<input aria-label=f><select aria-label=s><option>a<option>b</select>
            <button onclick="hit = event.isTrusted">Buy</button><script>
            for (const made of [Element, HTMLElement, HTMLInputElement, HTMLSelectElement, Document])
              for (const name of ['focus', 'select', 'value', 'click', 'scrollIntoView', 'options',
                'getBoundingClientRect', 'getClientRects', 'elementFromPoint', 'activeElement'])
                try { Object.defineProperty(made.prototype, name, { get() { throw 1 }, configurable: true }) } catch {}
            window.Event = undefined; window.setTimeout = () => 0; </script>"""
        )
        assert await at.do("type", "f", text="x") is None
        assert await at.do("select", "s", text="b") is None
        assert await at.do("click", "Buy") is None
        assert await at.js("hit") is True
        assert [element.value for element in await at.elements()] == ["x", "b", ""]


async def test_an_element_that_runs_away_under_the_mouse_breaks_nothing(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show("<p>Rest</p><button onmouseover='this.remove()'>Shy</button>")
        assert await at.do("click", "Shy") is None
        assert await at.texts() == ["Rest"]


async def test_a_document_that_is_written_anew_under_the_mouse_breaks_nothing(
    browser: Browser,
) -> None:
    async with page_rig(browser) as at:
        await at.show(
            "<button onmousedown='document.open(); document.write(`<b tabindex=0>new</b>`); "
            "document.close()'>Gone</button>"
        )
        assert await at.do("click", "Gone") is None
        assert await at.texts() == ['clickable "new" [2]']
