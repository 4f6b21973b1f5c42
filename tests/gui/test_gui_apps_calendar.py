"""The calendar: what it shows, plans and refuses."""

from __future__ import annotations

import copy
import datetime

import pytest

from clawrl_gym.envs.gui.site import Request, Response
from clawrl_gym.envs.showcase.gui.apps.calendar import (
    MOST_GUESTS,
    Calendar,
    CalendarWorld,
    monday,
    read_date,
    read_day,
    read_time,
    shown_day,
    shown_time,
    weekday,
)
from clawrl_gym.envs.showcase.gui.apps.serving import RequestRefused
from tests.support.gui_sites import state_of

WORLD: CalendarWorld = {
    "today": "2026-03-04",
    "events": {
        "1": {"title": "kettle", "day": "2026-03-03", "start": 540, "end": 600, "guests": ["Mia"]},
        "2": {"title": "lemon", "day": "2026-03-03", "start": 660, "end": 780, "guests": []},
        "3": {"title": "tiger", "day": "2026-03-12", "start": 480, "end": 1080, "guests": []},
    },
}
NEW = {"title": "river", "day": "3 March", "start": "10:00", "end": "11:00"}


@pytest.fixture
def calendar() -> Calendar:
    return Calendar(copy.deepcopy(WORLD))


def get(calendar: Calendar, path: str) -> str:
    response = calendar.handle(Request("GET", path))
    assert response.status == 200
    return str(response.body)


def post(calendar: Calendar, path: str, **form: str) -> Response:
    return calendar.handle(Request("POST", path, form=form))


def test_a_week_shows_its_events_in_order(calendar: Calendar) -> None:
    page_html = get(calendar, "/")
    assert page_html.index("kettle") < page_html.index("lemon")
    assert "Week of 2 March" in page_html
    assert "tiger" not in page_html
    assert "tiger" in get(calendar, "/week/2026-03-09")
    assert "No events" in get(calendar, "/week/2026-03-23")


def test_a_day_shows_hours_and_what_is_free_between(calendar: Calendar) -> None:
    assert "9:00 to 10:00" in get(calendar, "/day/2026-03-03")
    assert "Wed 4 March" in get(calendar, "/day")
    free = get(calendar, "/free/2026-03-03")
    assert [time in free for time in ("8:00 to 9:00", "10:00 to 11:00", "13:00 to 18:00")] == [
        True
    ] * 3
    assert "The day is full" in get(calendar, "/free/2026-03-12")


def test_an_event_is_planned_where_the_day_is_free(calendar: Calendar) -> None:
    assert post(calendar, "/new", **NEW).headers["location"] == "/day/2026-03-03"
    assert state_of(calendar)["events"]["4"] == {
        "title": "river", "day": "2026-03-03", "start": 600, "end": 660, "guests": [],
    }  # fmt: skip


def test_an_event_moves_with_its_length_and_its_guests(calendar: Calendar) -> None:
    moved = {"do": "save", "title": "kettle", "day": "march 5", "start": "16:30"}
    assert post(calendar, "/event/1", **moved).status == 303
    change = {"day": "2026-03-05", "start": 990, "end": 1050}
    assert state_of(calendar)["events"]["1"] == WORLD["events"]["1"] | change


def test_an_event_may_be_saved_where_it_is(calendar: Calendar) -> None:
    same = {"do": "save", "title": "cup", "day": "3 March", "start": "9:30"}
    assert post(calendar, "/event/1", **same).status == 303
    assert state_of(calendar)["events"]["1"]["title"] == "cup"


def test_guests_are_kept_in_order_and_events_are_deleted(calendar: Calendar) -> None:
    post(calendar, "/event/1", do="invite", guest="Ana")
    assert state_of(calendar)["events"]["1"]["guests"] == ["Ana", "Mia"]
    assert post(calendar, "/event/1", do="delete").headers["location"] == "/week/2026-03-03"
    assert set(state_of(calendar)["events"]) == {"2", "3"}


@pytest.mark.parametrize(
    ("path", "form", "status"),
    [
        ("/", {}, 405),
        ("/day/2026-03-03", {}, 405),
        ("/nothing", {}, 404),
        ("/new", {}, 400),
        ("/new", NEW | {"title": ""}, 400),
        ("/new", NEW | {"day": "31 February"}, 400),
        ("/new", NEW | {"day": "'><b>"}, 400),
        ("/new", NEW | {"start": "12:00"}, 400),
        ("/new", NEW | {"start": "9:30"}, 400),
        ("/new", NEW | {"end": "11:30"}, 400),
        ("/new", NEW | {"start": "11:00"}, 400),
        ("/new", NEW | {"end": "99:00"}, 400),
        ("/event/9", {"do": "delete"}, 404),
        ("/event/1", {}, 400),
        ("/event/1", {"do": "burn"}, 400),
        ("/event/1", {"do": "save"}, 400),
        ("/event/1", {"do": "invite"}, 400),
        ("/event/1", {"do": "invite", "guest": "Mia"}, 400),
        ("/event/1", {"do": "save", "title": "a", "day": "3 March", "start": "12:00"}, 400),
        ("/event/1", {"do": "save", "title": "a", "day": "4 March", "start": "17:30"}, 400),
        ("/event/3", {"do": "save", "title": "a", "day": "3 March", "start": "8:00"}, 400),
    ],
)
def test_what_is_refused_changes_nothing(
    calendar: Calendar, path: str, form: dict[str, str], status: int
) -> None:
    answer = post(calendar, path, **form)
    assert answer.status == status
    assert "Sorry" in str(answer.body)
    assert "<b>" not in str(answer.body)
    assert calendar.state() == {"events": WORLD["events"]}


def test_an_event_has_so_many_guests_at_most(calendar: Calendar) -> None:
    answers = [
        post(calendar, "/event/2", do="invite", guest=f"Guest {n}").status
        for n in range(MOST_GUESTS + 1)
    ]
    assert answers == [303] * MOST_GUESTS + [400]


@pytest.mark.parametrize("day", ["2026-02-30", "0001-01-01", "9999-12-31", "x", "20260303x", "٢"])
def test_a_day_that_is_not_in_the_calendar_is_not_found(calendar: Calendar, day: str) -> None:
    for page in ("week", "day", "free", "new"):
        assert calendar.handle(Request("GET", f"/{page}/{day}")).status == 404


def test_the_first_and_the_last_day_are_shown(calendar: Calendar) -> None:
    for page in ("week", "day", "free", "new"):
        for day in ("2000-01-01", "2099-12-31"):
            get(calendar, f"/{page}/{day}")


def test_days_and_times_are_read_as_they_are_shown() -> None:
    for number in range(366):
        day = datetime.date(2028, 1, 1) + datetime.timedelta(days=number)
        assert read_day(shown_day(day).upper(), 2028) == day == read_date(day.isoformat())
        assert monday(day) <= day
        assert weekday(monday(day)) == "Mon"
    for minutes in range(480, 1081, 5):
        assert read_time(shown_time(minutes)) == minutes
    assert (read_time("9"), read_time("09.30")) == (540, 570)


@pytest.mark.parametrize("text", ["", "7:59", "18:01", "9:60", "9:5", "24:00", "٩:00", "9:000"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(RequestRefused, match="expected one such as 9:00"):
        read_time(text)
