"""Families about a calendar: one event, then other weeks, free hours, and times that are taken."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Sequence
from typing import TypedDict, Unpack

from clawrl_gym.envs.draw import STEMS, Draw
from clawrl_gym.envs.showcase.conversation.problems import NAMES
from clawrl_gym.envs.showcase.gui.apps.calendar import (
    HOST,
    Calendar,
    CalendarWorld,
    Event,
    shown_day,
    shown_time,
    weekday,
)
from clawrl_gym.envs.showcase.gui.apps.serving import next_number
from clawrl_gym.envs.showcase.gui.families.family import (
    Application,
    Family,
    TaskContent,
    Turns,
    answer,
    done,
    give_up,
    link,
    press,
    write,
)

SITE = Application(HOST, Calendar)
MONDAY = datetime.date(2026, 3, 2)
HOURS = range(8, 17)
"""Hours at which events start."""


def delete(draw: Draw) -> TaskContent:
    """One event of the week is off."""
    world, number, event = _week_with_one(draw)
    phrasing = draw.pick(
        (
            "Delete the event {t} on {d}.",
            "There is no {t} on {d} any more: delete it.",
            "Please take {t} on {d} out of the calendar.",
        )
    )
    after = copy.deepcopy(world)
    del after["events"][number]
    day = day_of(event)
    return SITE.task(
        key=f"{event['title']} {day}",
        instruction=phrasing.format(t=event["title"], d=day),
        world=world,
        solution=((link(event["title"]),), (press("Delete"),), done()),
        after=after,
    )


def rename(draw: Draw) -> TaskContent:
    """One event gets another title."""
    world, number, event = _week_with_one(draw)
    old, new = event["title"], draw.pick([stem for stem in STEMS if stem not in titles(world)])
    phrasing = draw.pick(
        (
            "Rename the event {o} to {n}.",
            "The event {o} is about {n} now: change its title to {n}.",
            "Please change the title {o} to {n} in the calendar.",
        )
    )
    return SITE.task(
        key=f"{old} {new}",
        instruction=phrasing.format(o=old, n=new),
        world=world,
        solution=((link(old),), (write("Title", new), press("Save")), done()),
        after=with_change(world, number, title=new),
    )


def plan(draw: Draw) -> TaskContent:
    """A new event; the form of its day is open."""
    world = calendar([])
    day = MONDAY + datetime.timedelta(days=draw.below(7))
    title, start = draw.pick(STEMS), draw.pick(HOURS)
    end = draw.between(start + 1, min(start + 3, 18))
    phrasing = draw.pick(
        (
            "Plan {t} on {d} from {a} to {b}.",
            "Add the event {t}: {d}, {a} to {b}.",
            "Please put {t} into the calendar on {d}, from {a} to {b}.",
        )
    )
    times = {"a": f"{start}:00", "b": f"{end}:00"}
    filled = (write("Title", title), write("Start", times["a"]), write("End", times["b"]))
    return SITE.task(
        key=f"{title} {start} {end}",
        instruction=phrasing.format(t=title, d=shown_day(day), **times),
        world=world,
        path=f"new/{day}",
        solution=((*filled, press("Create")), done()),
        after=with_event(world, new_event(title, day, start, end)),
    )


def end(draw: Draw) -> TaskContent:
    """Tell the end of an event: its own page says it."""
    world, _, event = _week_with_one(draw)
    phrasing = draw.pick(
        (
            "When does {t} end?",
            "Answer with the time at which {t} ends.",
            "I go to {t}. When is it over?",
        )
    )
    time = shown_time(event["end"])
    return SITE.task(
        key=event["title"],
        instruction=phrasing.format(t=event["title"]),
        world=world,
        solution=((link(event["title"]),), answer(time)),
        answer=time,
    )


def invite(draw: Draw) -> TaskContent:
    """One more guest of an event."""
    world, number, event = _week_with_one(draw)
    name = draw.pick(NAMES)
    phrasing = draw.pick(
        (
            "Invite {n} to {t}.",
            "{n} wants to come to {t}: send the invitation.",
            "Please ask {n} to the event {t}.",
        )
    )
    return SITE.task(
        key=f"{name} {event['title']}",
        instruction=phrasing.format(n=name, t=event["title"]),
        world=world,
        solution=((link(event["title"]),), (write("Guest", name), press("Invite")), done()),
        after=with_change(world, number, guests=[name]),
    )


def later(draw: Draw) -> TaskContent:
    """An event at another time of its day."""
    world, number, event = _week_with_one(draw)
    length = event["end"] - event["start"]
    start = 60 * draw.pick([hour for hour in HOURS if 60 * hour != event["start"]])
    start = min(start, 18 * 60 - length)
    if start == event["start"]:
        start = 8 * 60
    phrasing = draw.pick(
        (
            "Move {t} to {a} on the same day.",
            "{t} starts at {a} now. The day is right.",
            "Please let {t} start at {a}.",
        )
    )
    time = shown_time(start)
    return SITE.task(
        key=f"{event['title']} {time}",
        instruction=phrasing.format(t=event["title"], a=time),
        world=world,
        solution=((link(event["title"]),), (write("Start", time), press("Save")), done()),
        after=with_change(world, number, start=start, end=start + length),
    )


def new_event(title: str, day: datetime.date, start: int, end: int) -> Event:
    """An event without guests, from one hour to another."""
    return {
        "title": title,
        "day": day.isoformat(),
        "start": 60 * start,
        "end": 60 * end,
        "guests": [],
    }


def day_of(event: Event) -> str:
    """The day of an event, as people say it."""
    return shown_day(datetime.date.fromisoformat(event["day"]))


def titles(world: CalendarWorld) -> set[str]:
    """Titles of the events."""
    return {event["title"] for event in world["events"].values()}


def calendar(events: Sequence[Event]) -> CalendarWorld:
    """A calendar on the first day of its week."""
    numbered = {str(number): event for number, event in enumerate(events, start=1)}
    return {"today": MONDAY.isoformat(), "events": numbered}


class EventChange(TypedDict, total=False):
    """Fields of an event that a task changes."""

    title: str
    day: str
    start: int
    end: int
    guests: list[str]


def with_change(world: CalendarWorld, number: str, **fields: Unpack[EventChange]) -> CalendarWorld:
    """The calendar when one event is changed."""
    after = copy.deepcopy(world)
    after["events"][number] = {**after["events"][number], **fields}
    return after


def with_event(world: CalendarWorld, event: Event) -> CalendarWorld:
    """The calendar with an event more."""
    events = world["events"] | {next_number(world["events"]): event}
    return {"today": world["today"], "events": events}


def _week_with_one(draw: Draw) -> tuple[CalendarWorld, str, Event]:
    """A week with three events on different days; and number and event of one of them."""
    starts = [draw.pick(HOURS) for _ in range(3)]
    events = [
        new_event(title, MONDAY + datetime.timedelta(days=days), start, start + draw.between(1, 2))
        for title, days, start in zip(
            draw.some(STEMS, 3), draw.some(range(7), 3), starts, strict=True
        )
    ]
    world = calendar(events)
    number = draw.pick(sorted(world["events"]))
    return world, number, world["events"][number]


WEEK = datetime.timedelta(weeks=1)


def move(draw: Draw) -> TaskContent:
    """An event goes to the next week, where its time may be taken."""
    old, target = (MONDAY + datetime.timedelta(days=draw.below(7)) for _ in range(2))
    target += WEEK
    title, *neighbours = draw.some(STEMS, 4)
    hour, taken_hour = draw.some(range(8, 16), 2)
    feasible = draw.below(3) > 0
    moved = new_event(title, old, draw.pick(HOURS), 17)
    moved["end"] = moved["start"] + 60
    events = [moved] + [
        new_event(neighbour, target, at, at + 1)
        for neighbour, at in zip(neighbours, (taken_hour if feasible else hour, 16), strict=False)
    ]
    world = calendar(events)
    day = shown_day(target)
    phrasing = draw.pick(
        (
            "Move {t} to {d} at {a}.",
            "{t} is on {d} at {a} now: change the calendar.",
            "Please move the event {t} to {d}, {a}, or give up if that time is taken.",
        )
    )
    saved = (write("Day", day), write("Start", f"{hour}:00"), press("Save"))
    change: EventChange = {
        "day": target.isoformat(),
        "start": hour * 60,
        "end": hour * 60 + 60,
    }
    return SITE.task(
        key=f"{title} {day} {hour}",
        instruction=phrasing.format(t=title, d=day, a=f"{hour}:00"),
        world=world,
        solution=(
            (link(title),),
            saved,
            done() if feasible else give_up(f"{day} at {hour}:00 is taken"),
        ),
        after=with_change(world, "1", **change) if feasible else None,
        feasible=feasible,
    )


def free(draw: Draw) -> TaskContent:
    """A new event in the first hour of a day that is free."""
    day = MONDAY + datetime.timedelta(days=draw.below(7))
    title, *neighbours = draw.some(STEMS, 4)
    first = draw.between(9, 12)
    later = first + draw.between(2, 3)
    spans = ((8, first), (first + 1, later), (later, later + draw.between(1, 2)))
    world = calendar(
        [new_event(name, day, *span) for name, span in zip(neighbours, spans, strict=True)]
    )
    phrasing = draw.pick(
        (
            "Plan {t} on {d} for one hour, as early as you can.",
            "Add the event {t} on {d}. It takes one hour: take the first one that is free.",
            "Please find the first free hour on {d} and plan {t} there.",
        )
    )
    filled = (
        write("Title", title),
        write("Start", f"{first}:00"),
        write("End", f"{first + 1}:00"),
        press("Create"),
    )
    return SITE.task(
        key=f"{title} {shown_day(day)}",
        instruction=phrasing.format(t=title, d=shown_day(day)),
        world=world,
        solution=(
            (link(f"{weekday(day)} {shown_day(day)}"),),
            (link("Free hours"),),
            (link("New event"),),
            filled,
            done(),
        ),
        after=with_event(world, new_event(title, day, first, first + 1)),
    )


def clear(draw: Draw) -> TaskContent:
    """All events of one day are off; one of another day is named that stays."""
    day, other_day = (MONDAY + datetime.timedelta(days=n) for n in draw.some(range(7), 2))
    names = draw.some(STEMS, 4)
    starts = sorted(draw.some(HOURS, 2))
    events = [
        new_event(name, day, start, start + 1)
        for name, start in zip(names[:2], starts, strict=True)
    ]
    events += [new_event(name, other_day, 9 + n, 10 + n) for n, name in enumerate(names[2:])]
    world = calendar(events)
    after = copy.deepcopy(world)
    for number in ("1", "2"):
        del after["events"][number]
    phrasing = draw.pick(
        (
            "Delete all events on {d}. The event {k} stays.",
            "I am not here on {d}: delete what is on that day, but not {k}.",
            "Please clear {d}. Keep {k}, which is on another day.",
        )
    )
    return SITE.task(
        key=f"{shown_day(day)} {names[2]}",
        instruction=phrasing.format(d=shown_day(day), k=names[2]),
        world=world,
        solution=(
            (link(names[0]),),
            (press("Delete"),),
            (link(names[1]),),
            (press("Delete"),),
            done(),
        ),
        after=after,
    )


def repeat(draw: Draw) -> TaskContent:
    """An event once more, a week later: how long it takes stands on its page."""
    titles = draw.some(STEMS, 3)
    days = sorted(draw.some(range(7), 3))
    world = calendar(
        [
            new_event(title, MONDAY + datetime.timedelta(days=day), start, start + length)
            for title, day, start, length in zip(
                titles,
                days,
                [draw.between(8, 14) for _ in titles],
                [draw.between(1, 4) for _ in titles],
                strict=True,
            )
        ]
    )
    event = draw.pick(list(world["events"].values()))
    day = datetime.date.fromisoformat(event["day"]) + WEEK
    phrasing = draw.pick(
        (
            "Plan {t} once more on {d}, at the same hours.",
            "There is {t} on {d} again, from the same start to the same end: add it.",
            "Please put a second {t} into the calendar: {d}, same hours as the first.",
        )
    )
    filled = (
        write("Title", event["title"]),
        write("Day", shown_day(day)),
        write("Start", shown_time(event["start"])),
        write("End", shown_time(event["end"])),
        press("Create"),
    )
    return SITE.task(
        key=f"{event['title']} {shown_day(day)}",
        instruction=phrasing.format(t=event["title"], d=shown_day(day)),
        world=world,
        solution=((link(event["title"]),), (link("New"),), filled, done()),
        after=with_event(world, {**event, "day": day.isoformat()}),
    )


def guests(draw: Draw) -> TaskContent:
    """The guests of one event come to another one, too."""
    first, second, third = draw.some(STEMS, 3)
    names = draw.some(NAMES, 4)
    coming = sorted(names[:2])
    world = calendar(
        [
            new_event(title, MONDAY + datetime.timedelta(days=day), 9 + day, 10 + day)
            for title, day in zip((first, second, third), draw.some(range(7), 3), strict=True)
        ]
    )
    world["events"]["1"]["guests"] = coming
    world["events"]["3"]["guests"] = sorted(names[2:])
    phrasing = draw.pick(
        (
            "Invite the guests of {a} to {b}, too.",
            "Who comes to {a} should come to {b}: invite them.",
            "Please ask everyone who is a guest of {a} to {b} as well.",
        )
    )
    return SITE.task(
        key=f"{first} {second}",
        instruction=phrasing.format(a=first, b=second),
        world=world,
        solution=(
            (link(first),),
            (link("Week"),),
            (link(second),),
            *((write("Guest", name), press("Invite")) for name in coming),
            done(),
        ),
        after=with_change(world, "2", guests=coming),
    )


def longest(draw: Draw) -> TaskContent:
    """Which event of a day in the next week takes the most time."""
    day = MONDAY + WEEK + datetime.timedelta(days=draw.below(7))
    names = draw.some(STEMS, 4)
    lengths = draw.some(range(1, 4), 3)
    at, events = 8, []
    for name, length in zip(names, lengths, strict=False):
        events.append(new_event(name, day, at, at + length))
        at += length
    next_day = new_event(names[3], day + datetime.timedelta(days=1), 8, 17)
    first = names[0]
    phrasing = draw.pick(
        (
            "Which event of the day of {t} takes the most time? {t} is next week, on {d}.",
            "Look at {d}, the day of {t}. Answer with the event that is longest.",
            "What is the longest event on {d}? It is the day of {t}.",
        )
    )
    name = names[lengths.index(max(lengths))]
    turns: Turns = (
        (link("Later"),),
        (link(f"{weekday(day)} {shown_day(day)}"),),
        answer(name),
    )
    return SITE.task(
        key=f"{first} {shown_day(day)}",
        instruction=phrasing.format(t=first, d=shown_day(day)),
        world=calendar([*events, next_day]),
        solution=turns,
        answer=name,
    )


CALENDAR = (
    Family("calendar_clear", clear),
    Family("calendar_delete", delete, easy=True),
    Family("calendar_end", end, easy=True),
    Family("calendar_free", free),
    Family("calendar_guests", guests),
    Family("calendar_invite", invite, easy=True),
    Family("calendar_later", later, easy=True),
    Family("calendar_longest", longest),
    Family("calendar_move", move, may_be_infeasible=True),
    Family("calendar_plan", plan, easy=True),
    Family("calendar_rename", rename, easy=True),
    Family("calendar_repeat", repeat),
)
