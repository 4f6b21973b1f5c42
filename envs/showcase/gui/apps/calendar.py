"""A calendar: weeks and days as lists, events to plan, move, rename, delete, and to invite to.

Nobody can be at two places: what overlaps with another event is refused. Days and times are shown
and read as "3 March" and "9:00".
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import TypedDict

from clawrl_gym.envs.gui.site import Request, Response
from clawrl_gym.envs.showcase.gui.apps.serving import (
    TEMPLATES,
    RequestRefused,
    filled,
    next_number,
    page,
    see_other,
    serve,
)

HOST = "calendar"
MENU = (("Week", "/"), ("Today", "/day"), ("New", "/new"))
MOST_GUESTS = 20
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
OPEN = 8 * 60
"""Minute of the day at which the first event can start."""
CLOSE = 18 * 60
"""Minute of the day at which the last event ends."""
YEARS = range(2000, 2100)
_TIME = re.compile(r"(\d{1,2})(?:[:.]([0-5]\d))?", re.ASCII)
_DAY = re.compile(r"(\d{1,2})\.? ([a-z]+)|([a-z]+) (\d{1,2})", re.ASCII)


class Event(TypedDict):
    """One event; `day` is ISO, `start` and `end` are minutes of the day."""

    title: str
    day: str
    start: int
    end: int
    guests: list[str]


class CalendarWorld(TypedDict):
    """Stored state: today as ISO, and events by number in digits."""

    today: str
    events: dict[str, Event]


class Calendar:
    """The site."""

    def __init__(self, world: CalendarWorld) -> None:
        self._today = datetime.date.fromisoformat(world["today"])
        self._events = world["events"]

    def handle(self, request: Request) -> Response:
        """Answer a request; what is refused changes nothing."""
        pages = {
            "": self._week_page,
            "week": self._week_page,
            "day": self._day_page,
            "free": self._free_page,
            "new": self._new_page,
            "event": self._event_page,
        }
        changes = {"new": self._create, "event": self._change}
        return serve(request, pages, changes, "Calendar", MENU)

    def state(self) -> object:
        """All events."""
        return {"events": self._events}

    def _day_of_path(self, text: str) -> datetime.date:
        """Today without one."""
        return read_date(text) if text else self._today

    def _events_on(self, day: datetime.date) -> list[tuple[str, Event]]:
        """Number and event of a day, in order."""
        events = [entry for entry in self._events.items() if entry[1]["day"] == day.isoformat()]
        return sorted(events, key=lambda entry: entry[1]["start"])

    def _week_page(self, request: Request, rest: str) -> Response:
        first = monday(self._day_of_path(rest))
        days = [first + datetime.timedelta(days=days) for days in range(7)]
        week = datetime.timedelta(weeks=1)
        return page(
            "calendar/events",
            f"Week of {shown_day(first)}",
            MENU,
            day=None,
            events=[entry for day in days for entry in self._events_on(day)],
            earlier=f"/week/{first - week}",
            later=f"/week/{first + week}",
        )

    def _day_page(self, request: Request, rest: str) -> Response:
        day = self._day_of_path(rest)
        return page(
            "calendar/events",
            weekday_and_day(day),
            MENU,
            day=day,
            events=self._events_on(day),
            earlier=f"/day/{day - datetime.timedelta(days=1)}",
            later=f"/day/{day + datetime.timedelta(days=1)}",
        )

    def _free_page(self, request: Request, rest: str) -> Response:
        day = self._day_of_path(rest)
        title = f"Free on {shown_day(day)}"
        return page("calendar/free", title, MENU, day=day, gaps=list(self._gaps(day)))

    def _gaps(self, day: datetime.date) -> Iterator[tuple[int, int]]:
        """Start and end of the hours without an event."""
        minute = OPEN
        for _, event in self._events_on(day):
            if event["start"] > minute:
                yield minute, event["start"]
            minute = max(minute, event["end"])
        if minute < CLOSE:
            yield minute, CLOSE

    def _new_page(self, request: Request, rest: str) -> Response:
        return page("calendar/new", "New event", MENU, day=self._day_of_path(rest))

    def _create(self, request: Request, rest: str) -> Response:
        title = filled(request, "title", "The title")
        day = read_day(filled(request, "day", "The day"), self._today.year)
        start = read_time(filled(request, "start", "The start"))
        end = read_time(filled(request, "end", "The end"))
        event = Event(title=title, day=day.isoformat(), start=start, end=end, guests=[])
        self._store(next_number(self._events), event)
        return see_other(f"/day/{day}")

    def _store(self, number: str, event: Event) -> None:
        """Refused when it ends before it starts, or another event is there."""
        if event["end"] <= event["start"]:
            raise RequestRefused("The end must be after the start.")
        for neighbour_number, neighbour in self._events_on(_date(event["day"])):
            overlaps = neighbour["start"] < event["end"] and event["start"] < neighbour["end"]
            if neighbour_number != number and overlaps:
                raise RequestRefused(
                    f"This time is taken: {neighbour['title']}, {_hours(neighbour)}."
                )
        self._events[number] = event

    def _event(self, number: str) -> Event:
        if number not in self._events:
            raise RequestRefused("There is no such event.", 404)
        return self._events[number]

    def _event_page(self, request: Request, rest: str) -> Response:
        event = self._event(rest)
        return page("calendar/event", event["title"], MENU, number=rest, event=event)

    def _change(self, request: Request, rest: str) -> Response:
        event, change = self._event(rest), request.form.get("do")
        if change == "delete":
            del self._events[rest]
            return see_other(f"/week/{event['day']}")
        if change == "invite":
            self._invite(event, filled(request, "guest", "The guest"))
        elif change == "save":
            self._store(rest, self._edited(event, request))
        else:
            raise RequestRefused("This cannot be done with an event.")
        return see_other(f"/event/{rest}")

    def _edited(self, event: Event, request: Request) -> Event:
        """The event as the form says; it lasts as long as before."""
        day = read_day(filled(request, "day", "The day"), self._today.year)
        start = read_time(filled(request, "start", "The start"))
        end = start + event["end"] - event["start"]
        if end > CLOSE:
            raise RequestRefused(f"All events end at {shown_time(CLOSE)}.")
        title = filled(request, "title", "The title")
        guests = event["guests"]
        return Event(title=title, day=day.isoformat(), start=start, end=end, guests=guests)

    def _invite(self, event: Event, guest: str) -> None:
        if guest in event["guests"]:
            raise RequestRefused(f"{guest} is invited already.")
        if len(event["guests"]) >= MOST_GUESTS:
            raise RequestRefused("Too many guests.")
        event["guests"] = sorted([*event["guests"], guest])


def shown_day(day: datetime.date | str) -> str:
    """Day and month."""
    date = _date(day)
    return f"{date.day} {MONTHS[date.month - 1]}"


def shown_time(minutes: int) -> str:
    """Hours and minutes."""
    return f"{minutes // 60}:{minutes % 60:02d}"


def monday(day: datetime.date) -> datetime.date:
    """The first day of a day's week."""
    return day - datetime.timedelta(days=day.weekday())


