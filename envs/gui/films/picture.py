"""Pictures of a page with something drawn on them: numbers for a model, attempts for people."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clawrl_gym.core.errors import EnvError, boundary
from clawrl_gym.envs.gui.action import ENDINGS
from clawrl_gym.envs.gui.attempt import Attempt, caption, element_of
from clawrl_gym.envs.gui.films.overlay import Box, Overlay, Point, fitted, font
from clawrl_gym.envs.gui.observation import Element, View

if TYPE_CHECKING:
    from PIL.Image import Image

_COLOURS = ("#c2255c", "#1864ab", "#2b7a2f", "#a64a00", "#6930c3", "#0b6e75", "#7a4419", "#495057")
"""Colours of the numbers' boxes, in turn: white type on them is legible."""
SUCCEEDED, FAILED = "#d9480f", "#5f6b7c"
_MOST_PIXELS = 40_000_000
_QUALITY = 80


def opened(jpeg: bytes) -> Image:
    """The picture. Raises EnvError for bytes that are none, or far too large."""
    from PIL import Image

    with boundary(EnvError, "reading a screenshot"):
        picture = Image.open(io.BytesIO(jpeg), formats=("JPEG",))
        if picture.width * picture.height > _MOST_PIXELS:
            raise EnvError(f"got a picture of {picture.size}, expected a page's")
        return picture.convert("RGB")


def jpeg_of(picture: Image, quality: int = _QUALITY) -> bytes:
    """The picture as JPEG."""
    written = io.BytesIO()
    picture.save(written, "JPEG", quality=quality, optimize=True)
    return written.getvalue()


def marked(jpeg: bytes, view: View, viewport: tuple[int, int]) -> bytes:
    """A box with its number around each element that can be seen."""
    from PIL import ImageDraw

    picture = opened(jpeg)
    scale = picture.width / viewport[0]
    visible = [
        (element, box)
        for element in view.elements
        if "covered" not in element.states
        and not element.clipped
        and (box := _visible_part(element.box, viewport)) is not None
    ]
    draw = ImageDraw.Draw(picture)
    size = 12 * scale
    placed: list[Box] = []
    labels: list[tuple[Box, str, str]] = []
    for element, box in visible:
        colour = _COLOURS[element.id % len(_COLOURS)]
        left, top, width, height = (value * scale for value in box)
        edge = (
            left,
            top,
            min(left + width, picture.width) - 1,
            min(top + height, picture.height) - 1,
        )
        if edge[2] > edge[0] and edge[3] > edge[1]:
            draw.rectangle(edge, outline=colour, width=max(1, round(1.5 * scale)))
        text = str(element.id)
        label = (font(size).getlength(text) + 5 * scale, size * 1.15)
        place = label_place((left, top, width, height), label, picture.size, placed)
        placed.append(place)
        labels.append((place, text, colour))
    for (left, top, width, height), text, colour in labels:
        draw.rectangle((left, top, left + width - 1, top + height - 1), colour)
        draw.text((left + width / 2, top + height / 2), text, "#ffffff", font(size), "mm")
    return jpeg_of(picture)


def annotated(
    jpeg: bytes, attempts: Sequence[Attempt], view: View, viewport: tuple[int, int]
) -> bytes:
    """The page with the attempts drawn on it and a line under it."""
    from PIL import Image, ImageDraw

    picture = drawn(opened(jpeg), attempts, view, viewport)
    size = max(14.0, picture.width / 45)
    whole = Image.new("RGB", (picture.width, picture.height + round(size * 2)), "#ffffff")
    whole.paste(picture)
    words = fitted(
        " · ".join(caption(attempt, view) for attempt in attempts), size, picture.width - 20
    )
    middle = (10, picture.height + size)
    ImageDraw.Draw(whole).text(middle, words, "#1a2130", font(size), "lm")
    return jpeg_of(whole)


def drawn(
    picture: Image, attempts: Sequence[Attempt], view: View, viewport: tuple[int, int]
) -> Image:
    """The picture with pointers, arrows and tags; several attempts are numbered."""
    if not attempts:
        return picture
    ink = Overlay(*picture.size)
    scale = picture.width / viewport[0]
    pen = _Pen(ink, view, scale)
    for attempt in attempts:
        pen.draw(attempt)
    if len(attempts) > 1:
        pen.number()
    return ink.over(picture)


