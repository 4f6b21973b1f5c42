"""Values that an argument of a kind can have on a desk, and their words in a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.phrasing import Choices
from clawrl_gym.envs.showcase.gui.apps.calendar import shown_day, shown_time, weekday_and_day
from clawrl_gym.envs.showcase.gui.apps.sheet import DOWN, UP
from clawrl_gym.envs.showcase.gui.apps.shop import PAYMENTS
from clawrl_gym.envs.showcase.gui.apps.shop import REASONS as FAULTS
from clawrl_gym.envs.showcase.gui.apps.tickets import CLOSED, PRIORITIES
from clawrl_gym.envs.showcase.gui.composed.cast import DAYS, HOURS
from clawrl_gym.envs.showcase.gui.composed.desk import Desk
from clawrl_gym.envs.showcase.gui.composed.skill import Args, Kind, Value
from clawrl_gym.envs.showcase.gui.composed.skills.settings import OFF, ON, all_settings, setting
from clawrl_gym.envs.showcase.gui.families.mail import LABELS

RECORDS = frozenset({Kind.EVENT, Kind.MAIL, Kind.TICKET, Kind.ORDER, Kind.ITEM, Kind.LINE})
"""Kinds that something can be looked up of and done with."""
DOUBLED = frozenset({Kind.EVENT, Kind.MAIL, Kind.TICKET})
"""Kinds whose records are known by a name that another one may have."""


def values(desk: Desk, kind: Kind, args: Args) -> Sequence[Value]:
    """All that an argument can be, the others given; nothing for what is drawn otherwise."""
    return _VALUES[kind](desk, args) if kind in _VALUES else ()


def _mails(desk: Desk) -> list[str]:
    """Received mails."""
    return [number for number, one in desk.mail["mails"].items() if one["folder"] != "sent"]


def _cells(desk: Desk, deep: bool) -> list[str]:
    found = []
    for sheet in desk.sheet["sheets"]:
        head, *rows = sheet["rows"]
        for row in rows:
            path = f"{sheet['name']}/{row[0]}"
            found += [f"{path}/{column}" for column in head[1:]] if deep else [path]
    return found


def _columns(desk: Desk, args: Args) -> list[str]:
    sheets = {sheet["name"]: sheet["rows"][0][1:] for sheet in desk.sheet["sheets"]}
    return sheets[str(args["sheet"])]


def _settings(desk: Desk, fits: Callable[[object, bool], bool]) -> list[str]:
    return [one["name"] for one in all_settings(desk) if fits(one["value"], bool(one["options"]))]


def _people(desk: Desk) -> list[str]:
    """Names of all people."""
    names = {one["from"] for one in desk.mail["mails"].values()} - {"me"}
    names |= {one["name"] for one in desk.shop.get("orders", {}).values()}
    names |= {guest for event in desk.calendar["events"].values() for guest in event["guests"]}
    return sorted(names | set(desk.tickets["people"]))


_VALUES: Mapping[Kind, Callable[[Desk, Args], Sequence[Value]]] = MappingProxyType(
    {
        Kind.EVENT: lambda desk, args: list(desk.calendar["events"]),
        Kind.MAIL: lambda desk, args: _mails(desk),
        Kind.TICKET: lambda desk, args: list(desk.tickets["tickets"]),
        Kind.ORDER: lambda desk, args: list(desk.shop.get("orders", {})),
        Kind.ITEM: lambda desk, args: list(desk.shop["items"]),
        Kind.LINE: lambda desk, args: list(desk.shop.get("basket", {})),
        Kind.SORT: lambda desk, args: sorted({i["kind"] for i in desk.shop["items"].values()}),
        Kind.COUPON: lambda desk, args: list(desk.shop.get("coupons", {})),
        Kind.ROW: lambda desk, args: _cells(desk, False),
        Kind.CELL: lambda desk, args: _cells(desk, True),
        Kind.SHEET: lambda desk, args: [sheet["name"] for sheet in desk.sheet["sheets"]],
        Kind.COLUMN: _columns,
        Kind.DIRECTION: lambda desk, args: (UP, DOWN),
        Kind.TOGGLE: lambda desk, args: _settings(desk, lambda v, _: isinstance(v, bool)),
        Kind.SWITCH: lambda desk, args: (ON, OFF),
        Kind.CHOICE: lambda desk, args: _settings(desk, lambda _, options: options),
        Kind.OPTION: lambda desk, args: setting(desk, args["choice"])["options"],
        Kind.DIAL: lambda desk, args: _settings(
            desk, lambda v, _: isinstance(v, int) and not isinstance(v, bool)
        ),
        Kind.FIELD: lambda desk, args: _settings(
            desk, lambda v, options: isinstance(v, str) and not options
        ),
        Kind.SECTION: lambda desk, args: [one["name"] for one in desk.settings["sections"]],
        Kind.DANGER: lambda desk, args: [
            one["danger"] for one in desk.settings["sections"] if one["danger"]
        ],
        Kind.PERSON: lambda desk, args: _people(desk),
        Kind.WORKER: lambda desk, args: desk.tickets["people"],
        Kind.DAY: lambda desk, args: DAYS,
        Kind.TIME: lambda desk, args: [60 * hour for hour in HOURS],
        Kind.COUNT: lambda desk, args: range(2, 10),
        Kind.NUMBER: lambda desk, args: range(10, 100),
        Kind.LABEL: lambda desk, args: LABELS,
        Kind.PRIORITY: lambda desk, args: PRIORITIES,
        Kind.REASON: lambda desk, args: ("solved", "not ours"),
        Kind.FAULT: lambda desk, args: FAULTS,
        Kind.PAYMENT: lambda desk, args: PAYMENTS,
    }
)

_SAID: Mapping[Kind, Choices] = MappingProxyType(
    {
        Kind.EVENT: {
            "train": ('the event "{n}"', 'the appointment "{n}"'),
            "heldout": ('the calendar entry "{n}"',),
        },
        Kind.MAIL: {
            "train": ('the mail about "{n}"', 'the mail "{n}"'),
            "heldout": ('the mail with the subject "{n}"',),
        },
        Kind.TICKET: {
            "train": ('the ticket "{n}"', "ticket {v}"), "heldout": ('the ticket called "{n}"',)
        },
        Kind.ORDER: {"train": ("order {v}", "the order {v}"), "heldout": ("order number {v}",)},
        Kind.ITEM: {"train": ("the {v}",), "heldout": ("the {v}",)},
        Kind.LINE: {"train": ("the {v}",), "heldout": ("the {v}",)},
        Kind.SHEET: {"train": ("the sheet {v}",), "heldout": ("the sheet named {v}",)},
        Kind.ROW: {
            "train": ("{item} in the sheet {sheet}",), "heldout": ("{item} on the sheet {sheet}",)
        },
        Kind.CELL: {
            "train": (
                "the {column} of {item} in the sheet {sheet}",
                "the number of {column} for {item} in the sheet {sheet}",
            ),
            "heldout": ("the {column} value of {item} on the sheet {sheet}",),
        },
        **{
            kind: {"train": ('the setting "{v}"', '"{v}" in the settings'),
                   "heldout": ('the option "{v}" of the settings',)}
            for kind in (Kind.TOGGLE, Kind.CHOICE, Kind.DIAL, Kind.FIELD)
        },
        Kind.SECTION: {
            "train": ("the section {v} of the settings", "the {v} settings"),
            "heldout": ("the settings under {v}",),
        },
        Kind.DANGER: {
            "train": ('"{v}" in the settings', 'the action "{v}" of the settings'),
            "heldout": ('what the settings offer as "{v}"',),
        },
    }
)  # fmt: skip
_QUOTED = frozenset(
    {
        Kind.TITLE, Kind.TROUBLE, Kind.SUBJECT, Kind.TEXT, Kind.ADDRESS, Kind.FAULT, Kind.REASON,
        Kind.OPTION, Kind.WORD, Kind.LABEL, Kind.COUPON,
    }
)  # fmt: skip
_TOLD_APART: Mapping[Kind, Choices] = MappingProxyType(
    {
        Kind.EVENT: {
            "train": ('the event "{n}" that is on {d}', 'the "{n}" of {d}'),
            "heldout": ('the one of the calendar entries "{n}" that falls on {d}',),
        },
        Kind.MAIL: {
            "train": ('the mail about "{n}" from {d}', 'the mail "{n}" by {d}'),
            "heldout": ('the one of the mails with the subject "{n}" that {d} wrote',),
        },
        Kind.TICKET: {
            "train": ('the ticket "{n}" that {d} owns', 'the ticket "{n}" whose owner is {d}'),
            "heldout": ('the one of the tickets called "{n}" that belongs to {d}',),
        },
    }
)
"""`{n}` is the name of two records, `{d}` what only one of them has."""


def name_of(desk: Desk, kind: Kind, value: Value) -> str:
    """Name of a record; other values as they are."""
    number = str(value)
    if kind is Kind.EVENT:
        return desk.calendar["events"][number]["title"]
    if kind is Kind.MAIL:
        return desk.mail["mails"][number]["subject"]
    if kind is Kind.TICKET:
        return desk.tickets["tickets"][number]["title"]
    return number


def told_by(desk: Desk, kind: Kind, value: Value) -> str:
    """Words that tell a record from its namesakes."""
    number = str(value)
    if kind is Kind.EVENT:
        return weekday_and_day(desk.calendar["events"][number]["day"])
    if kind is Kind.MAIL:
        return desk.mail["mails"][number]["from"]
    return desk.tickets["tickets"][number]["owner"] if kind is Kind.TICKET else ""


def spoken(draw: Draw, split: Split, desk: Desk, kind: Kind, value: Value) -> str:
    """An argument in words."""
    if kind in _SAID:
        sheet, item, column = (*str(value).split("/"), "", "")[:3]
        name = name_of(desk, kind, value)
        form = draw.pick(_SAID[kind][split])
        return form.format(n=name, v=value, sheet=sheet, item=item, column=column)
    return f'"{value}"' if kind in _QUOTED else shown(kind, value)


def told_apart(draw: Draw, split: Split, desk: Desk, kind: Kind, value: Value) -> str:
    """A record in words that fit none of its namesakes."""
    form = draw.pick(_TOLD_APART[kind][split])
    return form.format(n=name_of(desk, kind, value), d=told_by(desk, kind, value))


def shown(kind: Kind, value: Value) -> str:
    """A value as pages show it."""
    if kind is Kind.DAY:
        return shown_day(str(value))
    return shown_time(int(value)) if kind is Kind.TIME else str(value)


def is_closed(desk: Desk, ticket: Value) -> bool:
    return desk.tickets["tickets"][str(ticket)]["status"] == CLOSED
