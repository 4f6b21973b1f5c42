"""State of an office, each record by its id; rooms go by their names.

{"people": {"P12": {"name": "Ana Keller", "team": "Sales", "manager": "P40"}},
 "rooms": {"Oak": {"floor": 2, "seats": 8}},
 "meetings": {"M31": {"title": "Budget review", "day": "Monday", "hour": 10, "room": "Oak"}},
 "tickets": {"T57": {"title": "Printer jams", "owner": "P12", "reporter": "P40"}},
 "items": {"I23": {"name": "oak desk", "kind": "desk", "price": 120, "stock": 3}},
 "orders": {"O81": {"item": "I23", "quantity": 2, "buyer": "P12"}}}

Records are never changed, only replaced: a copy of an office is as cheap as its tables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from clawrl_gym.core.errors import TaskError

Priority = Literal["low", "normal", "high", "urgent"]
PRIORITIES: tuple[Priority, ...] = ("low", "normal", "high", "urgent")
RESOLUTIONS = ("answered", "declined", "fixed", "obsolete")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
HOURS = range(8, 18)


class _Strict:
    """Base of records: JSON with other keys is refused."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Person(_Strict):
    """A person who works here."""

    name: str
    team: str = ""
    manager: str = ""
    deputy: str = ""
    """Person who takes their place when they are away."""
    away: bool = False


@dataclass(frozen=True, slots=True)
class Room(_Strict):
    """Where meetings take place."""

    floor: int
    seats: int


@dataclass(frozen=True, slots=True)
class Meeting(_Strict):
    """Once a week at most one in a room at an hour."""

    title: str
    day: str
    hour: int
    room: str = ""
    host: str = ""
    guests: tuple[str, ...] = ()
    """Guests in order of their ids, so that it does not show who was invited first."""
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Ticket(_Strict):
    """Something to be seen to."""

    title: str
    status: Literal["open", "closed"] = "open"
    priority: Priority = "normal"
    owner: str = ""
    reporter: str = ""
    resolution: str = ""
    """The way in which it was closed."""
    tags: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    merged_into: str = ""


@dataclass(frozen=True, slots=True)
class Item(_Strict):
    """An item that can be ordered."""

    name: str
    kind: str = ""
    price: int = 0
    """Price of a piece in whole coins."""
    stock: int = 0
    pack: int = 1
    """Ordered in multiples of this."""
    keeper: str = ""
    """Person who looks after it."""


@dataclass(frozen=True, slots=True)
class Order(_Strict):
    """An order."""

    item: str
    quantity: int
    buyer: str
    approver: str = ""
    cancelled: bool = False


@dataclass(slots=True)
class Office(_Strict):
    """One office."""

    people: dict[str, Person] = field(default_factory=dict)
    rooms: dict[str, Room] = field(default_factory=dict)
    meetings: dict[str, Meeting] = field(default_factory=dict)
    tickets: dict[str, Ticket] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)
    orders: dict[str, Order] = field(default_factory=dict)
    notices: dict[str, str] = field(default_factory=dict)
    """Notices as `PERSON about ID`, each under itself as key."""

    def copy(self) -> Office:
        return Office(**{table.name: dict(getattr(self, table.name)) for table in fields(self)})

    def changed_since(self, before: Office) -> frozenset[str]:
        """The ids of records that are other ones, new, or gone."""
        return frozenset(
            record_id
            for table in fields(self)
            for here, there in [(getattr(self, table.name), getattr(before, table.name))]
            for record_id in here.keys() | there.keys()
            if here.get(record_id) != there.get(record_id)
        )


def new_id(letter: str, content: str, taken: Collection[str]) -> str:
    """The id of a new record. What it is decides, not when it was made: right orders of the work
    leave the same office."""
    number = 100 + int.from_bytes(hashlib.sha256(content.encode()).digest()[:4], "big") % 900
    while f"{letter}{number}" in taken:
        number += 1
    return f"{letter}{number}"


def read_office(state: Mapping[str, object]) -> Office:
    """The office of a task's state. Raises TaskError for what is none."""
    try:
        office = _adapter().validate_python(dict(state))
    except (ValidationError, TypeError, ValueError) as error:
        where, why = "", str(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            where, why = ".".join(map(str, first["loc"])), first["msg"]
        raise TaskError(f"the office's state is wrong at {where!r}: {why}") from None
    for place, wanted, there in _pointers(office):
        if wanted and wanted not in there:
            raise TaskError(
                f"the office's {place} is {wanted!r}, expected an id that is in its state"
            )
    return office


def state_of(office: Office) -> dict[str, object]:
    """State as JSON; inverse of `read_office`."""
    state: dict[str, object] = _adapter().dump_python(office, mode="json")
    return state


@cache
def _adapter() -> TypeAdapter[Office]:
    return TypeAdapter(Office)


def _pointers(office: Office) -> Iterator[tuple[str, str, Collection[str]]]:
    """Where a record names another one, which one, and those that there are."""
    for name, person in office.people.items():
        yield f"people.{name}.manager", person.manager, office.people
        yield f"people.{name}.deputy", person.deputy, office.people
    for name, meeting in office.meetings.items():
        yield f"meetings.{name}.room", meeting.room, office.rooms
        for guest in (meeting.host, *meeting.guests):
            yield f"meetings.{name}.host or guest", guest, office.people
    for name, ticket in office.tickets.items():
        for person_id in (ticket.owner, ticket.reporter):
            yield f"tickets.{name}.owner or reporter", person_id, office.people
        for other in (*ticket.links, ticket.merged_into):
            yield f"tickets.{name}.links or merged_into", other, office.tickets
    for name, item in office.items.items():
        yield f"items.{name}.keeper", item.keeper, office.people
    for name, order in office.orders.items():
        yield f"orders.{name}.item", order.item, office.items
        for person_id in (order.buyer, order.approver):
            yield f"orders.{name}.buyer or approver", person_id, office.people
