"""Actions on a page with trusted input, and what is said of those that cannot be done."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from clawrl_gym.envs.gui.action import Action, Kind
from clawrl_gym.envs.gui.page.act import carry_out
from tests.gui_desk import chromium, desk

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

LOG = """<script>const log = [];
for (const type of ['click', 'dblclick', 'contextmenu', 'mousedown', 'mouseup', 'mouseover', 'keydown'])
  document.addEventListener(type, (e) => log.push([type, e.target.id, e.detail, e.isTrusted, e.key]), true)
</script>"""


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
    async with desk(browser) as at:
        await at.show(f"<button id=b style='position:fixed;left:50px;top:50px'>B</button>{LOG}")
        where = {"id": (await at.element("B")).id} if by == "id" else {"x": 55, "y": 55}
        assert await at.do(kind, **where) is None
        log = await at.js("log")
        found = [(type, detail) for type, _, detail, *_ in log if "c" in type]
        assert found == CLICKS[kind] or kind == "right_click"
        assert ("contextmenu" in [type for type, *_ in log]) == (kind == "right_click")
        assert "mouseover" in [type for type, *_ in log]
        assert all(trusted for _, _, _, trusted, _ in log)


async def test_what_is_out_of_sight_is_brought_into_view(browser: Browser) -> None:
    async with desk(browser) as at:
        await at.show(
            "<div style='height:5000px'></div><div style='height:50px;overflow:auto'><div style="
            "'height:900px'></div><button onclick='this.textContent = 1'>Far</button></div>"
        )
        assert await at.do("click", "Far") is None
        assert (await at.element("1")).id == 1


async def test_what_is_covered_is_told_with_what_covers_it(browser: Browser) -> None:
    async with desk(browser) as at:
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
    async with desk(browser) as at:
        await at.show(
            "<button style='position:fixed;left:0;top:0;width:200px;height:50px' "
            "onclick='this.textContent = 1'>Wide</button>"
            "<div style='position:fixed;left:40px;top:0;width:130px;height:50px'>over</div>"
        )
        assert await at.do("click", "Wide") is None
        assert (await at.element("1")).states == ("covered",)


async def test_a_link_over_two_lines_is_reached(browser: Browser) -> None:
    async with desk(browser, width=220) as at:
        await at.show(
            "<p style='font:16px monospace;width:200px'>aaaaaaaaaaaaaaa <a href='#x'>bbb cccc</a> ddddddddddd"
        )
        assert await at.do("click", "bbb cccc") is None
        assert await at.js("location.hash") == "#x"


async def test_a_hidden_box_is_clicked_through_its_label(browser: Browser) -> None:
    async with desk(browser) as at:
        await at.show(
            "<label><input id=a type=checkbox style='opacity:0;position:absolute'><i>Over</i></label>"
            "<label><input id=b type=checkbox style='display:none'>Stand</label>"
        )
        assert await at.do("click", "Over") is None
        assert await at.do("click", "Stand") is None
        assert await at.js("[a.checked, b.checked]") == [True, True]


REASONS: dict[str, tuple[str, dict[str, Any], str]] = {
    "disabled": (
        "<button disabled>Buy</button>", {"kind": "click", "id": 1},
        '[1] button "Buy" is disabled',
    ),
    "disabled by a fieldset": (
        "<fieldset disabled><input aria-label=a></fieldset>",
        {"kind": "type", "id": 1, "text": "x"}, '[1] textbox "a" is disabled',
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
        '[1] combobox "a" is a list of options: choose one with select(1, OPTION)'),
    "a file": ("<input type=file>", {"kind": "click", "id": 1},
        '[1] button "Choose file": files cannot be chosen'),
    "type into a button": ("<button>Buy</button>", {"kind": "type", "id": 1, "text": "x"},
        '[1] button "Buy" is not a field that one can type in'),
    "type into a box": ("<input type=checkbox aria-label=a>", {"kind": "type", "id": 1, "text": "x"},
        '[1] checkbox "a" is not a field that one can type in: click it'),
    "type into a list": ("<select aria-label=a></select>", {"kind": "type", "id": 1, "text": "x"},
        '[1] combobox "a" is a list of options: use select(1, OPTION)'),
    "read-only": ("<input aria-label=a readonly>", {"kind": "type", "id": 1, "text": "x"},
        '[1] textbox "a" is read-only'),
    "no focus": ("<input aria-label=a>", {"kind": "type", "text": "x"},
        "nothing has the keyboard's focus: say which field by its number, or click it first"),
    "no number in it": ("<input type=number aria-label=a>", {"kind": "type", "id": 1, "text": "ten"},
        '[1] spinbutton "a" wants a number, not "ten"'),
    "no date": ("<input type=date aria-label=a>", {"kind": "type", "id": 1, "text": "1/2/26"},
        '[1] textbox "a" wants YYYY-MM-DD, not "1/2/26"'),
    "no colour": ("<input type=color aria-label=a>", {"kind": "type", "id": 1, "text": "red"},
        '[1] textbox "a" wants #rrggbb, not "red"'),
    "too far": ("<input type=range aria-label=a max=10>", {"kind": "type", "id": 1, "text": "11"},
        '[1] slider "a" goes from 0 to 10 in steps of 1: it is at 10 now'),
    "no such option": (
        "<select aria-label=a><option>Red<option>Green</select>",
        {"kind": "select", "id": 1, "text": "Blue"},
        '[1] combobox "a" has no option "Blue"; it has "Red", "Green"',
    ),
    "option disabled": (
        "<select aria-label=a><option>Red<option disabled>Green</select>",
        {"kind": "select", "id": 1, "text": "Green"}, 'the option "Green" of [1] is disabled',
    ),
    "no list": ("<button>B</button>", {"kind": "select", "id": 1, "text": "x"},
        '[1] button "B" is not a list of options: click it, then click what you want'),
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
    async with desk(browser) as at:
        await at.show(f"<!doctype html>{html}")
        await at.lines()
        said = await carry_out(at.tab, Action(**fields), 5)
        assert said is not None
        assert said.startswith(reason)


async def test_an_element_that_has_gone_is_told(browser: Browser) -> None:
    async with desk(browser) as at:
        await at.show("<button id=b>Buy</button><button id=c>Hide</button>")
        await at.lines()
        await at.js("b.remove(); c.style.display = 'none'")
        assert await at.do("click", id=1) == "[1] is gone: the page has changed"
        assert await at.do("click", id=2) == '[2] button "Hide" is not visible'
        await at.show("<button>Other</button>", "/other")
        assert await at.do("click", id=1) == "there is no element [1]; there are none on this page"


FIELDS: dict[str, tuple[str, str, str]] = {
    "text": ("<input aria-label=f value=old>", "new", "new"),
    "nothing": ("<input aria-label=f value=old>", "", ""),
    "unicode": ("<input aria-label=f>", "Zürich 東京 🙂 é", "Zürich 東京 🙂 é"),
    "several lines": ("<textarea aria-label=f>old</textarea>", "a\nb\r\n\nc", "a\nb\n\nc"),
    "lines where there is one": ("<input aria-label=f>", "a\nb", "a b"),
    "long": ("<textarea aria-label=f></textarea>", "x" * 5000, "x" * 5000),
    "a password": ("<input type=password aria-label=f value=old>", "s3cret", "s3cret"),
    "an address": ("<input type=email aria-label=f value=a@b>", "c@d.test", "c@d.test"),
    "a number": ("<input type=number aria-label=f value=1>", "-2.5", "-2.5"),
    "a date": ("<input type=date aria-label=f>", "2026-03-04", "2026-03-04"),
    "a time": ("<input type=time aria-label=f value=10:00>", "22:15", "22:15"),
    "a month": ("<input type=month aria-label=f>", "2026-03", "2026-03"),
    "a date and time": ("<input type=datetime-local aria-label=f>", "2026-03-04T05:06", "2026-03-04T05:06"),
    "a date taken away": ("<input type=date aria-label=f value=2026-03-04>", "", ""),
    "a colour": ("<input type=color aria-label=f>", "#FF0080", "#ff0080"),
    "a slider": ("<input type=range aria-label=f value=3>", "70", "70"),
    "an editor": ("<div contenteditable aria-label=f>old <b>text</b></div>", "new\nline", "new\nline"),
    "an empty editor": ("<div contenteditable aria-label=f style='height:20px'></div>", "x", "x"),
    "what looks like keys": ("<input aria-label=f>", "Enter Control+a {}[]", "Enter Control+a {}[]"),
}  # fmt: skip


@pytest.mark.parametrize("case", FIELDS)
async def test_a_field_holds_what_was_typed(browser: Browser, case: str) -> None:
    """Defect of the reference (4.3): line breaks in what was typed broke the action."""
    html, text, expected = FIELDS[case]
    async with desk(browser) as at:
        await at.show(f"{html}<script>changes = 0; oninput = () => changes++</script>")
        assert await at.do("type", "f", text=text) is None
        code = "(f => 'value' in f ? f.value : f.innerText)(document.querySelector('[aria-label]'))"
        assert (await at.js(code)).replace("\xa0", " ") == expected
        assert await at.js("changes") > 0


async def test_keys_are_pressed_for_what_is_typed(browser: Browser) -> None:
    async with desk(browser) as at:
        await at.show(f"<input aria-label=f id=f>{LOG}")
        assert await at.do("type", "f", text="aB\n") is None
        keys = [(key, trusted) for type, _, _, trusted, key in await at.js("log") if type == "keydown"]
        assert keys == [("a", True), ("B", True), ("Enter", True)]


async def test_one_can_type_where_the_focus_is(browser: Browser) -> None:
    async with desk(browser) as at:
        await at.show("<input aria-label=f value=a autofocus> <input aria-label=g style='position:fixed;left:0;top:90px'>")
        assert await at.do("press", "f", keys="End") is None
        assert await at.do("type", text="b") is None
        assert await at.do("type", x=5, y=99, text="c") is None
        assert [element.value for element in await at.elements()] == ["ab", "c"]


async def test_a_slider_or_editor_of_the_page_s_own_takes_keys(browser: Browser) -> None:
    async with desk(browser) as at:
        await at.show(
            "<div tabindex=0 role=textbox aria-label=f onkeydown='this.textContent += event.key'></div>"
            "<style>div{height:20px}</style>"
        )
        assert await at.do("type", "f", text="hey") is None
        assert await at.js("document.querySelector('div').textContent") == "hey"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [("Control+a", "a"), ("ctrl+A", "A"), ("ctrl-a", "a"), ("CTRL + a", "a"), ("Enter", "Enter"),
     ("Return", "Enter"), ("esc", "Escape"), ("ArrowLeft", "ArrowLeft"), ("left", "ArrowLeft"),
     ("Page_Down", "PageDown"), ("F5", "F5"), ("space", " "), (" ", " "), ("+", "+"),
     ("Control++", "+"), ("-", "-"), ("ctrl+-", "-"), ("Shift+Tab", "Tab"), ("x", "x"), ("é", "é")],
)  # fmt: skip
async def test_keys_are_known_by_their_usual_names(
    browser: Browser, keys: str, expected: str
) -> None:
    async with desk(browser) as at:
        await at.show(
            "<script>got = []; onkeydown = (e) => { e.preventDefault(); got.push([e.key, e.ctrlKey, "
            "e.isTrusted]) }; oninput = (e) => got.push([e.data, false, true])</script>"
            "<input aria-label=f>"
        )
        assert await at.do("press", "f", keys=keys) is None
        got = await at.js("got")
        assert got[-1] == [expected, keys.lower().startswith("c"), True]


async def test_enter_sends_a_form_and_control_a_selects(browser: Browser) -> None:
    async with desk(browser) as at:
        await at.show(
            "<form onsubmit='event.preventDefault(); sent = f.value'><input id=f aria-label=f value=abc></form>"
        )
        assert await at.do("press", "f", keys="Control+a") is None
        assert await at.do("press", keys="Backspace") is None
        assert await at.do("press", keys="x") is None
        assert await at.do("press", keys="Enter") is None
        assert await at.js("sent") == "x"


SELECTS: dict[str, tuple[str, str, list[str]]] = {
    "by label": ("", "Two words", ["2"]),
    "by label with other white space": ("", " Two  words", ["2"]),
    "by value": ("", "3", ["3"]),
    "by label in other case": ("", "one", ["1"]),
    "label before value": ("", "2", ["x"]),
    "several, by lines": ("multiple", "One\nTwo words", ["1", "2"]),
    "several, by commas": ("multiple", "One, 3", ["1", "3"]),
    "none": ("multiple", "", []),
}


@pytest.mark.parametrize("case", SELECTS)
async def test_options_are_chosen(browser: Browser, case: str) -> None:
    more, text, expected = SELECTS[case]
    async with desk(browser) as at:
        await at.show(
            f"<select id=s aria-label=s {more}><option value=0 selected>Zero<option value=1>One"
            "<option value=2>Two words<option value=3>Three<option value=x>2</select>"
            "<script>told = []; s.oninput = s.onchange = (e) => told.push(e.type)</script>"
        )
        assert await at.do("select", "s", text=text) is None
        assert await at.js("Array.from(s.selectedOptions, (o) => o.value)") == expected
        assert await at.js("told") == ["input", "change"]
        assert await at.do("select", "s", text=text) is None
        assert len(await at.js("told")) == 2, "nothing has changed the second time"


async def test_pages_and_boxes_are_scrolled_in_four_directions(browser: Browser) -> None:
    """Defect of the reference (4.3): scrolling to the side was offered and did nothing."""
    async with desk(browser) as at:
        await at.show(
            "<body style='margin:0;width:5000px;height:5000px'><div id=d tabindex=0 style='width:100px;"
            "height:100px;overflow:auto'><div style='width:900px;height:900px'>x</div></div>"
        )
        number = (await at.elements())[0].id
        for direction, place in [("down", [0, 600]), ("right", [800, 600]), ("up", [800, 0]), ("left", [0, 0])]:
            assert await at.do("scroll", direction=direction) is None
            assert await at.js("[scrollX, scrollY]") == place
        assert await at.do("scroll", id=number, direction="down", amount=2.0) is None
        assert await at.do("scroll", x=50, y=50, direction="right", amount=0.5) is None
        assert await at.js("[d.scrollLeft, d.scrollTop, scrollX, scrollY]") == [50, 200, 0, 0]


async def test_a_page_whose_box_scrolls_is_scrolled_there(browser: Browser) -> None:
    async with desk(browser) as at:
        await at.show(
            "<body style='margin:0'><div id=d style='height:600px;overflow:auto'><p style='height:3000px'>x"
        )
        assert await at.do("scroll") is None
        assert await at.js("d.scrollTop") == 600


async def test_things_are_dragged_with_moves_in_between(browser: Browser) -> None:
    async with desk(browser) as at:
        await at.show(
            """<div id=d style="position:fixed;left:10px;top:10px;width:40px;height:40px;cursor:move;z-index:1">D</div>
            <div style="position:fixed;left:300px;top:300px;width:40px;height:40px" tabindex=0>T</div>
            <script>let held = 0; moves = 0; d.onmousedown = () => held = 1;
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
    async with desk(browser) as at:
        await at.show(
            """<p draggable=true id=a ondragstart="event.dataTransfer.setData('text/plain', 'note')">Note</p>
            <p id=b tabindex=0 ondragover="event.preventDefault()"
              ondrop="this.textContent = event.dataTransfer.getData('text/plain')">Bin</p>"""
        )
        bin_ = await at.element("Bin")
        assert await at.do("drag", "Note", to_id=bin_.id) is None
        assert await at.js("b.textContent") == "note"


async def test_fields_in_frames_and_shadow_roots_take_what_is_typed(browser: Browser) -> None:
    async with desk(browser) as at:
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
    async with desk(browser) as at:
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
    async with desk(browser) as at:
        await at.show("<p>Rest</p><button onmouseover='this.remove()'>Shy</button>")
        assert await at.do("click", "Shy") is None
        assert await at.said() == ["Rest"]


async def test_a_document_that_is_written_anew_under_the_mouse_breaks_nothing(
    browser: Browser,
) -> None:
    async with desk(browser) as at:
        await at.show(
            "<button onmousedown='document.open(); document.write(\"<i id=i>new</i>"
            "<script>i.onclick = 1; i.addEventListener(`click`, () => {})</script>\"); "
            "document.close()'>Gone</button>".replace("</script>", "<\\/script>")
        )
        assert await at.do("click", "Gone") is None
        assert await at.said() == ['[2] clickable "new"']
