"""Families about a calendar: other weeks, free hours, several events, and times that are taken."""

from __future__ import annotations

import copy
import datetime

from clawrl_gym.envs.conversation.problems import NAMES
from clawrl_gym.envs.draw import STEMS, Draw
from clawrl_gym.envs.gui.apps.calendar import shown_day, shown_time, weekday
from clawrl_gym.envs.gui.families.calendar import (
    HOURS,
    MONDAY,
    calendar,
    new_event,
    task_draft,
    with_change,
    with_event,
)
from clawrl_gym.envs.gui.families.family import (
    Family,
    TaskDraft,
    Turns,
    answer,
    done,
    give_up,
    link,
    press,
    write,
)

WEEK = datetime.timedelta(weeks=1)


def move(draw: Draw) -> TaskDraft:
    """An event goes to the next week, where its time may be taken."""
    old, target = (MONDAY + datetime.timedelta(days=draw.below(7)) for _ in range(2))
    target += WEEK
    title, *others = draw.some(STEMS, 4)
    hour, taken_hour = draw.some(range(8, 16), 2)
    feasible = draw.below(3) > 0
    moved = new_event(title, old, draw.pick(HOURS), 17)
    moved["end"] = moved["start"] + 60
    events = [moved] + [
        new_event(other, target, at, at + 1)
        for other, at in zip(others, (taken_hour if feasible else hour, 16), strict=False)
    ]
    world = calendar(events)
    day = shown_day(target)
    told = draw.pick(
        (
            "Move {t} to {d} at {a}.",
            "{t} is on {d} at {a} now: change the calendar.",
            "Please move the event {t} to {d}, {a}, or give up if that time is taken.",
        )
    )
    saved = (write("Day", day), write("Start", f"{hour}:00"), press("Save"))
    change = {"day": target.isoformat(), "start": hour * 60, "end": hour * 60 + 60}
    return task_draft(
        key=f"{title} {day} {hour}",
        instruction=told.format(t=title, d=day, a=f"{hour}:00"),
        world=world,
        solution=(
            (link(title),),
            saved,
            done() if feasible else give_up(f"{day} at {hour}:00 is taken"),
        ),
        after=with_change(world, "1", change) if feasible else None,
        feasible=feasible,
    )


def free(draw: Draw) -> TaskDraft:
    """A new event in the first hour of a day that is free."""
    day = MONDAY + datetime.timedelta(days=draw.below(7))
    title, *others = draw.some(STEMS, 4)
    first = draw.between(9, 12)
    later = first + draw.between(2, 3)
    spans = ((8, first), (first + 1, later), (later, later + draw.between(1, 2)))
    world = calendar(
        [new_event(name, day, *span) for name, span in zip(others, spans, strict=True)]
    )
    told = draw.pick(
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
    return task_draft(
        key=f"{title} {shown_day(day)}",
        instruction=told.format(t=title, d=shown_day(day)),
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


def clear(draw: Draw) -> TaskDraft:
    """All events of one day are off; one of another day is named that stays."""
    day, other = (MONDAY + datetime.timedelta(days=n) for n in draw.some(range(7), 2))
    names = draw.some(STEMS, 4)
    starts = sorted(draw.some(HOURS, 2))
    events = [
        new_event(name, day, start, start + 1)
        for name, start in zip(names[:2], starts, strict=True)
    ]
    events += [new_event(name, other, 9 + n, 10 + n) for n, name in enumerate(names[2:])]
    world = calendar(events)
    after = copy.deepcopy(world)
    for number in ("1", "2"):
        del after["events"][number]
    told = draw.pick(
        (
            "Delete all events on {d}. The event {k} stays.",
            "I am not here on {d}: delete what is on that day, but not {k}.",
            "Please clear {d}. Keep {k}, which is on another day.",
        )
    )
    return task_draft(
        key=f"{shown_day(day)} {names[2]}",
        instruction=told.format(d=shown_day(day), k=names[2]),
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


def repeat(draw: Draw) -> TaskDraft:
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
    told = draw.pick(
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
    return task_draft(
        key=f"{event['title']} {shown_day(day)}",
        instruction=told.format(t=event["title"], d=shown_day(day)),
        world=world,
        solution=((link(event["title"]),), (link("New"),), filled, done()),
        after=with_event(world, event | {"day": day.isoformat()}),
    )


def guests(draw: Draw) -> TaskDraft:
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
    told = draw.pick(
        (
            "Invite the guests of {a} to {b}, too.",
            "Who comes to {a} should come to {b}: invite them.",
            "Please ask everyone who is a guest of {a} to {b} as well.",
        )
    )
    return task_draft(
        key=f"{first} {second}",
        instruction=told.format(a=first, b=second),
        world=world,
        solution=(
            (link(first),),
            (link("Week"),),
            (link(second),),
            *((write("Guest", name), press("Invite")) for name in coming),
            done(),
        ),
        after=with_change(world, "2", {"guests": coming}),
    )


def longest(draw: Draw) -> TaskDraft:
    """Which event of a day in the next week takes the most time."""
    day = MONDAY + WEEK + datetime.timedelta(days=draw.below(7))
    names = draw.some(STEMS, 4)
    lengths = draw.some(range(1, 4), 3)
    at, events = 8, []
    for name, length in zip(names, lengths, strict=False):
        events.append(new_event(name, day, at, at + length))
        at += length
    other = new_event(names[3], day + datetime.timedelta(days=1), 8, 17)
    asked = names[0]
    told = draw.pick(
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
    return task_draft(
        key=f"{asked} {shown_day(day)}",
        instruction=told.format(t=asked, d=shown_day(day)),
        world=calendar([*events, other]),
        solution=turns,
        answer=name,
    )


CALENDAR_LONG = (
    Family("calendar_clear", clear),
    Family("calendar_free", free),
    Family("calendar_guests", guests),
    Family("calendar_longest", longest),
    Family("calendar_move", move),
    Family("calendar_repeat", repeat),
)
