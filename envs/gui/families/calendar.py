"""Families about a calendar: short ones."""

from __future__ import annotations

import copy
import datetime
from typing import Any

from clawrl_gym.envs.conversation.problems import NAMES
from clawrl_gym.envs.draw import STEMS, Draw
from clawrl_gym.envs.gui.apps.calendar import HOST, Calendar, shown_day, shown_time
from clawrl_gym.envs.gui.families.family import (
    Family,
    Served,
    TaskDraft,
    Turns,
    answer,
    done,
    link,
    press,
    write,
)

URL = f"http://{HOST}/"
World = dict[str, Any]
MONDAY = datetime.date(2026, 3, 2)
HOURS = range(8, 17)
"""Hours at which events start."""


def delete(draw: Draw) -> TaskDraft:
    """One event of the week is off."""
    world, number, event = _week_with_one(draw)
    told = draw.pick(
        (
            "Delete the event {t} on {d}.",
            "There is no {t} on {d} any more: delete it.",
            "Please take {t} on {d} out of the calendar.",
        )
    )
    after = copy.deepcopy(world)
    del after["events"][number]
    day = day_of(event)
    return task_draft(
        key=f"{event['title']} {day}",
        instruction=told.format(t=event["title"], d=day),
        world=world,
        solution=((link(event["title"]),), (press("Delete"),), done()),
        after=after,
    )


def rename(draw: Draw) -> TaskDraft:
    """One event gets another title."""
    world, number, event = _week_with_one(draw)
    old, new = event["title"], draw.pick([stem for stem in STEMS if stem not in titles(world)])
    told = draw.pick(
        (
            "Rename the event {o} to {n}.",
            "The event {o} is about {n} now: change its title to {n}.",
            "Please change the title {o} to {n} in the calendar.",
        )
    )
    return task_draft(
        key=f"{old} {new}",
        instruction=told.format(o=old, n=new),
        world=world,
        solution=((link(old),), (write("Title", new), press("Save")), done()),
        after=with_change(world, number, {"title": new}),
    )


def plan(draw: Draw) -> TaskDraft:
    """A new event; the form of its day is open."""
    world = {"today": MONDAY.isoformat(), "events": {}}
    day = MONDAY + datetime.timedelta(days=draw.below(7))
    title, start = draw.pick(STEMS), draw.pick(HOURS)
    end = draw.between(start + 1, min(start + 3, 18))
    told = draw.pick(
        (
            "Plan {t} on {d} from {a} to {b}.",
            "Add the event {t}: {d}, {a} to {b}.",
            "Please put {t} into the calendar on {d}, from {a} to {b}.",
        )
    )
    times = {"a": f"{start}:00", "b": f"{end}:00"}
    filled = (write("Title", title), write("Start", times["a"]), write("End", times["b"]))
    return task_draft(
        key=f"{title} {start} {end}",
        instruction=told.format(t=title, d=shown_day(day), **times),
        world=world,
        start=f"{URL}new/{day}",
        solution=((*filled, press("Create")), done()),
        after=with_event(world, new_event(title, day, start, end)),
    )


def end(draw: Draw) -> TaskDraft:
    """When an event ends: its own page says so."""
    world, _, event = _week_with_one(draw)
    told = draw.pick(
        (
            "When does {t} end?",
            "Answer with the time at which {t} ends.",
            "I go to {t}. When is it over?",
        )
    )
    time = shown_time(event["end"])
    return task_draft(
        key=event["title"],
        instruction=told.format(t=event["title"]),
        world=world,
        solution=((link(event["title"]),), answer(time)),
        answer=time,
    )


def invite(draw: Draw) -> TaskDraft:
    """One more guest of an event."""
    world, number, event = _week_with_one(draw)
    name = draw.pick(NAMES)
    told = draw.pick(
        (
            "Invite {n} to {t}.",
            "{n} wants to come to {t}: send the invitation.",
            "Please ask {n} to the event {t}.",
        )
    )
    return task_draft(
        key=f"{name} {event['title']}",
        instruction=told.format(n=name, t=event["title"]),
        world=world,
        solution=((link(event["title"]),), (write("Guest", name), press("Invite")), done()),
        after=with_change(world, number, {"guests": [name]}),
    )


def later(draw: Draw) -> TaskDraft:
    """An event at another time of its day."""
    world, number, event = _week_with_one(draw)
    length = event["end"] - event["start"]
    start = 60 * draw.pick([hour for hour in HOURS if 60 * hour != event["start"]])
    start = min(start, 18 * 60 - length)
    if start == event["start"]:
        start = 8 * 60
    told = draw.pick(
        (
            "Move {t} to {a} on the same day.",
            "{t} starts at {a} now. The day is right.",
            "Please let {t} start at {a}.",
        )
    )
    time = shown_time(start)
    return task_draft(
        key=f"{event['title']} {time}",
        instruction=told.format(t=event["title"], a=time),
        world=world,
        solution=((link(event["title"]),), (write("Start", time), press("Save")), done()),
        after=with_change(world, number, {"start": start, "end": start + length}),
    )


CALENDAR = (
    Family("calendar_delete", delete, easy=True),
    Family("calendar_end", end, easy=True),
    Family("calendar_invite", invite, easy=True),
    Family("calendar_later", later, easy=True),
    Family("calendar_plan", plan, easy=True),
    Family("calendar_rename", rename, easy=True),
)


def task_draft(
    key: str,
    instruction: str,
    world: World,
    solution: Turns,
    start: str = URL,
    after: World | None = None,
    answer: str | None = None,
    feasible: bool = True,
) -> TaskDraft:
    """A task in one calendar."""
    return TaskDraft(
        key=key,
        instruction=instruction,
        start=start,
        sites={HOST: Served(Calendar, world)},
        solution=solution,
        after={HOST: after} if after else {},
        answer=answer,
        feasible=feasible,
    )


def new_event(title: str, day: datetime.date, start: int, end: int) -> World:
    """An event without guests, from one hour to another."""
    return {
        "title": title,
        "day": day.isoformat(),
        "start": 60 * start,
        "end": 60 * end,
        "guests": [],
    }


def day_of(event: World) -> str:
    """The day of an event, as people say it."""
    return shown_day(datetime.date.fromisoformat(event["day"]))


def titles(world: World) -> set[str]:
    """What the events are called."""
    return {event["title"] for event in world["events"].values()}


def calendar(events: list[World]) -> World:
    """A calendar on the first day of its week."""
    numbered = {str(number): one for number, one in enumerate(events, start=1)}
    return {"today": MONDAY.isoformat(), "events": numbered}


def with_change(world: World, number: str, change: World) -> World:
    """The calendar when one event is changed."""
    after = copy.deepcopy(world)
    after["events"][number] |= change
    return after


def with_event(world: World, new: World) -> World:
    """The calendar with an event more."""
    number = str(max(map(int, world["events"]), default=0) + 1)
    return world | {"events": world["events"] | {number: new}}


def _week_with_one(draw: Draw) -> tuple[World, str, World]:
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