class _Pen:
    """Draws attempts, one after the other."""

    def __init__(self, ink: Overlay, view: View, scale: float) -> None:
        self._ink, self._view, self._scale = ink, view, scale
        self._drawn = 0
        self._numbers: list[tuple[Point, str, str]] = []

    def number(self) -> None:
        """Say which attempt came first; on top of everything."""
        for at, number, colour in self._numbers:
            self._ink.disc(at, number, colour)

    def draw(self, attempt: Attempt) -> None:
        self._drawn += 1
        action = attempt.action
        self._colour = FAILED if attempt.failed else SUCCEEDED
        at = self._point(action.id, action.x, action.y)
        match action.kind:
            case "click" | "double_click" | "triple_click" | "right_click" | "hover":
                self._pointed(action.kind, at)
            case "type" | "select" | "press":
                self._written(action.id, action.keys or action.text or "(nothing)")
            case "scroll":
                self._scrolled(action.direction, at)
            case "drag":
                self._dragged(at, self._point(action.to_id, action.to_x, action.to_y))
            case "screenshot":
                pass
            case _ if action.kind in ENDINGS:
                word = action.kind.replace("_", " ").upper()
                self._ink.stamp(f"{word}: {action.text}" if action.text else word, self._colour)
            case _:
                words = caption(Attempt(action), self._view)
                self._ink.tag((self._ink.width, 6), words, self._colour)

    def _pointed(self, kind: str, at: Point | None) -> None:
        if at is None:
            return
        edge_point = self._inside(at)
        if edge_point != at:  # further down or up: the page scrolls to it first
            self._ink.arrow(self._towards(edge_point, at), edge_point, self._colour)
            self._count(self._towards(edge_point, at))
            return
        rings = {"double_click": 2, "triple_click": 3, "hover": 0}.get(kind, 1)
        for ring in range(rings):
            self._ink.ring(at, 12 + 6 * ring, self._colour)
        self._ink.pointer(at)
        if kind in ("right_click", "hover"):
            self._ink.tag((at[0] + 14, at[1] + 14), kind.split("_")[0], self._colour, 12)
        self._count((at[0] - 12 - 6 * max(1, rings), at[1] - 6 - 6 * max(1, rings)))

    def _written(self, number: int | None, text: str) -> None:
        box = self._box(number) or self._focused()
        if box is None:
            self._ink.tag((self._ink.width / 2, self._ink.height), text, self._colour, centred=True)
            return
        self._ink.frame(box, self._colour, "#ffd8a833")
        self._ink.tag_beside(box, text, self._colour)
        self._count((box[0], box[1]))

    def _scrolled(self, direction: str, at: Point | None) -> None:
        ink, reach = self._ink, min(self._ink.width, self._ink.height) / 5
        x, y = at or (ink.width - 36.0, ink.height / 2)
        dx, dy = {"up": (0, -1), "down": (0, 1), "left": (-1, 0)}.get(direction, (1, 0))
        if at is None and dx:
            x, y = ink.width / 2, ink.height - 36.0
        start, end = (x - dx * reach, y - dy * reach), (x + dx * reach, y + dy * reach)
        ink.arrow(start, end, self._colour, 6)
        self._count(start)

    def _dragged(self, start: Point | None, end: Point | None) -> None:
        if start is None or end is None:
            return
        start, end = self._inside(start), self._inside(end)
        self._ink.ring(start, 9, self._colour)
        self._ink.arrow(start, end, self._colour)
        self._ink.pointer(end)
        self._count((start[0] - 18, start[1] - 12))

    def _count(self, at: Point) -> None:
        x = max(12.0, min(at[0], self._ink.width - 12))
        y = max(12.0, min(at[1], self._ink.height - 12))
        while any(
            abs(x - place[0]) < 20 and abs(y - place[1]) < 20 for place, _, _ in self._numbers
        ):
            x += 21
        self._numbers.append(((x, y), str(self._drawn), self._colour))

    def _point(self, number: int | None, x: float | None, y: float | None) -> Point | None:
        box = self._box(number)
        if box is not None:
            return box[0] + box[2] / 2, box[1] + box[3] / 2
        return None if x is None or y is None else (x * self._scale, y * self._scale)

    def _box(self, number: int | None) -> Box | None:
        return self._scaled(element_of(number, self._view))

    def _focused(self) -> Box | None:
        focused = (one for one in self._view.elements if "focused" in one.states)
        return self._scaled(next(focused, None))

    def _scaled(self, element: Element | None) -> Box | None:
        if element is None or not any(element.box):
            return None
        left, top, width, height = (value * self._scale for value in element.box)
        return left, top, width, height

    def _inside(self, at: Point) -> Point:
        x = max(6.0, min(at[0], self._ink.width - 6))
        return x, max(6.0, min(at[1], self._ink.height - 6))

    def _towards(self, edge_point: Point, at: Point) -> Point:
        """Where an arrow begins that points out of the page."""
        sign = [(there > here) - (there < here) for here, there in zip(edge_point, at, strict=True)]
        return edge_point[0] - 44 * sign[0], edge_point[1] - 44 * sign[1]


def _visible_part(box: Box, viewport: tuple[int, int]) -> Box | None:
    """The part of a box that lies in the viewport."""
    left, top = max(0.0, box[0]), max(0.0, box[1])
    right, bottom = min(viewport[0], box[0] + box[2]), min(viewport[1], box[1] + box[3])
    if right - left < 1 or bottom - top < 1:
        return None
    return left, top, right - left, bottom - top


def label_place(
    box: Box, label: tuple[float, float], size: tuple[int, int], placed: list[Box]
) -> Box:
    """Where a label hides least: beside a corner of its box if it can, within the picture."""
    left, top, width, height = box
    right, bottom, (wide, high) = left + width, top + height, label
    corners = (
        (left, top - high), (right - wide, top - high), (left - wide, top), (right, top),
        (left, bottom), (right - wide, bottom), (left, top), (right - wide, top),
        (left, bottom - high), (right - wide, bottom - high),
    )  # fmt: skip
    places = [
        (max(0.0, min(x, size[0] - wide)), max(0.0, min(y, size[1] - high)), wide, high)
        for x, y in corners
    ]
    return min(places, key=lambda place: sum(_shared(place, neighbour) for neighbour in placed))


def _shared(first: Box, second: Box) -> float:
    """Area of what two boxes have in common."""
    wide = min(first[0] + first[2], second[0] + second[2]) - max(first[0], second[0])
    high = min(first[1] + first[3], second[1] + second[3]) - max(first[1], second[1])
    return max(0.0, wide) * max(0.0, high)
