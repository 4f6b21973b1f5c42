"""Days and times as the calendar shows and reads them: "3 March", "9:00"."""

from __future__ import annotations

import datetime
import re

from clawrl_gym.envs.gui.apps.serving import Refused

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
OPEN = 8 * 60
"""Minute of the day at which the first event can start."""
CLOSE = 18 * 60
"""Minute of the day at which the last event ends."""
_TIME = re.compile(r"(\d{1,2})(?:[:.]([0-5]\d))?", re.ASCII)
_DAY = re.compile(r"(\d{1,2})\.? ([a-z]+)|([a-z]+) (\d{1,2})", re.ASCII)
YEARS = range(2000, 2100)


def shown_day(day: datetime.date) -> str:
    """Day and month."""
    return f"{day.day} {MONTHS[day.month - 1]}"


def shown_time(minutes: int) -> str:
    """Hours and minutes."""
    return f"{minutes // 60}:{minutes % 60:02d}"


def monday(day: datetime.date) -> datetime.date:
    """The first day of a day's week."""
    return day - datetime.timedelta(days=day.weekday())


def weekday(day: datetime.date) -> str:
    """Its short name, in English whatever the locale is."""
    return ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[day.weekday()]


def read_date(text: str) -> datetime.date:
    """A day of a path, such as 2026-03-03. Refused with status 404 otherwise."""
    try:
        day = datetime.date.fromisoformat(text)
    except ValueError:
        raise Refused("There is no such day.", 404) from None
    if day.year not in YEARS:
        raise Refused("There is no such day.", 404)
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
    raise Refused(f"Got the day {text!r}, expected one such as 3 March.")


def read_time(text: str) -> int:
    """Minutes since midnight of "9:00" or "9", within the day's hours."""
    match = _TIME.fullmatch(text)
    minutes = int(match[1]) * 60 + int(match[2] or 0) if match else -1
    if not OPEN <= minutes <= CLOSE:
        raise Refused(
            f"Got the time {text!r}, expected one such as 9:00, "
            f"from {shown_time(OPEN)} to {shown_time(CLOSE)}."
        )
    return minutes
