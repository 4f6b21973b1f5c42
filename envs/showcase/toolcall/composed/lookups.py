"""The skills that find something out, and the questions that are answered with what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.toolcall.composed.skill import Kind, Lookup, Question, Value
from clawrl_gym.envs.showcase.toolcall.families.family import CallSpec
from clawrl_gym.envs.showcase.toolcall.office.world import Office

T = TypeVar("T")
_Looks = Callable[[Value], tuple[CallSpec, ...]]


def shown(kind: Kind) -> _Looks:
    """The call that shows a record."""
    return lambda value: ((f"get_{kind}", {str(kind): value}),)


def listed(tool: str, argument: str) -> _Looks:
    """The call that lists records."""
    return lambda value: ((tool, {argument: value}),)


def only(values: Iterable[T]) -> T | None:
    """The one that there is; None for none, and for several."""
    several = list(values)
    return several[0] if len(several) == 1 else None


def _of_person(office: Office, who: Value) -> Value | None:
    tickets = office.tickets.items()
    return only(t for t, ticket in tickets if ticket.owner == who and ticket.status == "open")


def _hosted(office: Office, who: Value) -> Value | None:
    meetings = office.meetings.items()
    return only(m for m, meeting in meetings if meeting.host == who and not meeting.cancelled)


def _ordered(office: Office, who: Value) -> Value | None:
    orders = office.orders.items()
    return only(o for o, order in orders if order.buyer == who and not order.cancelled)


def _largest(office: Office, floor: Value) -> Value | None:
    rooms = [(room.seats, name) for name, room in office.rooms.items() if room.floor == floor]
    most = max(rooms, default=(0, ""))[0]
    return only(name for seats, name in rooms if seats == most)


def _cheapest(office: Office, sort: Value) -> Value | None:
    items = [(item.price, key) for key, item in office.items.items() if item.kind == sort]
    least = min(items, default=(0, ""))[0]
    return only(key for price, key in items if price == least)


_ALL = (
    Lookup(
        "manager", Kind.PERSON, Kind.PERSON,
        Phrasings(
            ("the manager of {x}", "whoever manages {x}", "the person who manages {x}"),
            ("the person that {x} reports to", "the boss of {x}"),
        ),
        shown(Kind.PERSON), lambda office, x: office.people[str(x)].manager or None,
    ),
    Lookup(
        "deputy", Kind.PERSON, Kind.PERSON,
        Phrasings(
            ("the deputy of {x}", "whoever stands in for {x}", "the person who is deputy of {x}"),
            ("the person covering for {x} as deputy", "the one who deputises for {x}"),
        ),
        shown(Kind.PERSON), lambda office, x: office.people[str(x)].deputy or None,
    ),
    Lookup(
        "owner", Kind.TICKET, Kind.PERSON,
        Phrasings(
            ("the owner of {x}", "whoever owns {x}", "the person who owns {x}"),
            ("the person to whom {x} is assigned", "the one in charge of {x}"),
        ),
        shown(Kind.TICKET), lambda office, x: office.tickets[str(x)].owner or None,
    ),
    Lookup(
        "reporter", Kind.TICKET, Kind.PERSON,
        Phrasings(
            ("the reporter of {x}", "whoever reported {x}", "the person who reported {x}"),
            ("the person who raised {x}", "the one by whom {x} was reported"),
        ),
        shown(Kind.TICKET), lambda office, x: office.tickets[str(x)].reporter or None,
    ),
    Lookup(
        "host", Kind.MEETING, Kind.PERSON,
        Phrasings(
            ("the host of {x}", "whoever hosts {x}", "the person who hosts {x}"),
            ("the person who leads {x}", "the one by whom {x} is hosted"),
        ),
        shown(Kind.MEETING), lambda office, x: office.meetings[str(x)].host or None,
    ),
    Lookup(
        "buyer", Kind.ORDER, Kind.PERSON,
        Phrasings(
            ("the buyer of {x}", "whoever placed {x}", "the person who placed {x}"),
            ("the person for whom {x} was placed", "the one who is the buyer in {x}"),
        ),
        shown(Kind.ORDER), lambda office, x: office.orders[str(x)].buyer or None,
    ),
    Lookup(
        "keeper", Kind.ITEM, Kind.PERSON,
        Phrasings(
            ("the keeper of {x}", "whoever looks after {x}", "the person who keeps {x}"),
            ("the person who takes care of {x}", "the one who is keeper of {x}"),
        ),
        shown(Kind.ITEM), lambda office, x: office.items[str(x)].keeper or None,
    ),
    Lookup(
        "ticket_of", Kind.PERSON, Kind.TICKET,
        Phrasings(
            ("the only open ticket of {x}", "the one open ticket that {x} owns"),
            ("the single open ticket belonging to {x}",),
        ),
        listed("list_tickets", "owner"), _of_person,
    ),
    Lookup(
        "linked", Kind.TICKET, Kind.TICKET,
        Phrasings(
            ("the ticket that {x} is linked to", "the ticket linked to {x}"),
            ("the ticket to which {x} has a link",),
        ),
        shown(Kind.TICKET), lambda office, x: only(office.tickets[str(x)].links),
    ),
    Lookup(
        "meeting_of", Kind.PERSON, Kind.MEETING,
        Phrasings(
            ("the only meeting that {x} hosts", "the one meeting hosted by {x}"),
            ("the single meeting of which {x} is the host",),
        ),
        listed("list_meetings", "host"), _hosted,
    ),
    Lookup(
        "order_of", Kind.PERSON, Kind.ORDER,
        Phrasings(
            ("the only order of {x}", "the one order that {x} has placed"),
            ("the single order placed by {x}",),
        ),
        listed("list_orders", "buyer"), _ordered,
    ),
    Lookup(
        "room_of", Kind.MEETING, Kind.ROOM,
        Phrasings(
            ("the room of {x}", "the room in which {x} takes place"),
            ("the room that {x} is held in",),
        ),
        shown(Kind.MEETING), lambda office, x: office.meetings[str(x)].room or None,
    ),
    Lookup(
        "largest", Kind.FLOOR, Kind.ROOM,
        Phrasings(
            ("the largest room on {x}", "the room on {x} with the most seats"),
            ("the biggest of the rooms on {x}",),
        ),
        listed("list_rooms", "floor"), _largest,
    ),
    Lookup(
        "item_of", Kind.ORDER, Kind.ITEM,
        Phrasings(
            ("the item that was ordered in {x}", "the item of {x}"),
            ("the item that {x} is about",),
        ),
        shown(Kind.ORDER), lambda office, x: office.orders[str(x)].item,
    ),
    Lookup(
        "cheapest", Kind.SORT, Kind.ITEM,
        Phrasings(
            ("the cheapest {x} in the store", "the {x} with the lowest price"),
            ("the least expensive {x} that there is",),
        ),
        listed("list_items", "kind"), _cheapest,
    ),
    Lookup(
        "priority_of", Kind.TICKET, Kind.PRIORITY,
        Phrasings(("that of {x}", "the one of {x}"), ("the same as with {x}",)),
        shown(Kind.TICKET), lambda office, x: office.tickets[str(x)].priority,
    ),
    Lookup(
        "team_of", Kind.PERSON, Kind.TEAM,
        Phrasings(
            ("the team of {x}", "the team that {x} is in"), ("the team to which {x} belongs",)
        ),
        shown(Kind.PERSON), lambda office, x: office.people[str(x)].team or None,
    ),
    Lookup(
        "day_of", Kind.MEETING, Kind.DAY,
        Phrasings(
            ("the day of {x}", "the same day as {x}"), ("the day on which {x} takes place",)
        ),
        shown(Kind.MEETING), lambda office, x: office.meetings[str(x)].day,
    ),
)  # fmt: skip

LOOKUPS: Mapping[str, Lookup] = MappingProxyType({lookup.name: lookup for lookup in _ALL})
"""Lookups by name."""


def _cost(office: Office, order: Value) -> tuple[CallSpec, ...]:
    known = office.orders[str(order)]
    price = office.items[known.item].price
    return (
        ("get_order", {"order": order}),
        ("get_item", {"item": known.item}),
        ("calculate", {"expression": f"{known.quantity} * {price}"}),
    )


def _cost_of(office: Office, order: Value) -> Value:
    known = office.orders[str(order)]
    return known.quantity * office.items[known.item].price


_QUESTIONS = (
    Question(
        "open_tickets", Kind.PERSON,
        Phrasings(
            (
                "how many open tickets {x} owns", "the number of open tickets that {x} owns",
                "how many of the tickets that {x} owns are open",
                "how many tickets {x} has open as their owner",
            ),
            ("the count of open tickets in the hands of {x}", "how many tickets {x} has left open"),
        ),
        lambda office, x: (("list_tickets", {"owner": x}),),
        lambda office, x: sum(
            ticket.owner == x and ticket.status == "open" for ticket in office.tickets.values()
        ),
    ),
    Question(
        "guests", Kind.MEETING,
        Phrasings(
            (
                "how many guests {x} has", "the number of guests of {x}",
                "how many people are invited to {x} as guests", "how many guests there are in {x}",
            ),
            ("the size of the guest list of {x}", "how many guests are expected at {x}"),
        ),
        lambda office, x: (("get_meeting", {"meeting": x}),),
        lambda office, x: len(office.meetings[str(x)].guests),
    ),
    Question(
        "stock", Kind.ITEM,
        Phrasings(
            (
                "how many pieces of {x} are in stock", "the stock of {x}",
                "how many of {x} we have in stock", "how many pieces of {x} there are",
            ),
            ("how much of {x} is left in stock", "the number of pieces in stock of {x}"),
        ),
        lambda office, x: (("get_item", {"item": x}),),
        lambda office, x: office.items[str(x)].stock,
    ),
    Question(
        "cost", Kind.ORDER,
        Phrasings(
            (
                "what {x} costs in all, in coins", "the total price of {x}",
                "how many coins {x} comes to", "how much {x} costs altogether",
            ),
            ("the sum of coins that {x} amounts to", "what we pay for {x} in total"),
        ),
        _cost, _cost_of,
    ),
    Question(
        "seats", Kind.ROOM,
        Phrasings(
            (
                "how many seats {x} has", "the number of seats in {x}",
                "how many people can sit in {x}", "how many seats there are in {x}",
            ),
            ("for how many people {x} has seats", "the seat count of {x}"),
        ),
        lambda office, x: (("get_room", {"room": x}),),
        lambda office, x: office.rooms[str(x)].seats,
    ),
    Question(
        "name", Kind.PERSON,
        Phrasings(
            (
                "the full name of {x}", "what {x} is called, in full",
                "first and last name of {x}", "by what full name I find {x}",
            ),
            ("under which full name {x} is listed", "the complete name of {x}"),
        ),
        lambda office, x: (("get_person", {"person": x}),),
        lambda office, x: office.people[str(x)].name,
    ),
)  # fmt: skip

QUESTIONS: Mapping[str, Question] = MappingProxyType({one.name: one for one in _QUESTIONS})
"""Questions by name."""
