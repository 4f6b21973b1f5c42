"""The office at the beginning of a task: its people and records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.toolcall.composed.skill import Kind, NotApplicable, Value
from clawrl_gym.envs.showcase.toolcall.office.world import (
    DAYS,
    HOURS,
    PRIORITIES,
    RESOLUTIONS,
    Item,
    Meeting,
    Office,
    Order,
    Person,
    Room,
    Ticket,
)
from clawrl_gym.envs.showcase.toolcall.shop.case import FIRST_NAMES, LAST_NAMES
from clawrl_gym.envs.titles import MEETING_TITLES, TICKET_TITLES

TEAMS = ("Design", "Finance", "Legal", "Research", "Sales", "Support")
ROOMS = ("Alder", "Birch", "Cedar", "Elm", "Fir", "Hazel", "Larch", "Maple", "Oak", "Pine")
TAGS = ("billing", "export", "hardware", "login", "network", "print", "search", "security")
SORTS = ("chair", "desk", "headset", "keyboard", "lamp", "monitor")
ADJECTIVES = ("black", "compact", "folding", "grey", "oak", "small", "steel", "white")
T = TypeVar("T")


class Cast:
    """One office while it is made, and titles and ids that nothing in it has."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self.titles = {Kind.TICKET: list(TICKET_TITLES), Kind.MEETING: list(MEETING_TITLES)}
        names = zip(draw.some(FIRST_NAMES, 9), draw.some(LAST_NAMES, 9), strict=True)
        self._names = [f"{first} {last}" for first, last in names]
        self._numbers = {letter: list(range(10, 100)) for letter in "PMTIO"}
        self.office = Office()
        self._people()
        self._rooms()
        self._meetings()
        self._tickets()
        self._store()

    def title(self, kind: Kind) -> str:
        """A new one. Raises NotApplicable when all are taken."""
        return self._taken(self.titles[kind])

    def new_id(self, letter: str) -> str:
        """Raises NotApplicable when all are taken."""
        return f"{letter}{self._taken(self._numbers[letter])}"

    def slot(self, room: str) -> tuple[str, int]:
        """A time at which a room is free."""
        taken = {(m.day, m.hour) for m in self.office.meetings.values() if m.room == room}
        free = [(day, hour) for day in DAYS for hour in HOURS if (day, hour) not in taken]
        return self._draw.pick(free)

    def _taken(self, left: list[T]) -> T:
        if not left:
            raise NotApplicable
        return left.pop(self._draw.below(len(left)))

    def _ids(self, letter: str, count: int) -> list[str]:
        """Ids in order: what was drawn first is nowhere first."""
        return sorted(self.new_id(letter) for _ in range(count))

    def _people(self) -> None:
        draw, people = self._draw, self._ids("P", 9)
        teams, away = draw.some(TEAMS, 4), draw.some(people, 2)
        for person in people:
            manager, deputy = draw.some([other for other in people if other != person], 2)
            self.office.people[person] = Person(
                self._names.pop(), draw.pick(teams), manager, deputy, person in away
            )

    def _rooms(self) -> None:
        seats = self._draw.some(range(3, 25), 6)
        for i, name in enumerate(sorted(self._draw.some(ROOMS, 6))):
            self.office.rooms[name] = Room(1 + i % 3, seats[i])

    def _meetings(self) -> None:
        draw, office = self._draw, self.office
        for meeting in self._ids("M", 7):
            room = draw.pick(list(office.rooms))
            day, hour = self.slot(room)
            host, *guests = draw.some(list(office.people), draw.between(2, 6))
            office.meetings[meeting] = Meeting(
                self.title(Kind.MEETING), day, hour, room, host, tuple(sorted(guests))
            )

    def _tickets(self) -> None:
        draw, office = self._draw, self.office
        tickets = self._ids("T", 10)
        for ticket in tickets:
            closed = draw.below(4) == 0
            owner, reporter = draw.some(list(office.people), 2)
            office.tickets[ticket] = Ticket(
                self.title(Kind.TICKET),
                "closed" if closed else "open",
                draw.pick(PRIORITIES),
                owner,
                reporter,
                draw.pick(RESOLUTIONS) if closed else "",
                tuple(sorted(draw.some(TAGS, draw.below(2)))),
            )
        for _ in range(2):
            self._link(*draw.some(tickets, 2))

    def _link(self, one: str, other: str) -> None:
        tickets = self.office.tickets
        for here, there in ((one, other), (other, one)):
            links = tuple(sorted({*tickets[here].links, there}))
            tickets[here] = replace(tickets[here], links=links)

    def _store(self) -> None:
        draw, office = self._draw, self.office
        people = list(office.people)
        sorts = draw.some(SORTS, 3)
        prices = draw.some(range(5, 41), 7)
        names = {f"{adjective} {sort}" for sort in sorts for adjective in ADJECTIVES}
        for price, item, name in zip(
            prices, self._ids("I", 7), draw.some(sorted(names), 7), strict=True
        ):
            office.items[item] = Item(
                name, name.split()[1], price, draw.between(0, 30), 1, draw.pick(people)
            )
        for order in self._ids("O", 5):
            office.orders[order] = Order(
                draw.pick(list(office.items)), draw.between(2, 12), draw.pick(people)
            )


DRAWN = (Kind.PERSON, Kind.TICKET, Kind.MEETING, Kind.ROOM, Kind.ITEM, Kind.ORDER)
"""Kinds of records."""


def records(office: Office, kind: Kind) -> Mapping[str, object]:
    """All records of a kind, by id."""
    tables: Mapping[Kind, Mapping[str, object]] = {
        Kind.PERSON: office.people,
        Kind.TICKET: office.tickets,
        Kind.MEETING: office.meetings,
        Kind.ROOM: office.rooms,
        Kind.ITEM: office.items,
        Kind.ORDER: office.orders,
    }
    return tables[kind]


def values(office: Office, kind: Kind) -> Sequence[Value]:
    """All that an argument of this kind can be in an office."""
    plain: Mapping[Kind, Sequence[Value]] = {
        Kind.TEAM: sorted({person.team for person in office.people.values()}),
        Kind.PRIORITY: PRIORITIES,
        Kind.RESOLUTION: RESOLUTIONS,
        Kind.TAG: TAGS,
        Kind.DAY: DAYS,
        Kind.HOUR: HOURS,
        Kind.QUANTITY: range(2, 13),
        Kind.FLOOR: sorted({room.floor for room in office.rooms.values()}),
        Kind.SORT: sorted({item.kind for item in office.items.values()}),
    }
    return plain[kind] if kind in plain else list(records(office, kind))
