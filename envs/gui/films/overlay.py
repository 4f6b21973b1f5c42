"""Drawing over pictures: smooth shapes and legible text, the same on every machine.

Type is the font that comes with Pillow; what it has no glyph for is written without accents, or
as a question mark.
"""

from __future__ import annotations

import math
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont, ImageFont

Point = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, top, width, height."""
_SMOOTH = 2
"""Factor by which shapes are drawn larger, and made smaller afterwards."""
_LIKE = str.maketrans(
    {
        "\N{EN DASH}": "-", "\N{EM DASH}": "-", "\N{MINUS SIGN}": "-",
        "\N{MULTIPLICATION SIGN}": "x", "\N{BULLET}": "*", "→": "->", "←": "<-", "ß": "ss",
        "€": "EUR",
    }
)  # fmt: skip
_QUOTES = "“”\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}"
_GLYPHS = frozenset(map(chr, range(32, 127))) | frozenset(f"{_QUOTES}…·")


@lru_cache(maxsize=32)
def font(size: float) -> FreeTypeFont | ImageFont:
    """Pillow's own font."""
    from PIL import ImageFont

    return ImageFont.load_default(size)


def legible(text: str) -> str:
    """The text in glyphs that the font has, on one line."""
    text = " ".join(text.translate(_LIKE).split())
    if all(char in _GLYPHS for char in text):
        return text
    parts = (char if char in _GLYPHS else unicodedata.normalize("NFKD", char) for char in text)
    plain = (char for part in parts for char in part if not unicodedata.combining(char))
    return "".join(char if char in _GLYPHS else "?" for char in plain)


def fitted(text: str, size: float, width: float) -> str:
    """The text, cut with an ellipsis where it is wider than that."""
    text = legible(text[:1000])
    if font(size).getlength(text) <= width:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if font(size).getlength(text[:middle].rstrip() + "…") <= width:
            low = middle
        else:
            high = middle - 1
    return text[:low].rstrip() + "…"


def wrapped(text: str, size: float, width: float, most: int) -> list[str]:
    """The text in lines of that width; the last one is cut when there would be more."""
    lines: list[str] = []
    words = legible(text[:4000]).split(" ")
    while words and len(lines) < most:
        count = 1
        while count < len(words) and font(size).getlength(" ".join(words[: count + 1])) <= width:
            count += 1
        if len(lines) == most - 1:
            count = len(words)
        lines.append(fitted(" ".join(words[:count]), size, width))
        words = words[count:]
    return lines


