"""What is drawn over pages, shape by shape, as small grey pictures of an empty ground.

`python -m tests.gui.test_golden_ink` writes them anew; look at what changed before it is kept.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
from PIL import Image

from clawrl_gym.core.errors import EnvError
from clawrl_gym.envs.gui.action import GuiAction
from clawrl_gym.envs.gui.attempt import Attempt
from clawrl_gym.envs.gui.films.overlay import Overlay, fitted, wrapped
from clawrl_gym.envs.gui.films.picture import annotated, drawn, label_place, marked, opened
from clawrl_gym.envs.gui.films.storyboard import EpisodeOutcome, FilmFrame, draw_storyboard
from clawrl_gym.envs.gui.observation import Element, View

FILE = Path(__file__).parents[1] / "fixtures" / "golden" / "ink.json"
SIZE, SMALL = (160, 120), (80, 60)
INK, GROUND = "#c03020", "#808080"
_MOST_APART = 16
"""Greys of 255: other builds of the libraries that draw round differently."""
FIELD = Element(1, "textbox", "Name", box=(20, 40, 60, 20))
BUTTON = Element(2, "button", "Go", box=(100, 40, 30, 20))
BELOW = Element(3, "link", "Terms", box=(60, 400, 30, 10))
ABOVE = Element(4, "link", "Top", box=(60, -90, 30, 10))
LEFT = Element(5, "link", "Left", box=(-90, 50, 30, 10))
HIDDEN = Element(6, "link", "Hidden", box=(10, 80, 30, 10), states=("covered",))
EDGE = Element(7, "link", "Edge", box=(150, 100, 40, 40))
FLAT = Element(8, "link", "Flat", box=(30, 90, 0, 0))
PAGE = View("", "", ((FIELD, BUTTON, BELOW, ABOVE, LEFT, HIDDEN, EDGE, FLAT),))
FOCUSED = View(
    "", "", ((FIELD, Element(2, "textbox", "B", box=(90, 80, 40, 20), states=("focused",))),)
)


def ground(scale: int = 1) -> Image.Image:
    return Image.new("RGB", (SIZE[0] * scale, SIZE[1] * scale), GROUND)


def jpeg(scale: int) -> bytes:
    written = io.BytesIO()
    ground(scale).save(written, "JPEG", quality=95)
    return written.getvalue()


def shape(*draws: Callable[[Overlay], object]) -> Image.Image:
    ink = Overlay(*SIZE)
    for draw in draws:
        draw(ink)
    return ink.over(ground())


def done(*actions: GuiAction, view: View = PAGE, scale: int = 1, failed: str = "") -> Image.Image:
    return drawn(ground(scale), [Attempt(one, failed) for one in actions], view, SIZE)


def beside(*boxes: tuple[float, float, float, float]) -> Image.Image:
    return shape(*[partial(Overlay.tag_beside, box=box, text="tag", colour=INK) for box in boxes])


CLICK = GuiAction("click", x=80, y=60)
SHAPES: Mapping[str, Callable[[], Image.Image]] = {
    "ring": lambda: shape(
        lambda ink: ink.ring((60, 50), 20, INK), lambda ink: ink.ring((120, 80), 9, INK, 7)
    ),
    "frame": lambda: shape(lambda ink: ink.frame((20, 30, 80, 40), INK)),
    "filled frame": lambda: shape(lambda ink: ink.frame((20, 30, 80, 40), INK, "#ffffff", 6, 16)),
    "flat frames": lambda: shape(
        lambda ink: ink.frame((20, 30, 0, 40), INK), lambda ink: ink.frame((20, 30, 40, 0), INK)
    ),
    "pointer": lambda: shape(lambda ink: ink.pointer((60, 50))),
    "arrows": lambda: shape(
        lambda ink: ink.arrow((20, 20), (140, 20), INK),
        lambda ink: ink.arrow((140, 40), (110, 40), INK, 8),
        lambda ink: ink.arrow((20, 50), (20, 110), INK),
        lambda ink: ink.arrow((60, 100), (70, 90), INK),
    ),
    "discs": lambda: shape(
        lambda ink: ink.disc((40, 40), "1", INK), lambda ink: ink.disc((90, 70), "é", INK)
    ),
    "tag": lambda: shape(lambda ink: ink.tag((20, 30), "tag", INK)),
    "small tag": lambda: shape(lambda ink: ink.tag((20, 30), "tag", INK, 10)),
    "centred tag": lambda: shape(lambda ink: ink.tag((80, 30), "tag", INK, centred=True)),
    "tag beyond right and below": lambda: shape(lambda ink: ink.tag((155, 118), "tag", INK)),
    "tag beyond left and above": lambda: shape(lambda ink: ink.tag((-9, -9), "tag", INK)),
    "long tag": lambda: shape(lambda ink: ink.tag((0, 60), "a very long tag " * 4, INK)),
    "tag on tag": lambda: shape(
        lambda ink: ink.tag((40, 40), "tag", INK), lambda ink: ink.tag((60, 50), "other", "#2030c0")
    ),
    "beside": lambda: beside((20, 40, 40, 20)),
    "under": lambda: beside((10, 10, 140, 20)),
    "before": lambda: beside((70, 20, 85, 98)),
    "over": lambda: beside((5, 60, 150, 58)),
    "within": lambda: beside((2, 2, 156, 116)),
    "beside each other": lambda: beside(*[(20, 40, 40, 20)] * 6),
    "stamp": lambda: shape(lambda ink: ink.stamp("DONE", INK)),
    "long stamp": lambda: shape(lambda ink: ink.stamp("DONE: " + "word " * 30, INK)),
    "stamp on little": lambda: _little(),
    "click": lambda: done(CLICK),
    "failed click": lambda: done(CLICK, failed="no"),
    "clicks": lambda: done(
        GuiAction("double_click", x=40, y=40), GuiAction("triple_click", x=110, y=70)
    ),
    "other button and hover": lambda: done(
        GuiAction("right_click", x=30, y=30), GuiAction("hover", x=90, y=80)
    ),
    "three at one place": lambda: done(CLICK, CLICK, CLICK),
    "out of sight": lambda: done(*(GuiAction("click", id=number) for number in (3, 4, 5))),
    "scaled": lambda: done(GuiAction("click", id=2), GuiAction("type", id=1, text="ab"), scale=2),
    "type": lambda: done(GuiAction("type", id=1, text="ab")),
    "press": lambda: done(GuiAction("press", keys="Tab")),
    "press in focus": lambda: done(GuiAction("press", keys="Tab"), view=FOCUSED),
    "type nothing": lambda: done(GuiAction("type", id=1, text=""), CLICK),
    **{
        f"scroll {direction}": lambda direction=direction: done(  # type: ignore[misc]
            GuiAction("scroll", direction=direction),
            GuiAction("scroll", direction=direction, x=50, y=60),
        )
        for direction in ("up", "down", "left", "right")
    },
    "drag": lambda: done(GuiAction("drag", id=1, to_id=2), CLICK),
    "drag out": lambda: done(GuiAction("drag", x=20, y=20, to_x=900, to_y=-900)),
    "goto": lambda: done(GuiAction("goto", text="http://a/")),
    "give up": lambda: done(GuiAction("give_up")),
    "answer": lambda: done(GuiAction("answer", text="no")),
    "marks": lambda: Image.open(io.BytesIO(marked(jpeg(1), PAGE, SIZE))),
    "large marks": lambda: Image.open(io.BytesIO(marked(jpeg(2), PAGE, SIZE))),
}


def page(width: int, height: int, *blocks: tuple[int, int, int, int]) -> bytes:
    """A white page with dark blocks."""
    picture = Image.new("RGB", (width, height), "#ffffff")
    for block in blocks:
        picture.paste("#203050", block)
    written = io.BytesIO()
    picture.save(written, "JPEG", quality=95)
    return written.getvalue()


CLICKED, BROKEN = Attempt(CLICK), Attempt(GuiAction("click", id=2), "it is covered")
SOLVED = EpisodeOutcome(1.0, "Test report: passed", 1, 0)
REPORT = "\n\nfailed\nthe first line\n\n" + "of many words " * 20 + "\nlast\n" * 5
BLANK = View("", "", ())


def frames(*ones: FilmFrame | tuple[Attempt, ...], jpeg: bytes | None = None) -> list[FilmFrame]:
    """Frames of attempts on one page, numbered."""
    return [
        one if isinstance(one, FilmFrame) else FilmFrame(number, jpeg, PAGE, one)
        for number, one in enumerate(ones, 1)
    ]


def many(count: int, wide: int, tall: int = 800) -> bytes:
    """Frames without pictures."""
    blank = [FilmFrame(number, None, BLANK) for number in range(count)]
    return draw_storyboard("many", (wide, tall), blank, SOLVED)


STORYBOARDS: Mapping[str, Callable[[], bytes]] = {
    "captions": lambda: draw_storyboard(
        "what is done " * 40,
        (400, 300),
        frames(
            (), (CLICKED,), (CLICKED, BROKEN), (CLICKED,) * 4, (BROKEN,) * 5, (CLICKED,) * 7,
            FilmFrame(123, page(400, 300), BLANK, (), "no action"),
            FilmFrame(8, b"broken", BLANK, (CLICKED,), "no more"),
            FilmFrame(0, page(400, 300), BLANK, (BROKEN,), "nothing of it is said"),
            jpeg=page(400, 300, (10, 10, 200, 30), (60, 100, 160, 200)),
        ),
        EpisodeOutcome(0.25, REPORT, 12, 3),
    ),
    "two columns": lambda: draw_storyboard(
        "title",
        (1300, 900),
        frames((CLICKED,), (BROKEN,), jpeg=page(2600, 1800, (30, 40, 1700, 300))),
        EpisodeOutcome(None, "not\nshown", 2, 0),
    ),
    "written far down": lambda: draw_storyboard(
        "title",
        (800, 600),
        frames((CLICKED,), jpeg=page(800, 600, (20, 20, 30, 500), (20, 20, 740, 40))),
        SOLVED,
    ),
    "clicked and dragged far": lambda: draw_storyboard(
        "title",
        (900, 700),
        frames(
            (Attempt(GuiAction("click", x=500, y=640)),),
            (Attempt(GuiAction("drag", x=10, y=10, to_x=880, to_y=20)),),
            jpeg=page(900, 700, (0, 0, 90, 90)),
        ),
        EpisodeOutcome(0.0, "", 2, 1),
    ),
    "to the edge": lambda: draw_storyboard(
        "title",
        (600, 400),
        frames((CLICKED,), jpeg=page(600, 400, (0, 0, 600, 399), (0, 399, 595, 400))),
        SOLVED,
    ),
    "captioned": lambda: annotated(page(900, 60), [BROKEN] * 3, PAGE, (900, 60)),
    "captioned at length": lambda: annotated(page(640, 60), [BROKEN] * 6, PAGE, (640, 60)),
    "twelve": lambda: many(12, 1300),
    "thirteen": lambda: many(13, 1300),
    "wide enough": lambda: many(3, 1234),
    "not wide enough": lambda: many(3, 1232),
    "flat": lambda: many(1, 4000, 0),
}  # fmt: skip


def in_colour(jpeg: bytes) -> Image.Image:
    picture = Image.open(io.BytesIO(jpeg)).convert("RGB")
    return picture.resize(
        (max(1, picture.width // 10), max(1, picture.height // 10)), Image.Resampling.BOX
    )


def _little() -> Image.Image:
    ink = Overlay(60, 30)
    ink.stamp("DONE", INK)
    return ink.over(Image.new("RGB", (60, 30), GROUND))


def small(picture: Image.Image) -> bytes:
    return picture.convert("L").resize(SMALL, Image.Resampling.BOX).tobytes()


def places() -> list[tuple[float, ...]]:
    """Places of labels at boxes in all parts of a picture, beside those that were placed before."""
    found = list[tuple[float, ...]]()
    for step in (20, 35):
        placed = list[tuple[float, float, float, float]]()
        for x, y, wide in itertools.product(range(-10, 160, step), range(-10, 120, step), (8, 50)):
            place = label_place((x, y, wide, 20), (18, 14), SIZE, placed)
            placed.append(place)
            found.append(place)
    return found


def texts() -> list[object]:
    said = "A text of some words — “quoted” … and naïve ones"
    return [
        [fitted(said, 16, width) for width in (0, 20, 50, 120, 260, 900)],
        [wrapped(said, 16, width, most) for width in (60, 120, 900) for most in (1, 2, 9)],
    ]


def packed(content: bytes) -> str:
    return base64.b85encode(zlib.compress(content, 9)).decode()


def unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b85decode(text))


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_drawn_as_it_was(name: str) -> None:
    golden = unpacked(json.loads(FILE.read_text())["shapes"][name])
    pairs = zip(small(SHAPES[name]()), golden, strict=True)
    assert max(abs(one - other) for one, other in pairs) <= _MOST_APART


@pytest.mark.parametrize("name", STORYBOARDS)
def test_a_storyboard_is_drawn_as_it_was(name: str) -> None:
    golden = json.loads(FILE.read_text())["storyboards"][name]
    jpeg = STORYBOARDS[name]()
    assert list(Image.open(io.BytesIO(jpeg)).size) == golden["size"]
    pairs = zip(in_colour(jpeg).tobytes(), unpacked(golden["picture"]), strict=True)
    assert max(abs(one - other) for one, other in pairs) <= _MOST_APART


def test_a_picture_of_too_many_pixels_is_not_read() -> None:
    small_one = page(16, 16)
    size = small_one.index(b"\xff\xc0") + 5
    for side, refused in ((6_400, True), (2, False)):
        said = small_one[:size] + side.to_bytes(2, "big") * 2 + small_one[size + 4 :]
        if refused:
            with pytest.raises(EnvError, match="expected a page's"):
                opened(said)
        else:
            assert opened(said).size == (side, side)


def test_labels_are_placed_and_texts_are_cut_as_they_were() -> None:
    golden = json.loads(FILE.read_text())
    assert json.dumps(places()).encode() == unpacked(golden["places"])
    assert texts() == golden["texts"]


if __name__ == "__main__":
    written = {
        "shapes": {name: packed(small(shape())) for name, shape in SHAPES.items()},
        "storyboards": {
            name: {
                "size": Image.open(io.BytesIO(jpeg)).size,
                "picture": packed(in_colour(jpeg).tobytes()),
            }
            for name, jpeg in ((name, draw()) for name, draw in STORYBOARDS.items())
        },
        "places": packed(json.dumps(places()).encode()),
        "texts": texts(),
    }
    FILE.write_text(json.dumps(written, indent=0) + "\n")
