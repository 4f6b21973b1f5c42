from __future__ import annotations

import io
from collections.abc import Callable
from itertools import pairwise

import pytest
from PIL import Image

from clawrl_gym.core.errors import EnvError
from clawrl_gym.envs.gui.action import GuiAction
from clawrl_gym.envs.gui.films.film import MOST_FRAMES, Attempt, Film
from tests.support.gui_pictures import VIEW, VIEWPORT, page_jpeg

PAGE = page_jpeg()
CLICK, DONE = Attempt(GuiAction("click", id=2)), Attempt(GuiAction("done"))


def page() -> bytes:
    return PAGE


def raise_env_error() -> bytes:
    raise EnvError("the browser died")


def filmed(replies: int, *, shot: Callable[[], bytes] = page, last: Attempt = CLICK) -> Film:
    film = Film("Buy two pens.", VIEWPORT)
    for number in range(replies):
        film.expose(shot)
        film.add(VIEW, (last if number == replies - 1 else CLICK,))
    film.end(shot)
    return film


def size_of(film: Film) -> tuple[int, int]:
    picture = Image.open(io.BytesIO(film.strip()))
    assert picture.format == "JPEG"
    picture.load()
    return picture.size


def test_a_film_is_one_picture_with_a_card_for_each_reply_the_last_page_and_the_outcome() -> None:
    film = filmed(3)
    film.graded(1.0, "Test report: passed")
    assert [frame.number for frame in film.frames] == [1, 2, 3, 0]
    one_row, two_rows = size_of(filmed(1)), size_of(film)
    assert one_row[0] == two_rows[0]
    assert two_rows[1] > 1.6 * one_row[1] - 100


def test_the_same_film_is_the_same_picture() -> None:
    assert filmed(2).strip() == filmed(2).strip()


def test_a_reply_that_only_ends_leaves_no_page_to_show() -> None:
    assert [frame.number for frame in filmed(2, last=DONE).frames] == [1, 2]


def test_the_last_page_is_shown_when_something_was_done_before_the_end() -> None:
    film = Film("x", VIEWPORT)
    film.expose(page)
    film.add(VIEW, (CLICK, DONE))
    film.end(page)
    assert [frame.number for frame in film.frames] == [1, 0]


@pytest.mark.parametrize("replies", [24, 25, 48, 49, 500])
def test_long_episodes_are_thinned_evenly_and_keep_first_and_last(replies: int) -> None:
    film = filmed(replies)
    numbers = [frame.number for frame in film.frames[:-1]]
    assert numbers[0] == 1
    assert numbers[-1] == replies
    assert MOST_FRAMES // 2 <= len(numbers) <= MOST_FRAMES + 1
    steps = {later - earlier for earlier, later in pairwise(numbers[:-1])}
    assert len(steps) == 1


def test_a_thinned_film_says_how_much_is_left_out() -> None:
    film = filmed(60)
    frames_shown = sum(frame.number > 0 for frame in film.frames)
    assert film.hidden == 60 - frames_shown > 0
    assert filmed(3).hidden == 0
    assert size_of(film)[1] < 12_000


def test_a_page_that_cannot_be_pictured_is_a_blank_frame() -> None:
    film = filmed(2, shot=raise_env_error)
    assert [frame.jpeg for frame in film.frames] == [None, None, None]
    assert size_of(film)[0] == size_of(filmed(1))[0]


def test_a_broken_picture_is_a_blank_frame() -> None:
    assert size_of(filmed(1, shot=lambda: b"\xff\xd8\xff nothing")) == size_of(
        filmed(1, shot=raise_env_error)
    )


def test_a_film_without_any_reply_shows_the_page_and_the_outcome() -> None:
    film = filmed(0)
    film.graded(0.0, "")
    assert [frame.number for frame in film.frames] == [0]
    size_of(film)


def test_a_film_can_be_seen_before_the_end() -> None:
    film = Film("Buy two pens.", VIEWPORT)
    size_of(film)
    film.expose(page)
    film.add(VIEW, (), "no action in the reply")
    size_of(film)


def test_empty_ground_is_left_out_of_all_frames_alike() -> None:
    wide = Film("x", (1600, 1200))
    wide.expose(lambda: page_jpeg((1600, 1200)))
    wide.add(VIEW, (CLICK,))
    tall = Film("x", (1600, 1200))
    tall.expose(lambda: page_jpeg((1600, 1200)))
    tall.add(VIEW, (Attempt(GuiAction("click", x=60, y=1190)),))
    assert size_of(wide)[1] < size_of(tall)[1]  # a click far down is shown where it was


def test_long_texts_and_reports_stay_in_their_cards() -> None:
    film = Film("Do this. " * 400, VIEWPORT)
    film.expose(page)
    film.add(
        VIEW,
        tuple(Attempt(GuiAction("type", id=1, text="漢字" * 200), "why " * 99) for _ in "1234567"),
    )
    film.end(page)
    film.graded(0.5, "Test report: failed\n" + "\n".join("missing " * 40 for _ in range(50)))
    width, height = size_of(film)
    assert height < 1400
    assert width == 1520


def test_films_of_great_scale_fit_what_the_gateway_takes() -> None:
    from clawrl_gym.gateway.films import MOST_BYTES

    noise = Image.effect_noise((1280, 720), 90).convert("RGB")
    written = io.BytesIO()
    noise.save(written, "JPEG", quality=70)
    film = Film("x", (1280, 720))
    for _ in range(200):
        film.expose(written.getvalue)
        film.add(VIEW, (CLICK,))
    assert len(film.strip()) <= MOST_BYTES