def weekday(day: datetime.date) -> str:
    """Short English name of a weekday, whatever the locale is."""
    return ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[day.weekday()]


def weekday_and_day(day: datetime.date | str) -> str:
    """A day as the lists name it."""
    return f"{weekday(_date(day))} {shown_day(day)}"


def read_date(text: str) -> datetime.date:
    """A day of a path, such as 2026-03-03. Refused with status 404 otherwise."""
    try:
        day = datetime.date.fromisoformat(text)
    except ValueError:
        raise RequestRefused("There is no such day.", 404) from None
    if day.year not in YEARS:
        raise RequestRefused("There is no such day.", 404)
    return day


def read_day(text: str, year: int) -> datetime.date:
    """A day of a form, such as "3 March" or "March 3"."""
    match = _DAY.fullmatch(" ".join(text.casefold().split()))
    if match:
        number, month = match[1] or match[4], (match[2] or match[3]).capitalize()
        if month in MONTHS:
            try:
                return datetime.date(year, MONTHS.index(month) + 1, int(number))
            except ValueError:
                pass
    raise RequestRefused(f"Got the day {text!r}, expected one such as 3 March.")


def read_time(text: str) -> int:
    """Minutes since midnight of "9:00" or "9", within the day's hours."""
    match = _TIME.fullmatch(text)
    minutes = int(match[1]) * 60 + int(match[2] or 0) if match else -1
    if not OPEN <= minutes <= CLOSE:
        raise RequestRefused(
            f"Got the time {text!r}, expected one such as 9:00, "
            f"from {shown_time(OPEN)} to {shown_time(CLOSE)}."
        )
    return minutes


def _date(day: datetime.date | str) -> datetime.date:
    return datetime.date.fromisoformat(day) if isinstance(day, str) else day


def _hours(event: Event) -> str:
    return f"{shown_time(event['start'])} to {shown_time(event['end'])}"


TEMPLATES.filters |= {
    "day": shown_day,
    "hours": _hours,
    "time": shown_time,
    "weekday_and_day": weekday_and_day,
}
