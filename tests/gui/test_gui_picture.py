from __future__ import annotations

import io
from dataclasses import replace
from typing import get_args

import pytest
from PIL import Image, ImageChops

from clawrl_gym.core.errors import EnvError
from clawrl_gym.envs.gui.action import GuiAction, Kind
from clawrl_gym.envs.gui.attempt import Attempt, caption
from clawrl_gym.envs.gui.films.overlay import fitted, font, legible, wrapped
from clawrl_gym.envs.gui.films.picture import annotated, label_place, marked
from clawrl_gym.envs.gui.observation import Element, View
from tests.support.gui_pictures import BUTTON, FAR, FIELD, VIEW, VIEWPORT, page_jpeg

NOWHERE = View("", "", ())


def opened(jpeg: bytes) -> Image.Image:
    picture = Image.open(io.BytesIO(jpeg))
    assert picture.format == "JPEG"
    return picture.convert("RGB")


def changed(one: bytes, different: bytes) -> tuple[int, int, int, int] | None:
    """Where two pictures differ by more than JPEG's own noise."""
    differs = ImageChops.difference(opened(one), opened(different)).convert("L")
    return differs.point([0] * 60 + [255] * 196).getbbox()


def test_elements_get_a_box_and_a_number_where_they_are() -> None:
    jpeg = page_jpeg()
    left, top, right, bottom = changed(marked(jpeg, VIEW, VIEWPORT), jpeg) or (0, 0, 0, 0)
    assert (18 <= left <= 22, 228 <= right <= 232, 88 <= bottom <= 92) == (True, True, True)
    assert 40 <= top < 60  # numbers stand above their boxes, and hide nothing in them


def test_what_is_out_of_sight_or_covered_is_not_marked() -> None:
    jpeg = page_jpeg()
    hidden = (
        FAR,
        replace(BUTTON, states=("covered",)),
        replace(BUTTON, clipped=True),
        replace(FIELD, box=(0, 0, 0, 0)),
    )
    plain = marked(jpeg, NOWHERE, VIEWPORT)
    assert marked(jpeg, View("", "", (hidden,)), VIEWPORT) == plain


def test_marks_fit_a_picture_of_another_scale() -> None:
    large = page_jpeg((800, 600))
    view = View("", "", ((replace(BUTTON, box=(300, 200, 50, 50)),),))
    left, _, right, bottom = changed(marked(large, view, VIEWPORT), large) or (0, 0, 0, 0)
    assert (left, right, bottom) == pytest.approx((600, 700, 500), abs=4)


def test_numbers_do_not_lie_on_each_other_while_there_is_room() -> None:
    places: list[tuple[float, float, float, float]] = []
    for _ in range(6):
        place = label_place((100, 100, 60, 30), (18, 14), VIEWPORT, places)
        assert not any(
            abs(place[0] - different[0]) < 18 and abs(place[1] - different[1]) < 14
            for different in places
        )
        places.append(place)


@pytest.mark.parametrize("box", [(-30, -30, 60, 60), (380, 280, 90, 90), (-9, -9, 900, 900)])
def test_numbers_stay_in_the_picture(box: tuple[float, float, float, float]) -> None:
    left, top, wide, high = label_place(box, (18, 14), VIEWPORT, [])
    assert left >= 0
    assert top >= 0
    assert left + wide <= VIEWPORT[0]
    assert top + high <= VIEWPORT[1]
    marked(page_jpeg(), View("", "", ((replace(BUTTON, box=box),),)), VIEWPORT)


ACTIONS = {
    "drag": GuiAction("drag", id=1, to_id=2),
    "type": GuiAction("type", id=1, text="pens"),
    "select": GuiAction("select", id=1, text="large"),
    "press": GuiAction("press", keys="Control+a"),
    "goto": GuiAction("goto", text="http://shop/basket"),
}


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("failed", ["", "it is covered"])
def test_every_action_is_drawn_and_said(kind: Kind, failed: str) -> None:
    action = ACTIONS.get(kind) or GuiAction(kind, id=2)
    jpeg = page_jpeg()
    picture = opened(annotated(jpeg, [Attempt(action, failed)], VIEW, VIEWPORT))
    nothing = opened(annotated(jpeg, [], VIEW, VIEWPORT))
    page, caption_line = (0, 0, *VIEWPORT), (0, VIEWPORT[1], 400, picture.height)
    assert picture.size == nothing.size
    assert picture.crop(caption_line).tobytes() != nothing.crop(caption_line).tobytes()
    is_drawn = picture.crop(page).tobytes() != nothing.crop(page).tobytes()
    assert is_drawn == (kind != "screenshot")
    assert failed in caption(Attempt(action, failed), VIEW)


