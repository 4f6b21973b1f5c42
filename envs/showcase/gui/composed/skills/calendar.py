"""Skills with an event, and planning one."""

from __future__ import annotations

from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.gui.apps.calendar import CLOSE, HOST, Event, shown_day, shown_time
from clawrl_gym.envs.showcase.gui.apps.serving import next_number
from clawrl_gym.envs.showcase.gui.composed.desk import Desk
from clawrl_gym.envs.showcase.gui.composed.skill import Args, Kind, Refused, Skill
from clawrl_gym.envs.showcase.gui.composed.ways import to, to_event
from clawrl_gym.envs.showcase.gui.families.family import Turns, link, press, write


def _event(desk: Desk, args: Args) -> Event:
    number = str(args["event"])
    if number not in desk.calendar["events"]:
        raise Refused
    return desk.calendar["events"][number]


def overlapping(desk: Desk, day: str, start: int, end: int, but: str = "") -> list[str]:
    """Numbers of the events that take some of this time."""
    return [
        number
        for number, event in desk.calendar["events"].items()
        if number != but and event["day"] == day and event["start"] < end and start < event["end"]
    ]


def moved(desk: Desk, number: str, day: str, start: int) -> None:
    """An event at another time, as long as before. Raises Refused."""
    event = desk.calendar["events"][number]
    end = start + event["end"] - event["start"]
    if end > CLOSE or overlapping(desk, day, start, end, number):
        raise Refused
    event["day"], event["start"], event["end"] = day, start, end


def _moved(desk: Desk, args: Args) -> None:
    _event(desk, args)
    moved(desk, str(args["event"]), str(args["day"]), int(args["time"]))


def _shifted(desk: Desk, args: Args) -> None:
    event = _event(desk, args)
    moved(desk, str(args["event"]), event["day"], int(args["time"]))


def _put_on(desk: Desk, args: Args) -> None:
    event = _event(desk, args)
    moved(desk, str(args["event"]), str(args["day"]), event["start"])


def _deleted(desk: Desk, args: Args) -> None:
    _event(desk, args)
    del desk.calendar["events"][str(args["event"])]


def _renamed(desk: Desk, args: Args) -> None:
    _event(desk, args)["title"] = str(args["title"])


def _invited(desk: Desk, args: Args) -> None:
    event = _event(desk, args)
    event["guests"] = sorted({*event["guests"], str(args["person"])})


def _planned(desk: Desk, args: Args) -> None:
    day, start = str(args["day"]), int(args["time"])
    end = start + 60
    if end > CLOSE or overlapping(desk, day, start, end):
        raise Refused
    events = desk.calendar["events"]
    title = str(args["title"])
    events[next_number(events)] = {
        "title": title, "day": day, "start": start, "end": end, "guests": []
    }  # fmt: skip


def save_at(desk: Desk, args: Args) -> Turns:
    """Set a new day and start on an event's page, as far as they are given."""
    steps = []
    if "day" in args:
        steps.append(write("Day", shown_day(str(args["day"]))))
    if "time" in args:
        steps.append(write("Start", shown_time(int(args["time"]))))
    return (*to_event(desk, args["event"]), (*steps, press("Save")))


def _plan(desk: Desk, args: Args) -> Turns:
    start = int(args["time"])
    form = (
        write("Title", str(args["title"])),
        write("Day", shown_day(str(args["day"]))),
        write("Start", shown_time(start)),
        write("End", shown_time(start + 60)),
        press("Create"),
    )
    return (*to(HOST), (link("New"),), form)


CALENDAR = (
    Skill(
        "plan_event", HOST, {"title": Kind.TITLE, "day": Kind.DAY, "time": Kind.TIME},
        Phrasings(
            (
                "plan an event {title} on {day} at {time}, for one hour",
                "put {title} into the calendar on {day} at {time}; it takes one hour",
                "add the event {title} to the calendar: {day}, {time}, one hour",
                "make an event called {title} on {day} that starts at {time} and takes an hour",
            ),
            (
                "enter {title} in the calendar for {day}, one hour from {time} on",
                "let there be an event {title} on {day}, starting at {time} and one hour long",
            ),
        ),
        _planned, _plan, makes=Kind.EVENT,
    ),
    Skill(
        "move_event", HOST, {"event": Kind.EVENT, "day": Kind.DAY, "time": Kind.TIME},
        Phrasings(
            (
                "move {event} to {day} at {time}", "put {event} on {day} at {time} instead",
                "let {event} take place on {day} at {time}",
                "reschedule {event} for {day}, starting at {time}",
            ),
            ("transfer {event} to {day}, {time}", "see that {event} is on {day} at {time}"),
        ),
        _moved, save_at, settles=True,
    ),
    Skill(
        "shift_event", HOST, {"event": Kind.EVENT, "time": Kind.TIME},
        Phrasings(
            (
                "without changing its day, move {event} to {time}",
                "leave the day of {event} as it is, and let it start at {time}",
                "on its own day, let {event} start at {time}",
                "keeping its day, set the start of {event} to {time}",
            ),
            (
                "with its day as it is, have {event} begin at {time}",
                "let the day of {event} be, but put its start at {time}",
            ),
        ),
        _shifted, save_at, settles=True,
    ),
    Skill(
        "postpone_event", HOST, {"event": Kind.EVENT, "day": Kind.DAY},
        Phrasings(
            (
                "keeping its hours, move {event} to {day}",
                "leave the hours of {event} as they are, and put it on {day}",
                "with its hours unchanged, let {event} be on {day}",
                "change the day of {event}, and nothing else of it, to {day}",
            ),
            (
                "hours as before, bring {event} to {day}",
                "let the hours of {event} be, but shift it to {day}",
            ),
        ),
        _put_on, save_at, settles=True,
    ),
    Skill(
        "delete_event", HOST, {"event": Kind.EVENT},
        Phrasings(
            (
                "delete {event}", "take {event} out of the calendar",
                "remove {event} from the calendar", "cancel {event} by deleting it",
            ),
            ("strike {event} from the calendar", "let {event} be deleted"),
        ),
        _deleted, lambda desk, args: (*to_event(desk, args["event"]), (press("Delete"),)),
    ),
    Skill(
        "rename_event", HOST, {"event": Kind.EVENT, "title": Kind.TITLE},
        Phrasings(
            (
                "rename {event} to {title}", "change the title of {event} to {title}",
                "give {event} the new title {title}", "let {event} be called {title} from now on",
            ),
            ("retitle {event} as {title}", "have {event} renamed to {title}"),
        ),
        _renamed,
        lambda desk, args: (
            *to_event(desk, args["event"]), (write("Title", str(args["title"])), press("Save"))
        ),
    ),
    Skill(
        "invite_guest", HOST, {"event": Kind.EVENT, "person": Kind.PERSON},
        Phrasings(
            (
                "invite {person} to {event}", "see that {person} is a guest of {event}",
                "add {person} to the guests of {event}", "ask {person} to come to {event}",
            ),
            ("put {person} on the guest list of {event}", "have {person} invited to {event}"),
        ),
        _invited,
        lambda desk, args: (
            *to_event(desk, args["event"]), (write("Guest", str(args["person"])), press("Invite"))
        ),
        settles=True,
    ),
)  # fmt: skip
