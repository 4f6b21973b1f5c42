"""Pages of the shipped applications: plain HTML without script, in which all text is escaped.

The subset is small on purpose, so that a reader without a browser sees the same lines: blocks keep
their default display, no field is required or focused by itself, every field has a label.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlencode

from clawrl_gym.envs.gui.apps.style import STYLE
from clawrl_gym.envs.gui.site import Response

Method = Literal["get", "post"]


@dataclass(frozen=True, slots=True)
class Html:
    """Markup that is safe to show: made by the functions here alone."""

    markup: str


Inline = Html | str
"""What stands in a line: markup, or text that is escaped."""
_ID = "\0"
"""Stands for the id of a field until the page numbers it; no text holds it, see `_text`."""


def page(title: str, *blocks: Html, menu: Sequence[Html] = (), status: int = 200) -> Response:
    """A whole page; the menu is a line of links above all else."""
    head = f'<meta charset="utf-8"><title>{_text(title)}</title><style>{STYLE}</style>'
    bar = f"<nav>{' '.join(part.markup for part in menu)}</nav>" if menu else ""
    body = _number_fields("".join(block.markup for block in blocks))
    return Response(
        f'<!doctype html><html lang="en"><head>{head}</head>'
        f"<body>{bar}<main>{body}</main></body></html>",
        status,
    )


def see_other(path: str) -> Response:
    """After a change: the browser goes on to a page that changes nothing when it is reloaded."""
    return Response(status=303, headers={"location": path})


def path_to(path: str, **query: object) -> str:
    """A path with a query."""
    return f"{path}?{urlencode({name: str(value) for name, value in query.items()})}"


def heading(text: str) -> Html:
    """The page's own heading."""
    return Html(f"<h1>{_text(text)}</h1>")


def subheading(text: str) -> Html:
    """The heading of a part of the page."""
    return Html(f"<h2>{_text(text)}</h2>")


def paragraph(*parts: Inline) -> Html:
    """A line."""
    return Html(f"<p>{_inline(parts)}</p>")


def notice(text: str) -> Html:
    """A line that stands out: what went wrong, or that there is nothing."""
    return Html(f'<p class="notice">{_text(text)}</p>')


def bullets(items: Iterable[Sequence[Inline]]) -> Html:
    """A list; each item is a line."""
    return Html("".join(("<ul>", *(f"<li>{_inline(item)}</li>" for item in items), "</ul>")))


def table(rows: Iterable[Sequence[Inline]], head: Sequence[str] = ()) -> Html:
    """Rows of cells; a cell is one part: text, a link, a field or a button."""
    top = f"<tr>{''.join(f'<th>{_text(cell)}</th>' for cell in head)}</tr>" if head else ""
    body = (f"<tr>{''.join(f'<td>{_inline((cell,))}</td>' for cell in row)}</tr>" for row in rows)
    return Html(f"<table>{top}{''.join(body)}</table>")


def form(action: str, *blocks: Html, method: Method = "post") -> Html:
    """Fields and buttons that are sent together; a table may stand in it."""
    inner = "".join(block.markup for block in blocks)
    return Html(f'<form method="{method}" action="{_text(action)}" novalidate>{inner}</form>')


def link(text: str, path: str) -> Html:
    """Where to go on."""
    return Html(f'<a href="{_text(path)}">{_text(text)}</a>')


def button(text: str, name: str = "", value: object = "") -> Html:
    """Sends its form, with a name and a value of its own where it has them."""
    sent = f' name="{_text(name)}" value="{_text(str(value))}"' if name else ""
    return Html(f'<button type="submit"{sent}>{_text(text)}</button>')


def hidden(name: str, value: object) -> Html:
    """A field that nobody sees."""
    return Html(f'<input type="hidden" name="{_text(name)}" value="{_text(str(value))}">')


def text_field(label: str, name: str, value: str = "") -> Html:
    """A line to type in."""
    return _input("text", label, name, value)


def number_field(label: str, name: str, value: int | str = "") -> Html:
    """A number to type in."""
    return _input("number", label, name, str(value))


def text_area(label: str, name: str, value: str = "") -> Html:
    """Lines to type in. The line break after the tag is the one that HTML drops."""
    field = f'<textarea id="{_ID}" name="{_text(name)}">\n{_text(value)}</textarea>'
    return Html(f"{_label(label)} {field}")


def choice(label: str, name: str, options: Iterable[str], chosen: str = "") -> Html:
    """A list that opens; without a chosen option the first one is."""
    shown = "".join(
        f'<option value="{_text(option)}"{" selected" if option == chosen else ""}>'
        f"{_text(option)}</option>"
        for option in options
    )
    return Html(f'{_label(label)} <select id="{_ID}" name="{_text(name)}">{shown}</select>')


def check_box(label: str, name: str, checked: bool = False, value: str = "on") -> Html:
    """A box to tick; it is sent only when it is ticked."""
    return _box("checkbox", label, name, value, checked)


def radio(label: str, name: str, value: str, checked: bool = False) -> Html:
    """One of several boxes with the same name, of which one alone is ticked."""
    return _box("radio", label, name, value, checked)


def _input(kind: str, label: str, name: str, value: str) -> Html:
    field = f'<input id="{_ID}" type="{kind}" name="{_text(name)}" value="{_text(value)}">'
    return Html(f"{_label(label)} {field}")


def _box(kind: str, label: str, name: str, value: str, checked: bool) -> Html:
    ticked = " checked" if checked else ""
    field = f'<input id="{_ID}" type="{kind}" name="{_text(name)}" value="{_text(value)}"{ticked}>'
    return Html(f"{field} {_label(label)}")


def _label(text: str) -> str:
    return f'<label for="{_ID}">{_text(text)}</label>'


def _text(text: str) -> str:
    return html.escape(text.replace("\0", ""))


def _inline(parts: Iterable[Inline]) -> str:
    return " ".join(part.markup if isinstance(part, Html) else _text(part) for part in parts)


def _number_fields(body: str) -> str:
    """Gives each field and its label, which stand beside each other, an id of their own."""
    first, *others = body.split(_ID)
    return first + "".join(f"f{place // 2 + 1}{piece}" for place, piece in enumerate(others))
