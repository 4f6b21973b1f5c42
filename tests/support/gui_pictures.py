"""Made-up pages for the tests of pictures and films: a picture and what is on it."""

from __future__ import annotations

import io

from clawrl_gym.envs.gui.observation import Element, View

VIEWPORT = (400, 300)


def page_jpeg(size: tuple[int, int] = VIEWPORT, ground: str = "#ffffff") -> bytes:
    """A heading, a field and a button; the rest is ground."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", size, ground)
    draw = ImageDraw.Draw(picture)
    draw.rectangle((20, 20, 180, 40), "#1a2130")
    draw.rectangle((20, 60, 160, 90), outline="#888888")
    draw.rectangle((170, 60, 230, 90), "#dddddd")
    written = io.BytesIO()
    picture.save(written, "JPEG", quality=90)
    return written.getvalue()


FIELD = Element(1, "textbox", "Search", box=(20, 60, 140, 30))
BUTTON = Element(2, "button", "Find", box=(170, 60, 60, 30))
FAR = Element(3, "link", "Imprint", box=(20, 900, 60, 18))
VIEW = View("http://shop/", "Shop", (("# Shop",), (FIELD, BUTTON), (FAR,)))
