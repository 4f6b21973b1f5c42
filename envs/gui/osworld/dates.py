"""OSWorld's `rule_relativeTime`: days such as "next Monday", written as a page shows them.

They count from the day that the pages see: the clock of every episode starts at the same time.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.gui.browser.context import CLOCK_STARTS_S
from clawrl_gym.envs.gui.osworld import Opaque

TODAY = datetime.fromtimestamp(CLOCK_STARTS_S, UTC).date()
_SUNDAY = 6
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WRITTEN: Mapping[str, tuple[str, ...]] = {
    "from": ("from", "time", "puDay", "puMonth", "puYear"),
    "to": ("to", "doDay", "doMonth", "doYear"),
}
"""Keys of what is expected that hold the one day and the other."""
_MONTHS_LATER = {"four": 4, "eight": 8}


def rules_of(rules: Mapping[str, Opaque], today: date = TODAY) -> dict[str, Opaque]:
    """The rules with their days filled in. Raises TaskError for a day it does not know."""
    try:
        relative, expected = rules["relativeTime"], dict(rules["expected"])
        for end, keys in _WRITTEN.items():
            if end not in relative:
                continue
            day = day_of(relative[end], today)
            for key in keys:
                if key in expected:
                    expected[key] = _filled(expected[key], day)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TaskError(
            f"evaluator: rule_relativeTime: {type(error).__name__}: {error}, expected "
            "relativeTime with 'from' and perhaps 'to', and expected"
        ) from error
    return {**rules, "expected": expected}


def day_of(words: str, today: date) -> date:
    """Raises TaskError."""
    words = words.lower().removesuffix(" split")
    monday = today + timedelta(days=7 - today.weekday())
    if words == "tomorrow":
        return today + timedelta(days=1)
    if words == "this month":
        return today
    if match := re.fullmatch(r"(\d+)(?:st|nd|rd|th) next month", words):
        return _first(today, 1).replace(day=int(match[1]))
    if match := re.fullmatch(r"first monday (four|eight) months later", words):
        first = _first(today, _MONTHS_LATER[match[1]])
        return first + timedelta(days=-first.weekday() % 7)
    if match := re.fullmatch(rf"(.+) ({'|'.join(_WEEKDAYS)})", words):
        weekday = _WEEKDAYS.index(match[2])
        ahead = {
            "this": weekday - today.weekday(),
            "next": (weekday - today.weekday() - 1) % 7 + 1,
            "next week": (monday - today).days + weekday,
            "week after next": (monday - today).days + weekday + 7,
        }
        if match[1] in ahead and (match[1], weekday) != ("next", _SUNDAY):
            return today + timedelta(days=ahead[match[1]])
    raise TaskError(f"evaluator: rule_relativeTime of {words!r} is not supported")


def _first(today: date, months: int) -> date:
    """The first day of the month that many months later."""
    years, month = divmod(today.month - 1 + months, 12)
    return date(today.year + years, month + 1, 1)


def _filled(text: Opaque, day: date) -> Opaque:
    if isinstance(text, list):
        return [_filled(one, day) for one in text]
    month = calendar.month_name[day.month]
    values = {
        "DoW": calendar.day_abbr[day.weekday()],
        "Month": calendar.month_abbr[day.month],
        "MonthFull": month,
        "month": month.lower(),
        "MonthD": str(day.month),
        "Month0D": f"{day.month:02d}",
        "DayD": str(day.day),
        "Day0D": f"{day.day:02d}",
        "Year": str(day.year),
    }
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), text)
