# ruff: noqa: E501 - pages are written in one piece
"""Fields are typed in, keys pressed and options chosen on real pages."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.support.gui_page_rig import LOG, chromium, page_rig

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as one:
        yield one


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
    async with page_rig(browser) as at:
        await at.show(f"{html}<script>changes = 0; oninput = () => changes++</script>")
        assert await at.do("type", "f", text=text) is None
        code = "(f => 'value' in f ? f.value : f.innerText)(document.querySelector('[aria-label]'))"
        assert (await at.js(code)).replace("\xa0", " ") == expected
        assert await at.js("changes") > 0


async def test_keys_are_pressed_for_what_is_typed(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(f"<input aria-label=f id=f>{LOG}")
        assert await at.do("type", "f", text="aB\n") is None
        keys = [
            (key, trusted) for type, _, _, trusted, key in await at.js("log") if type == "keydown"
        ]
        assert keys == [("a", True), ("B", True), ("Enter", True)]


async def test_one_can_type_where_the_focus_is(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            "<input aria-label=f value=a autofocus> <input aria-label=g style='position:fixed;left:0;top:90px'>"
        )
        assert await at.do("press", "f", keys="End") is None
        assert await at.do("type", text="b") is None
        assert await at.do("type", x=5, y=99, text="c") is None
        assert [element.value for element in await at.elements()] == ["ab", "c"]


async def test_a_slider_or_editor_of_the_page_s_own_takes_keys(browser: Browser) -> None:
    async with page_rig(browser) as at:
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
    async with page_rig(browser) as at:
        await at.show(
            "<script>got = []; onkeydown = (e) => { e.preventDefault(); got.push([e.key, e.ctrlKey, "
            "e.isTrusted]) }; oninput = (e) => got.push([e.data, false, true])</script>"
            "<input aria-label=f>"
        )
        assert await at.do("press", "f", keys=keys) is None
        got = await at.js("got")
        assert got[-1] == [expected, keys.lower().startswith("c"), True]


async def test_enter_sends_a_form_and_control_a_selects(browser: Browser) -> None:
    async with page_rig(browser) as at:
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
    async with page_rig(browser) as at:
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
