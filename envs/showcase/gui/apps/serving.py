"""Common base of the shipped applications: pages by path, refusals in words, changes by POST alone.

Pages are the templates beside this file: plain HTML without script, in which all text is escaped.
The subset is small on purpose, so that a reader without a browser sees the same lines: blocks keep
their default display, no field is required or focused by itself, every field has a label.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

import jinja2

from clawrl_gym.envs.gui.site import Request, Response

Handler = Callable[[Request, str], Response]
"""Gets the request, and what stands behind the first part of its path."""
EntryT = TypeVar("EntryT")
Menu = Sequence[tuple[str, str]]
"""Text and path of each link that stands above all pages of an application."""
LONGEST_TEXT = 2000
"""Characters of a field that are taken."""


def _without_nul(value: object) -> object:
    """No page holds the character that browsers replace."""
    return value.replace("\0", "") if isinstance(value, str) else value


TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    auto_reload=False,
    finalize=_without_nul,
    lstrip_blocks=True,
    trim_blocks=True,
    undefined=jinja2.StrictUndefined,
)


class RequestRefused(Exception):
    """The request cannot be served; nothing has changed. The text is for the client."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


def page(
    template: str, title: str, menu: Menu = (), status: int = 200, **values: object
) -> Response:
    """A whole page; the template numbers its fields from 1."""
    field_numbers = itertools.count(1)
    html = TEMPLATES.get_template(f"{template}.html.j2").render(
        values, title=title, menu=menu, next_field_id=lambda: f"f{next(field_numbers)}"
    )
    return Response(html, status)


def see_other(path: str) -> Response:
    """Redirect after a change, to a page that changes nothing when it is reloaded."""
    return Response(status=303, headers={"location": path})


def path_to(path: str, **query: object) -> str:
    """A path with a query."""
    return f"{path}?{urlencode({name: str(value) for name, value in query.items()})}"


def serve(
    request: Request,
    pages: Mapping[str, Handler],
    changes: Mapping[str, Handler],
    title: str,
    menu: Menu,
) -> Response:
    """The handler of the first part of the path answers; "" is the start page."""
    first, _, rest = request.path.removeprefix("/").partition("/")
    try:
        return _handler(request.method, first, pages, changes)(request, rest)
    except RequestRefused as error:
        return page("refused", title, menu, error.status, reason=str(error))


def _handler(
    method: str, first: str, pages: Mapping[str, Handler], changes: Mapping[str, Handler]
) -> Handler:
    handlers = {"GET": pages, "HEAD": pages, "POST": changes}.get(method, {})
    if first in handlers:
        return handlers[first]
    if first in pages or first in changes:
        raise RequestRefused("This page cannot be asked for in this way.", 405)
    raise no_such_page()


def no_such_page() -> RequestRefused:
    """A path that leads nowhere."""
    return RequestRefused("There is no such page.", 404)


def refuse_rest(rest: str) -> None:
    """Refuse paths with a second part."""
    if rest:
        raise no_such_page()


def filled(request: Request, name: str, label: str) -> str:
    """A field of the form, white space at its ends dropped. Refused when it is empty."""
    text = optional(request, name)
    if not text:
        raise RequestRefused(f"{label} is missing.")
    return text


def optional(request: Request, name: str) -> str:
    """A field of the form, white space at its ends dropped. Refused when it is far too long."""
    text = request.form.get(name, "").strip().replace("\r\n", "\n")
    if len(text) > LONGEST_TEXT:
        raise RequestRefused(f"A text of more than {LONGEST_TEXT} characters is too long.")
    return text


def whole(text: str, label: str, low: int, high: int) -> int:
    """A whole number in a range. Refused otherwise, in words."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 6):
        raise RequestRefused(f"{label} must be a whole number.")
    if not low <= int(digits) <= high:
        raise RequestRefused(f"{label} must be from {low} to {high}.")
    return int(digits)


def next_number(numbered: Mapping[str, object], before_first: int = 0) -> str:
    """The number of the next entry, in digits as keys are."""
    return str(max(map(int, numbered), default=before_first) + 1)


def list_part(
    request: Request, path: str, entries: Sequence[EntryT], page_size: int, query: str = ""
) -> tuple[Sequence[EntryT], list[tuple[str, str]]]:
    """The entries on the page that is asked for, and text and path of the links to the pages
    beside it. Refused when there is no such page; an empty list has one."""
    pages = max(1, -(-len(entries) // page_size))
    number = whole(request.query.get("page", "1"), "The page", 1, pages)
    search = {"q": query} if query else {}
    turns = [
        (text, path_to(path, **search, page=neighbour))
        for text, neighbour in (("Back", number - 1), ("More", number + 1))
        if 1 <= neighbour <= pages
    ]
    return entries[(number - 1) * page_size : number * page_size], turns
