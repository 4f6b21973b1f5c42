# ruff: noqa: E501 - pages are written in one piece
"""What is seen of a page: lines, names, values and states, by the rules of `page/snapshot.js`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from clawrl_gym.envs.gui.observation import Element
from clawrl_gym.envs.gui.page.snapshot import read_page
from tests.support.gui_page_rig import HOST, chromium, page_rig

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as one:
        yield one


LINES: dict[str, tuple[str, list[str]]] = {
    "blocks and line breaks begin lines, inline text goes on": (
        "<div>one <b>two</b>three<br>four<div>five</div>six</div> seven",
        ["one twothree", "four", "five", "six", "seven"],
    ),
    "white space is collapsed and empty lines are left out": (
        "<p>  a \n\t b&nbsp;&nbsp;c </p><p> </p><div><div></div></div><pre> x\n\n y </pre>",
        ["a b c", "x y"],
    ),
    "headings are marked, the lower ones are not": (
        "<h1>A</h1><h2> B <a href=/>c</a></h2><h3><a href=/>d</a> e</h3><h4>F</h4><h2></h2>",
        ["# A", '# B link "c" [1]', '# link "d" [2] e', "F"],
    ),
    "list items have no bullet": (
        "<ul><li>one<li><a href=/>two</a> three</ul>",
        ["one", 'link "two" [1] three'],
    ),
    "cells of a row are parts of one line": (
        "<table><tr><th>Item<th>Price<th><tr><td>Pens<td><p>3 <b>EUR</b></p><td>"
        "<button>Buy</button> <button>Drop</button><tr><td><td><tr><td>Ink<td><td>x</table>",
        ["Item | Price |", 'Pens | 3 EUR | button "Buy" [1] button "Drop" [2]', "Ink | | x"],
    ),
    "a table that only gives the page its shape is no row": (
        "<table><tr><td><ul><li>a<li>b</ul><td><h2>c</h2></table>",
        ["a", "b", "# c"],
    ),
    "what is invisible is left out": (
        "<p style='display:none'>a</p><p hidden>b</p><p style='visibility:hidden'>c<b style='"
        "visibility:visible'>d</b></p><p aria-hidden=true>e</p><input type=hidden value=f>"
        "<div style='height:0;overflow:hidden'>g</div><script>h</script><template>i</template>"
        "<a href=/></a><details><summary>more</summary>j</details><p>k</p>",
        ["d", 'button "more" [1]', "k"],
    ),
    "a label's text is said once": (
        "<form><label for=q>Name</label><input id=q> <label>Age <input type=number value=4> years"
        "</label><label for=nothing>Free</label></form>",
        ['textbox "Name" [1] spinbutton "Age years" [2] = "4" Free'],
    ),
    "a label of something else than its control's name is text": (
        "<label for=q>Your name</label> <input id=q aria-label=Name>",
        ['Your name textbox "Name" [1]'],
    ),
    "a label that stands for a hidden box is the box": (
        "<style>input{display:none}</style><label><input type=checkbox checked> Fast</label>",
        ['checkbox "Fast" [1] checked'],
    ),
    "names are looked for in order": (
        "<b id=n>By id</b><button aria-labelledby=n aria-label=l>t</button>"
        "<button aria-label=Label title=u>t</button><input type=image alt=Alt src=x>"
        "<input type=submit value=Send><input type=submit><input type=reset><button title=u>"
        "<img alt=Picture></button><button title=Title></button><input placeholder=Place title=T>"
        "<input title=Tip><input>",
        [
            'By id button "By id" [1] button "Label" [2] button "Alt" [3] button "Send" [4] '
            'button "Submit" [5] button "Reset" [6] button "Picture" [7] button "Title" [8] '
            'textbox "Place" [9] textbox "Tip" [10] textbox "" [11]'
        ],
    ),
    "values are what the fields hold": (
        "<input aria-label=a value=v placeholder=p> <input aria-label=b type=password value=äöü> "
        "<textarea aria-label=c>x\ny</textarea> <input type=range aria-label=d value=30> "
        "<input type=date aria-label=e value=2026-01-02> "
        "<div contenteditable aria-label=f>some <b>text</b></div>",
        [
            'textbox "a" [1] = "v" textbox "b" [2] = "•••" textbox "c" [3] = "x\\ny" '
            'slider "d" [4] = "30" textbox "e" [5] = "2026-01-02"',
            'textbox "f" [6] = "some text"',
        ],
    ),
    "options are listed": (
        "<select aria-label=a><option>One<option selected> Two  words <option disabled>Three"
        "</select> <select aria-label=b multiple><option selected>x<option label=y selected>z"
        "</select> <select aria-label=c></select>",
        [
            'combobox "a" [1] = "Two words" (One, Two words, Three) '
            'listbox "b" [2] = "x, y" (x, y) combobox "c" [3]'
        ],
    ),
    "states are told in one order": (
        "<input type=checkbox aria-label=a checked required disabled> "
        "<input type=radio aria-label=b checked> <button aria-expanded=true disabled>c</button> "
        "<div role=tab aria-selected=true>d</div> <input aria-label=e required autofocus>"
        "<details open><summary>f</summary>g</details>",
        [
            'checkbox "a" [1] checked disabled required radio "b" [2] checked '
            'button "c" [3] expanded disabled',
            'tab "d" [4] selected',
            'textbox "e" [5] required focused',
            'button "f" [6] expanded',
            "g",
        ],
    ),
    "roles of ARIA count": (
        "<a href=/ role=button>a</a> <span role=menuitem>b</span> <span role=switch "
        "aria-checked=true>c</span> <span role=slider aria-label=d aria-valuenow=7></span>"
        "<span role=heading>e</span>",
        ['button "a" [1] menuitem "b" [2] switch "c" [3] checked e'],
    ),
    "what is clickable in some other way has a number too": (
        "<span onclick=x()>a</span> <span tabindex=0>b</span> <span tabindex=-1>c</span> "
        "<span style='cursor:pointer'>d <i>e</i></span> <span draggable=true>f</span> "
        "<img src=/pic.png?1 onclick=x() width=9 height=9> <canvas width=9 height=9></canvas>",
        [
            'clickable "a" [1] clickable "b" [2] c clickable "d e" [3] clickable "f" [4] '
            'image "pic.png" [5] clickable "canvas" [6]'
        ],
    ),
    "shapes of a drawing are told by their colour": (
        "<svg width=100 height=100><circle cx=20 cy=20 r=9 fill=red /><rect x=50 y=50 width=9 "
        "height=9 fill='#123456'></rect><text x=50 y=20>T</text></svg>"
        "<button><svg width=60 height=60><title>Close</title><path d='M0 0L9 9'/></svg></button>",
        ['clickable "red circle" [1] clickable "#123456 rect" [2] clickable "T" [3] button "Close" [4]'],
    ),
    "a picture without a handler is its text": (
        "<p>See <img alt='a  cat' width=9 height=9> <img width=9 height=9>here</p>",
        ["See (image: a cat) here"],
    ),
    "what contains elements lets them be seen": (
        "<a href=/><b>Go</b> <button>Buy</button></a> <div role=option>Row <input type=checkbox "
        "aria-label=pick></div>",
        ['link "Go Buy" [1] button "Buy" [2]', 'option "Row" [3] checkbox "pick" [4]'],
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", LINES)
async def test_the_rule(browser: Browser, rule: str) -> None:
    html, expected = LINES[rule]
    async with page_rig(browser) as at:
        await at.show(f"<!doctype html><title>t</title><body>{html}")
        assert await at.texts() == expected


async def test_url_and_title_are_told(browser: Browser) -> None:
    async with page_rig(browser) as at:
        at.bodies[HOST + "/a"] = "<title> My \n shop </title>"
        await at.page.goto(HOST + "/a?b=c#d")
        assert await read_page(at.tab, 5) == (HOST + "/a?b=c#d", "My shop", ())


async def test_listeners_make_an_element_clickable(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            """<span id=a>early</span> <span id=b>property</span> <span id=c>none</span><p id=p></p>
            <script>a.addEventListener('mousedown', () => {}); b.onclick = () => {};
            c.addEventListener('focus', () => {});
            const late = document.createElement('span'); late.textContent = 'detached';
            late.addEventListener('click', () => {}); p.append(late);
            document.addEventListener('click', () => {}); document.body.onclick = () => {};
            window.addEventListener('click', () => {}); new EventTarget().addEventListener('click', () => {});
            </script>"""
        )
        assert await at.texts() == [
            'clickable "early" [1] clickable "property" [2] none',
            'clickable "detached" [3]',
        ]


async def test_listeners_of_a_document_that_is_written_anew_are_known(browser: Browser) -> None:
    written = (
        "document.open(); document.write(\"<p id=a>New</p><script>a.addEventListener('click', () => {})"
        '</" + "script>"); document.close()'
    )
    async with page_rig(browser) as at:
        await at.show("<p>old")
        await at.js(f"{written}; 1")
        assert await at.texts() == ['clickable "New" [1]']
        await at.show("<p>outer</p><iframe srcdoc='<p>old'></iframe>")
        await at.texts()
        frame = at.page.frames[-1]
        await frame.evaluate(f"{written}; 1")
        assert await at.texts() == ["outer", 'clickable "New" [1]']


async def test_numbers_stay_with_their_elements(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show("<button id=a>A</button> <button id=b>B</button>")
        assert await at.texts() == ['button "A" [1] button "B" [2]']
        await at.js("b.insertAdjacentHTML('beforebegin', '<button>C</button> '); b.after(a); 1")
        assert await at.texts() == ['button "C" [3] button "B" [2] button "A" [1]']
        await at.js("window.kept = a; a.remove()")
        assert await at.texts() == ['button "C" [3] button "B" [2]']
        await at.js("document.body.append(kept)")
        assert await at.texts() == ['button "C" [3] button "B" [2] button "A" [1]']
        await at.page.reload()
        assert await at.texts() == ['button "A" [1] button "B" [2]']


async def test_what_lies_under_a_dialog_is_covered(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            "<button>Buy</button><div style='height:2000px'></div><button>Below</button>"
            "<div style='position:fixed;inset:0;background:#0008'><h2>Cookies?</h2>"
            "<button>Accept</button></div>"
        )
        assert (await at.element("Buy")).states == ("covered",)
        assert (await at.element("Accept")).states == ()
        assert (await at.element("Below")).states == (), "what is out of sight is not covered"


async def test_what_is_scrolled_out_of_a_box_is_not_covered(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            "<div style='height:60px;overflow:auto'><div style='height:100px'>x</div>"
            "<button>In</button></div><p><button style='height:150px;width:300px'>Out</button>"
        )
        assert [element.states for element in await at.elements()] == [(), ()]


async def test_what_is_scrolled_out_of_a_box_or_frame_is_clipped(browser: Browser) -> None:
    async with page_rig(browser) as at:
        at.bodies[HOST + "/inner"] = (
            "<button>Framed</button><div style='height:300px'>x</div><button>Below</button>"
        )
        await at.show(
            "<style>button{display:block}</style><div style='height:60px;overflow:auto'><button>Top"
            "</button><div style='height:100px'>x</div><button>Out</button><label style='display:block'>"
            "<input type=checkbox style='display:none'>Box</label><div style='position:fixed;top:300px'>"
            "<button>Menu</button></div><div style='position:absolute;top:400px'><button>Tip</button></div>"
            "</div><div style='overflow:hidden;width:100px;white-space:nowrap'><a href=/>One</a> "
            f"<a href=/>Long {'x' * 60}</a></div><iframe src=/inner style='height:80px'></iframe>"
            "<div style='height:2000px'></div><button>Far</button>"
        )
        clipped = {element.name for element in await at.elements() if element.clipped}
        assert clipped == {"Out", "Box", "Below"}


async def test_what_floats_out_of_a_folded_box_is_seen(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            "a <span style='display:inline-block;height:0;overflow:hidden'><p>flow<button>Flow</button></p>"
            "<iframe srcdoc='<p>frame'></iframe><div style='position:fixed;top:90px'><p>Modal</p><button>OK"
            "</button><div style='height:0;overflow:hidden'>folded</div></div></span> b"
            "<div style='height:0;overflow:hidden;position:relative'><div style='position:absolute;top:0'>"
            "<button>Held</button></div><div style='position:fixed;top:300px'>Free</div></div>"
            "<div style='width:0;overflow:hidden;transform:scale(1)'><p style='position:fixed'>c</p></div>"
        )
        assert await at.texts() == ["a", "Modal", 'button "OK" [1]', "b", "Free"]
        assert await at.do("click", "OK") is None


async def test_what_floats_out_of_a_box_is_reached(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            "<div style='height:60px;overflow:hidden'><button style='position:fixed;top:300px' "
            "onclick='this.textContent = 1'>Menu</button></div>"
        )
        assert await at.do("click", "Menu") is None
        assert (await at.element("1")).states == ()


async def test_boxes_are_in_pixels_of_the_viewport(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            "<body style='margin:0;height:3000px'><button style='position:absolute;left:30px;"
            "top:200px;width:50px;height:20px'>A</button>"
        )
        assert (await at.element("A")).box == (30, 200, 50, 20)
        await at.js("scrollTo(0, 150)")
        assert (await at.element("A")).box == (30, 50, 50, 20)


async def test_frames_of_the_same_site_are_walked_in_place(browser: Browser) -> None:
    async with page_rig(browser) as at:
        at.bodies[HOST + "/inner"] = (
            "<body style='margin:0'><p>Inner</p><button onclick='this.textContent = 1'>Press</button>"
            "<span id=s>heard</span><script>s.addEventListener('click', () => {})</script>"
        )
        at.bodies["http://other.test/"] = "<p>secret</p>"
        await at.show(
            "<p>Before</p><iframe src=/inner style='margin-left:300px;border:5px solid;padding:7px'>"
            "</iframe> after <iframe src=http://other.test/></iframe>"
            "<iframe sandbox srcdoc='<p>boxed'></iframe><iframe style='display:none' src=/inner></iframe>"
        )
        assert await at.texts() == [
            "Before",
            "Inner",
            'button "Press" [1] clickable "heard" [2]',
            "after",
            "(frame: http://other.test/)",
            "(frame: about:blank)",
        ]
        assert (await at.element("Press")).box[0] == 320
        assert await at.do("click", "Press") is None
        assert (await at.element("1")).id == 1


async def test_open_shadow_roots_are_walked(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            """<x-card><b>slotted</b></x-card><script>
            customElements.define('x-card', class extends HTMLElement { constructor() { super();
              this.attachShadow({mode: 'open'}).innerHTML =
                '<p>shadow</p><slot></slot> <button>Deep</button><p><slot name=n>default</slot></p>';
              this.shadowRoot.querySelector('button').onclick = (e) => { e.target.textContent = 'done' };
            } })</script>"""
        )
        assert await at.texts() == ["shadow", 'slotted button "Deep" [1]', "default"]
        assert await at.do("click", "Deep") is None
        assert (await at.texts())[1] == 'slotted button "done" [1]'


SHADOWS: dict[str, tuple[str, str, list[str]]] = {
    "the component listens": (
        "<x-a onclick=1></x-a>",
        "<button>Less</button> <button>More</button> <input aria-label=Amount>",
        ['button "Less" [1] button "More" [2] textbox "Amount" [3]'],
    ),
    "it listens and holds one button": (
        "<x-a onclick=1></x-a>",
        "<button>Less</button>",
        ['button "Less" [1]'],
    ),
    "what is around it listens": (
        "<div tabindex=0><x-a></x-a></div>",
        "<button>Less</button><button>More</button>",
        ['clickable "LessMore" [1] button "Less" [2] button "More" [3]'],
    ),
    "it is deep, and nothing but its content has a box": (
        "<div role=button style='display:contents'><p style='display:contents'><x-a style='display:contents'></x-a></p></div>",
        "<button>Less</button>",
        ['button "Less" [1]'],
    ),
    "nothing is in it that can be acted on": (
        "<x-a onclick=1></x-a>",
        "<b>Go</b> there",
        ['clickable "Go there" [1]'],
    ),
}


@pytest.mark.parametrize("case", SHADOWS)
async def test_what_listens_swallows_no_shadow_root(browser: Browser, case: str) -> None:
    html, shadow, texts = SHADOWS[case]
    async with page_rig(browser) as at:
        await at.show(
            f"{html}<script>customElements.define('x-a', class extends HTMLElement {{ constructor() {{"
            f"super(); this.attachShadow({{mode: 'open'}}).innerHTML = '{shadow}' }} }})</script>"
        )
        assert await at.texts() == texts


@pytest.mark.parametrize("around", ["onclick=1", "role=dialog tabindex=0"])
async def test_what_listens_swallows_no_frame(browser: Browser, around: str) -> None:
    async with page_rig(browser) as at:
        at.bodies[HOST + "/inner"] = "<p>Pay now</p><button>Pay</button>"
        await at.show(f"<div {around}><iframe src=/inner></iframe></div>")
        assert (await at.texts())[1:] == ["Pay now", 'button "Pay" [2]']


async def test_long_names_and_texts_are_cut(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            "<button id=b></button><p id=p></p><textarea id=t aria-label=t></textarea><script>"
            "b.textContent = '🙂'.repeat(100000); p.textContent = 'x'.repeat(5000000);"
            "t.value = 'y'.repeat(5000)</script>"
        )
        button, text, field = (part for line in await at.lines() for part in line)
        assert isinstance(button, Element)
        assert isinstance(field, Element)
        assert button.name == "🙂" * 79 + "…"
        assert text == "x" * 1999 + "…"
        assert field.value == "y" * 1999 + "…"


async def test_control_characters_are_dropped_and_broken_ones_replaced(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show("<p id=p></p><button id=b></button>")
        await at.js("p.textContent = 'a\\u0007b\\u202ec\\u0085d\\ud800e'; b.title = '\\udc00'; 1")
        text, button = (part for line in await at.lines() for part in line)
        assert text == "abcd\N{REPLACEMENT CHARACTER}e"
        assert isinstance(button, Element)
        assert button.name == "\N{REPLACEMENT CHARACTER}"


async def test_a_page_that_is_too_large_is_cut_and_says_so(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show("<p>first</p>")
        await at.js("document.body.insertAdjacentHTML('beforeend', '<p>x</p>'.repeat(100000))")
        lines = (await read_page(at.tab, 60))[2]
        assert lines[0] == ("first",)
        assert lines[-1] == ("(the page goes on: it is too large to be shown in full)",)
        assert len(lines) < 10000


async def test_a_page_that_is_nested_without_end_is_cut(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show("<p>first</p>")
        await at.js(
            "let at = document.body; for (let i = 0; i < 1000; i++) "
            "at = at.appendChild(document.createElement('b')); at.textContent = 'deep'; 1"
        )
        assert (await at.texts())[0] == "first"


async def test_a_page_cannot_forge_what_is_seen(browser: Browser) -> None:
    """Everything that a page may have put in place of the browser's own is not what is asked."""
    async with page_rig(browser) as at:
        await at.show(
            """<button id=b>Real</button><p>Text</p><script>
            for (const made of [Array, Map, WeakMap, Set, String, Element, Node, Document, Object])
              for (const name of Object.getOwnPropertyNames(made.prototype)) try {
                if (name !== 'constructor') Object.defineProperty(made.prototype, name,
                  { get() { return () => 'forged' }, set() {}, configurable: true }) } catch {}
            window.getComputedStyle = () => ({ display: 'none' }); JSON.stringify = () => '[]';
            MutationObserver = Promise = MessageChannel = Proxy = undefined;
            Function.prototype.toString = () => 'forged'; Array.from = () => [];
            window.WeakMap = window.Map = class {};
            </script>"""
        )
        assert await at.texts() == ['button "Real" [1]', "Text"]
        number = (await at.elements())[0].id
        assert number == 1


async def test_a_page_cannot_find_what_sees_it(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.show(
            "<button onclick=1>A</button><script>before = Object.keys(window).length</script>"
        )
        html = await at.page.content()
        await at.texts()
        assert await at.page.content() == html
        assert (
            await at.js("Reflect.ownKeys(window).filter(k => /^[ke][0-9a-f]{16}$/.test(String(k)))")
            == []
        )


async def test_a_page_may_be_nothing_but_a_drawing_or_text(browser: Browser) -> None:
    async with page_rig(browser) as at:
        await at.page.goto('data:text/plain,button "Buy" [3]')
        assert await at.texts() == ['button "Buy" (3)']
        assert await at.elements() == []
        await at.page.goto("about:blank")
        assert await read_page(at.tab, 5) == ("about:blank", "", ())
        await at.page.goto(
            "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg'><circle r='9'/></svg>"
        )
        assert (await read_page(at.tab, 5))[1] == ""
