"""How the shipped applications answer: pages by path, refusals in words, changes by POST alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clawrl_gym.envs.gui.apps.html import Html, heading, notice, page
from clawrl_gym.envs.gui.site import Request, Response

Handler = Callable[[Request, str], Response]
"""Gets the request, and what stands behind the first part of its path."""
LONGEST_TEXT = 2000
"""Characters of a field that are taken."""


class Refused(Exception):
    """The request cannot be served; nothing has changed. The text is for the one who asked."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


def serve(
    request: Request,
    pages: Mapping[str, Handler],
    changes: Mapping[str, Handler],
    title: str,
    menu: tuple[Html, ...],
) -> Response:
    """The handler of the first part of the path answers; "" is the start page."""
    first, _, rest = request.path.removeprefix("/").partition("/")
    try:
        return _handler(request.method, first, pages, changes)(request, rest)
    except Refused as error:
        return page(title, heading("Sorry"), notice(str(error)), menu=menu, status=error.status)


def _handler(
    method: str, first: str, pages: Mapping[str, Handler], changes: Mapping[str, Handler]
) -> Handler:
    known = {"GET": pages, "HEAD": pages, "POST": changes}.get(method, {})
    if first in known:
        return known[first]
    if first in pages or first in changes:
        raise Refused("This page cannot be asked for in this way.", 405)
    raise Refused("There is no such page.", 404)


def filled(request: Request, name: str, label: str) -> str:
    """A field of the form, white space at its ends dropped. Refused when it is empty."""
    text = optional(request, name)
    if not text:
        raise Refused(f"{label} is missing.")
    return text


def optional(request: Request, name: str) -> str:
    """A field of the form, white space at its ends dropped. Refused when it is far too long."""
    text = request.form.get(name, "").strip().replace("\r\n", "\n")
    if len(text) > LONGEST_TEXT:
        raise Refused(f"A text of more than {LONGEST_TEXT} characters is too long.")
    return text


def whole(text: str, label: str, low: int, high: int) -> int:
    """A whole number in a range. Refused otherwise, in words."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 6):
        raise Refused(f"{label} must be a whole number.")
    if not low <= int(digits) <= high:
        raise Refused(f"{label} must be from {low} to {high}.")
    return int(digits)
