"""A calendar: weeks and days as lists, events to plan, move, rename, delete, and to invite to.

Nobody can be at two places: what overlaps with another event is refused.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

from clawrl_gym.envs.gui.apps.calendar_clock import (
    CLOSE,
    OPEN,
    monday,
    read_date,
    read_day,
    read_time,
    shown_day,
    shown_time,
    weekday,
)
from clawrl_gym.envs.gui.apps.html import (
    button,
    form,
    heading,
    link,
    notice,
    page,
    paragraph,
    see_other,
    table,
    text_field,
)
from clawrl_gym.envs.gui.apps.serving import Refused, filled, serve
from clawrl_gym.envs.gui.site import Request, Response

HOST = "calendar"
MENU = (link("Week", "/"), link("Today", "/day"), link("New", "/new"))
MOST_GUESTS = 20
Event = dict[str, Any]


class Calendar:
    """World: today, and events by number: title, day (ISO), start and end (minutes), guests."""

    def __init__(self, world: Any) -> None:
        self._today = datetime.date.fromisoformat(world["today"])
        self._events: dict[str, Event] = world["events"]

    def handle(self, request: Request) -> Response:
        """Answer a request; what is refused changes nothing."""
        pages = {
            "": self._week,
            "week": self._week,
            "day": self._day,
            "free": self._free,
            "new": self._new,
            "event": self._show,
        }
        changes = {"new": self._create, "event": self._change}
        return serve(request, pages, changes, "Calendar", MENU)

    def state(self) -> Any:
        """All events."""
        return {"events": self._events}

    def _named(self, text: str) -> datetime.date:
        """The day of a path; today without one."""
        return read_date(text) if text else self._today

    def _of(self, day: datetime.date) -> list[tuple[str, Event]]:
        """Number and event of a day, in order."""
        found = [item for item in self._events.items() if item[1]["day"] == day.isoformat()]
        return sorted(found, key=lambda item: item[1]["start"])

    def _week(self, request: Request, rest: str) -> Response:
        first = monday(self._named(rest))
        title = f"Week of {shown_day(first)}"
        days = [first + datetime.timedelta(days=days) for days in range(7)]
        rows = [
            (
                link(f"{weekday(day)} {shown_day(day)}", f"/day/{day}"),
                shown_time(event["start"]),
                link(event["title"], f"/event/{number}"),
            )
            for day in days
            for number, event in self._of(day)
        ]
        before, after = (first + datetime.timedelta(weeks=weeks) for weeks in (-1, 1))
        return page(
            title,
            heading(title),
            table(rows) if rows else notice("No events."),
            paragraph(link("Earlier", f"/week/{before}"), link("Later", f"/week/{after}")),
            menu=MENU,
        )

    def _day(self, request: Request, rest: str) -> Response:
        day = self._named(rest)
        title = f"{weekday(day)} {shown_day(day)}"
        rows = [(_hours(event), link(event["title"], f"/event/{n}")) for n, event in self._of(day)]
        before, after = (day + datetime.timedelta(days=days) for days in (-1, 1))
        return page(
            title,
            heading(title),
            table(rows) if rows else notice("No events."),
            paragraph(link("New event", f"/new/{day}"), link("Free hours", f"/free/{day}")),
            paragraph(link("Earlier", f"/day/{before}"), link("Later", f"/day/{after}")),
            menu=MENU,
        )

    def _free(self, request: Request, rest: str) -> Response:
        day = self._named(rest)
        title = f"Free on {shown_day(day)}"
        rows = [(f"{shown_time(start)} to {shown_time(end)}",) for start, end in self._gaps(day)]
        shown = table(rows) if rows else notice("The day is full.")
        new = paragraph(link("New event", f"/new/{day}"))
        return page(title, heading(title), shown, new, menu=MENU)

    def _gaps(self, day: datetime.date) -> Iterator[tuple[int, int]]:
        at = OPEN
        for _, event in self._of(day):
            if event["start"] > at:
                yield at, event["start"]
            at = max(at, event["end"])
        if at < CLOSE:
            yield at, CLOSE

    def _new(self, request: Request, rest: str) -> Response:
        day = self._named(rest)
        fields = (
            paragraph(text_field("Title", "title")),
            paragraph(text_field("Day", "day", shown_day(day))),
            paragraph(text_field("Start", "start"), text_field("End", "end")),
            paragraph(button("Create")),
        )
        return page("New event", heading("New event"), form("/new", *fields), menu=MENU)

    def _create(self, request: Request, rest: str) -> Response:
        title = filled(request, "title", "The title")
        day = read_day(filled(request, "day", "The day"), self._today.year)
        start = read_time(filled(request, "start", "The start"))
        end = read_time(filled(request, "end", "The end"))
        number = str(max(map(int, self._events), default=0) + 1)
        event = {"title": title, "day": day.isoformat(), "start": start, "end": end, "guests": []}
        self._place(number, event)
        return see_other(f"/day/{day}")

    def _place(self, number: str, event: Event) -> None:
        """Stores an event. Refused when it ends before it starts, or another one is there."""
        if event["end"] <= event["start"]:
            raise Refused("The end must be after the start.")
        for other, taken in self._of(datetime.date.fromisoformat(event["day"])):
            if other != number and taken["start"] < event["end"] and event["start"] < taken["end"]:
                raise Refused(f"This time is taken: {taken['title']}, {_hours(taken)}.")
        self._events[number] = event

    def _known(self, number: str) -> Event:
        if number not in self._events:
            raise Refused("There is no such event.", 404)
        return self._events[number]

    def _show(self, request: Request, rest: str) -> Response:
        event = self._known(rest)
        day = datetime.date.fromisoformat(event["day"])
        guests = [paragraph(f"Guests: {', '.join(event['guests'])}")] if event["guests"] else []
        return page(
            event["title"],
            heading(event["title"]),
            paragraph(link(f"{weekday(day)} {shown_day(day)}", f"/day/{day}"), _hours(event)),
            *guests,
            form(
                f"/event/{rest}",
                paragraph(text_field("Title", "title", event["title"])),
                paragraph(
                    text_field("Day", "day", shown_day(day)),
                    text_field("Start", "start", shown_time(event["start"])),
                ),
                paragraph(button("Save", "do", "save"), button("Delete", "do", "delete")),
            ),
            form(
                f"/event/{rest}",
                paragraph(text_field("Guest", "guest"), button("Invite", "do", "invite")),
            ),
            menu=MENU,
        )

    def _change(self, request: Request, rest: str) -> Response:
        event, wish = self._known(rest), request.form.get("do")
        if wish == "delete":
            del self._events[rest]
            return see_other(f"/week/{event['day']}")
        if wish == "invite":
            self._invite(event, filled(request, "guest", "The guest"))
        elif wish == "save":
            self._place(rest, self._edited(event, request))
        else:
            raise Refused("This cannot be done with an event.")
        return see_other(f"/event/{rest}")

    def _edited(self, event: Event, request: Request) -> Event:
        """The event as the form says; it lasts as long as before."""
        day = read_day(filled(request, "day", "The day"), self._today.year)
        start = read_time(filled(request, "start", "The start"))
        end = start + event["end"] - event["start"]
        if end > CLOSE:
            raise Refused(f"All events end at {shown_time(CLOSE)}.")
        title = filled(request, "title", "The title")
        return event | {"title": title, "day": day.isoformat(), "start": start, "end": end}

    def _invite(self, event: Event, guest: str) -> None:
        if guest in event["guests"]:
            raise Refused(f"{guest} is invited already.")
        if len(event["guests"]) >= MOST_GUESTS:
            raise Refused("Too many guests.")
        event["guests"] = sorted([*event["guests"], guest])


def _hours(event: Mapping[str, Any]) -> str:
    return f"{shown_time(event['start'])} to {shown_time(event['end'])}"