@pytest.mark.parametrize(
    "action",
    [
        GuiAction("click"),
        GuiAction("click", id=99),
        GuiAction("click", x=-1e9, y=1e9),
        GuiAction("drag", id=1),
        GuiAction("drag", x=5, y=5, to_x=5, to_y=5),
        GuiAction("click", id=3),
        GuiAction("type", text=""),
        GuiAction("type", id=1, text="漢字 \x00\n" * 900),
        GuiAction("answer", text="x" * 5000),
        GuiAction("give_up"),
    ],
)
def test_odd_actions_make_a_picture_all_the_same(action: GuiAction) -> None:
    picture = opened(
        annotated(page_jpeg(), [Attempt(action), Attempt(action, "no")], VIEW, VIEWPORT)
    )
    assert picture.width == VIEWPORT[0]


def test_a_tiny_page_can_be_annotated() -> None:
    view = View("", "", ((Element(1, "button", "B", box=(0, 0, 4, 4)),),))
    attempts = [
        Attempt(GuiAction("type", id=1, text="long text")),
        Attempt(GuiAction("answer", text="no")),
    ]
    jpeg = page_jpeg((64, 64))
    picture = opened(annotated(jpeg, attempts, view, (64, 64)))
    nothing = opened(annotated(jpeg, [], view, (64, 64)))
    assert picture.width == nothing.width == 64
    assert picture.height > 64  # the captions stand below
    assert picture.tobytes() != nothing.tobytes()


def test_captions_speak_of_names() -> None:
    captions = [
        caption(Attempt(action), VIEW)
        for action in (
            GuiAction("click", id=2), GuiAction("type", id=1, text="pens"),
            GuiAction("click", x=3.2, y=4),
            GuiAction("double_click", id=77), GuiAction("drag", id=1, to_id=2),
            GuiAction("scroll", direction="up"), GuiAction("press", keys="Enter"),
            GuiAction("done"),
            GuiAction("give_up", text="no pens"), GuiAction("wait", seconds=2),
            GuiAction("switch_tab", tab=2), GuiAction("drag", x=1, y=2, to_x=30.4, to_y=4),
            GuiAction("drag", to_id=2), GuiAction("select", id=1, text="red"),
            GuiAction("select", text="red"), GuiAction("press", id=1, keys="a"),
            GuiAction("type", text="a"), GuiAction("scroll", x=5, y=6), GuiAction("goto", text="a"),
            GuiAction("new_tab"), GuiAction("close_tab"), GuiAction("close_tab", tab=0),
            GuiAction("answer"), GuiAction("answer", text="a"), GuiAction("click", x=5),
            GuiAction("click"), GuiAction("click", id=0),
        )
    ]  # fmt: skip
    assert captions == [
        "click “Find”", "type “pens” into “Search”", "click at 3, 4", "double click [77]",
        "drag “Search” to “Find”", "scroll up", "press Enter", "done", "give up “no pens”",
        "wait 2 s", "switch tab 2", "drag 1, 2 to 30, 4",
        "drag to “Find”", "select “red” in “Search”",
        "select “red”", "press a in “Search”",
        "type “a”", "scroll down at 5, 6", "goto a",
        "new tab", "close tab", "close tab 0",
        "answer", "answer “a”", "click",
        "click", "click [0]",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "jpeg", [b"", b"\xff\xd8\xff", b"GIF89a", b"\x89PNG\r\n\x1a\n" + b"0" * 99]
)
def test_what_is_no_jpeg_is_an_error_of_the_environment(jpeg: bytes) -> None:
    with pytest.raises(EnvError, match="reading a screenshot"):
        marked(jpeg, VIEW, VIEWPORT)


def test_text_is_written_with_the_glyphs_that_there_are() -> None:
    assert legible("Zoë\n  paid\t3 € \N{EN DASH} “ok”") == "Zoe paid 3 EUR - “ok”"
    assert legible("漢\x00字") == "???"


def test_text_is_cut_and_wrapped_to_its_width() -> None:
    cut = fitted("a long caption of an action", 14, 100)
    assert cut.endswith("…")
    assert font(14).getlength(cut) <= 100
    lines = wrapped("one two three four five six seven eight nine ten " * 3, 14, 120, 3)
    assert len(lines) == 3
    assert all(font(14).getlength(line) <= 120 for line in lines)
    assert lines[-1].endswith("…")
    assert wrapped("short", 14, 120, 3) == ["short"]
    assert wrapped("x" * 500, 14, 120, 2)[0].endswith("…")