class Overlay:
    """A transparent layer in the pixels of a picture."""

    def __init__(self, width: int, height: int) -> None:
        from PIL import Image, ImageDraw

        self.width, self.height = width, height
        self._layer = Image.new("RGBA", (width * _SMOOTH, height * _SMOOTH))
        self._draw = ImageDraw.Draw(self._layer)
        self._tags: list[Box] = []

    def over(self, picture: Image) -> Image:
        """The picture with the layer on it."""
        from PIL import Image

        smooth = self._layer.resize((self.width, self.height), Image.Resampling.BOX)
        return Image.alpha_composite(picture.convert("RGBA"), smooth).convert("RGB")

    def ring(self, at: Point, radius: float, colour: str, width: float = 3) -> None:
        """A circle with a light rim, so that it is seen on any ground."""
        x, y = (value * _SMOOTH for value in at)
        for grown, line, ink in ((1.5, width + 3, "#ffffffd0"), (0.0, width, colour)):
            r = (radius + grown) * _SMOOTH
            self._draw.ellipse((x - r, y - r, x + r, y + r), None, ink, round(line * _SMOOTH))

    def frame(
        self, box: Box, colour: str, fill: str | None = None, width: float = 2, corner: float = 4
    ) -> None:
        """A rectangle with round corners."""
        corners = _scaled(box)
        if corners[2] > corners[0] and corners[3] > corners[1]:
            self._draw.rounded_rectangle(
                corners, corner * _SMOOTH, fill, colour, round(width * _SMOOTH)
            )

    def pointer(self, tip: Point) -> None:
        """A mouse pointer."""
        shape = ((0, 0), (0, 17), (4, 13.2), (6.8, 19.4), (9.6, 18.2), (6.9, 12.2), (12.2, 12))
        points = [((tip[0] + x) * _SMOOTH, (tip[1] + y) * _SMOOTH) for x, y in shape]
        self._draw.line([*points, points[0], points[1]], "#ffffff", 4 * _SMOOTH, "curve")
        self._draw.polygon(points, "#1a2130")

    def arrow(self, start: Point, end: Point, colour: str, width: float = 4) -> None:
        """Draw an arrow from start to end."""
        angle = math.atan2(end[1] - start[1], end[0] - start[0])
        head = min(16.0, max(9.0, math.dist(start, end) / 2))
        for grown, ink in ((1.5, "#ffffffd0"), (0.0, colour)):
            neck = _moved(end, angle, -0.8 * head)
            line = [_large(start), _large(neck)]
            self._draw.line(line, ink, round((width + 2 * grown) * _SMOOTH))
            tip = _moved(end, angle, 2 * grown)
            sides = [_moved(tip, angle + turn, head + 3 * grown) for turn in (2.6, -2.6)]
            self._draw.polygon([_large(point) for point in (tip, *sides)], ink)

    def disc(self, at: Point, text: str, colour: str) -> None:
        """A filled circle with a short text."""
        x, y = _large(at)
        for radius, ink in ((11.5, "#ffffff"), (10.0, colour)):
            r = radius * _SMOOTH
            self._draw.ellipse((x - r, y - r, x + r, y + r), ink)
        self._draw.text((x, y), legible(text), "#ffffff", font(13 * _SMOOTH), "mm")

    def tag(
        self, at: Point, text: str, colour: str, size: float = 16, centred: bool = False
    ) -> None:
        """A text on a filled ground, its top left at a point; moved so that it is seen whole."""
        text = fitted(text, size, self.width - 28)
        width = _tag_size(text, size)[0]
        self._put_tag([(at[0] - width / 2 if centred else at[0], at[1])], text, colour, size)

    def tag_beside(self, box: Box, text: str, colour: str, size: float = 16) -> None:
        """A tag that hides neither the box nor another tag, if there is room."""
        text = fitted(text, size, self.width - 28)
        width, height = _tag_size(text, size)
        left, top, wide, high = box
        middle = top + (high - height) / 2
        places = [
            (left + wide + 6, middle), (left, top + high + 4), (left - width - 6, middle),
            (left, top - height - 4), (left + wide - width, middle),
        ]  # fmt: skip
        self._put_tag(places, text, colour, size)

    def _put_tag(self, places: list[Point], text: str, colour: str, size: float) -> None:
        """Put a tag at the first place where it is whole and alone, else near the first one."""
        width, height = _tag_size(text, size)
        boxes = [(left, top, width, height) for left, top in places]
        inside = [self._inside(box) for box in boxes]
        free = [box for box in inside if not any(_meet(box, tag) for tag in self._tags)]
        whole = [box for box in free if box in boxes]
        left, top, _, _ = box = (whole or free or inside)[0]
        self._tags.append(box)
        rim = (left - 1.5, top - 1.5, width + 3, height + 3)
        self._draw.rounded_rectangle(_scaled(rim), 7 * _SMOOTH, "#ffffff")
        self._draw.rounded_rectangle(_scaled(box), 6 * _SMOOTH, colour)
        middle = _large((left + 8, top + height / 2))
        self._draw.text(middle, text, "#ffffff", font(size * _SMOOTH), "lm")

    def _inside(self, box: Box) -> Box:
        left = max(4.0, min(box[0], self.width - box[2] - 4))
        return left, max(4.0, min(box[1], self.height - box[3] - 4)), box[2], box[3]

    def stamp(self, text: str, colour: str) -> None:
        """A large word across the middle, as a rubber stamp prints it."""
        from PIL import Image, ImageDraw

        size = max(20.0, self.width / 18)
        text = fitted(text, size, self.width * 0.7)
        width, height = font(size).getlength(text) + 2 * size, size * 2.1
        plate = Image.new("RGBA", (round(width * _SMOOTH), round(height * _SMOOTH)))
        draw = ImageDraw.Draw(plate)
        edge = (0, 0, plate.width - 1, plate.height - 1)
        draw.rounded_rectangle(edge, 10 * _SMOOTH, "#ffffffe6", colour, 4 * _SMOOTH)
        middle = (plate.width / 2, plate.height / 2)
        draw.text(middle, text, colour, font(size * _SMOOTH), "mm")
        turned = plate.rotate(6, Image.Resampling.BICUBIC, expand=True)
        at = ((self._layer.width - turned.width) // 2, (self._layer.height - turned.height) // 2)
        if min(at) >= 0:
            self._layer.alpha_composite(turned, at)
        else:
            self.tag((self.width / 2, self.height / 2), text, colour, centred=True)


def _tag_size(text: str, size: float) -> tuple[float, float]:
    return font(size).getlength(text) + 16, size * 1.7


def _meet(first: Box, second: Box) -> bool:
    return (
        abs(2 * (first[0] - second[0]) + first[2] - second[2]) < first[2] + second[2]
        and abs(2 * (first[1] - second[1]) + first[3] - second[3]) < first[3] + second[3]
    )


def _large(point: Point) -> Point:
    return point[0] * _SMOOTH, point[1] * _SMOOTH


def _scaled(box: Box) -> Box:
    left, top, width, height = (value * _SMOOTH for value in box)
    return left, top, left + width, top + height


def _moved(point: Point, angle: float, distance: float) -> Point:
    return point[0] + distance * math.cos(angle), point[1] + distance * math.sin(angle)
