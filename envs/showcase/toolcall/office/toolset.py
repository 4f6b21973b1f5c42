"""The tools of an office's assistant over one office, which they change.

A tool refuses what cannot be, and says what can. What the office's rules forbid beyond that is the
assistant's to know: tools carry it out. Looking changes nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any, TypeVar

from clawrl_gym.core.types import Json, Tool
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
    new_id,
    read_office,
    state_of,
)
from clawrl_gym.envs.toolcall.records import as_json, plain, record_of, short
from clawrl_gym.envs.toolcall.task import ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolContext, ToolFailure, tool

APPROVED_ABOVE = 500
"""Coins above which an order needs an approver."""
_LISTED = 20
"""Rows that a tool shows at most."""

_TEXT = {"type": "string"}
_NUMBER = {"type": "integer", "minimum": 1, "maximum": 10_000}
_DAY = {"type": "string", "enum": list(DAYS)}
_HOUR = {"type": "integer", "minimum": HOURS[0], "maximum": HOURS[-1]}
_PRIORITY = {"type": "string", "enum": list(PRIORITIES)}
_RESOLUTION = {"type": "string", "enum": list(RESOLUTIONS)}
_WHEN = {"day": _DAY, "hour": _HOUR}

TOOLS: tuple[Tool, ...] = (
    tool("find_people", "Find people by name", {"name": _TEXT}),
    tool("list_people", "List the people of a team", {"team": _TEXT}),
    tool("get_person", "Show a person", {"person": _TEXT}),
    tool("change_team", "Move a person to a team", {"person": _TEXT, "team": _TEXT}),
    tool("change_manager", "Give a person a manager", {"person": _TEXT, "manager": _TEXT}),
    tool("set_deputy", "Say who stands in for a person", {"person": _TEXT, "deputy": _TEXT}),
    tool("mark_away", "Mark a person as away", {"person": _TEXT}),
    tool("mark_back", "Mark a person as back", {"person": _TEXT}),
    tool("notify", "Tell a person about a ticket or meeting", {"person": _TEXT, "about": _TEXT}),
    tool("find_tickets", "Find tickets by title", {"title": _TEXT}),
    tool("list_tickets", "List the tickets of an owner", {"owner": _TEXT}),
    tool("get_ticket", "Show a ticket", {"ticket": _TEXT}),
    tool(
        "open_ticket",
        "Open a new ticket",
        {"title": _TEXT, "priority": _PRIORITY, "reporter": _TEXT},
    ),
    tool("assign_ticket", "Give a ticket an owner", {"ticket": _TEXT, "person": _TEXT}),
    tool("set_priority", "Set a ticket's priority", {"ticket": _TEXT, "priority": _PRIORITY}),
    tool("close_ticket", "Close a ticket", {"ticket": _TEXT, "resolution": _RESOLUTION}),
    tool("reopen_ticket", "Open a closed ticket again", {"ticket": _TEXT}),
    tool("tag_ticket", "Add a tag to a ticket", {"ticket": _TEXT, "tag": _TEXT}),
    tool("link_tickets", "Link two tickets", {"ticket": _TEXT, "other": _TEXT}),
    tool("find_meetings", "Find meetings by title", {"title": _TEXT}),
    tool("list_meetings", "List the meetings that a person hosts", {"host": _TEXT}),
    tool("get_meeting", "Show a meeting", {"meeting": _TEXT}),
    tool("list_rooms", "List the rooms of a floor", {"floor": _NUMBER}),
    tool("get_room", "Show a room", {"room": _TEXT}),
    tool(
        "book_meeting",
        "Book a new meeting",
        {"title": _TEXT, **_WHEN, "room": _TEXT, "host": _TEXT},
    ),
    tool("move_meeting", "Move a meeting to another time", {"meeting": _TEXT, **_WHEN}),
    tool("change_room", "Move a meeting to another room", {"meeting": _TEXT, "room": _TEXT}),
    tool("change_host", "Give a meeting another host", {"meeting": _TEXT, "person": _TEXT}),
    tool("invite", "Add a guest to a meeting", {"meeting": _TEXT, "person": _TEXT}),
    tool("uninvite", "Remove a guest from a meeting", {"meeting": _TEXT, "person": _TEXT}),
    tool("cancel_meeting", "Cancel a meeting", {"meeting": _TEXT}),
    tool("find_items", "Find items of the store by name", {"name": _TEXT}),
    tool("list_items", "List the items of a kind", {"kind": _TEXT}),
    tool("get_item", "Show an item", {"item": _TEXT}),
    tool("change_keeper", "Say who looks after an item", {"item": _TEXT, "person": _TEXT}),
    tool("list_orders", "List the orders of a buyer", {"buyer": _TEXT}),
    tool("get_order", "Show an order", {"order": _TEXT}),
    tool(
        "order_item",
        "Order pieces of an item; large orders need an approver",
        {"item": _TEXT, "quantity": _NUMBER, "buyer": _TEXT, "approver": _TEXT},
        "item",
        "quantity",
        "buyer",
    ),
    tool("change_quantity", "Change an order's quantity", {"order": _TEXT, "quantity": _NUMBER}),
    tool("cancel_order", "Cancel an order", {"order": _TEXT}),
)

T = TypeVar("T")


class OfficeTools:
    """One office in one episode."""

    def __init__(self, office: Office) -> None:
        self.office = office

    def tools(self) -> list[Tool]:
        return list(TOOLS)

    def call(self, name: str, arguments: Json, timeout_s: float) -> str:
        """Carry out one call; it takes no time worth a limit. Raises ToolFailure."""
        if name not in _CALLS:
            raise ToolFailure(f"there is no such tool; tools: {', '.join(_CALLS)}")
        return _CALLS[name](self, **arguments)

    def state(self) -> dict[str, object]:
        return state_of(self.office)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    # people

    def find_people(self, name: str) -> str:
        names = {who: person.name for who, person in self.office.people.items()}
        people = {who: self.office.people[who] for who in _search("people", name, names)}
        return as_json({who: {"name": p.name, "team": p.team} for who, p in people.items()})

    def list_people(self, team: str) -> str:
        self._check_team(team)
        people = self.office.people.items()
        return as_json({who: p.name for who, p in people if plain(p.team) == plain(team)})

    def get_person(self, person: str) -> str:
        return _shown(self._person(person))

    def change_team(self, person: str, team: str) -> str:
        known = self._check_team(team)
        self.office.people[person] = replace(self._person(person), team=known)
        return f"{person} is in {known}"

    def change_manager(self, person: str, manager: str) -> str:
        self._check_other(person, manager)
        self.office.people[person] = replace(self._person(person), manager=manager)
        return f"{manager} manages {person}"

    def set_deputy(self, person: str, deputy: str) -> str:
        self._check_other(person, deputy)
        self.office.people[person] = replace(self._person(person), deputy=deputy)
        return f"{deputy} stands in for {person}"

    def mark_away(self, person: str) -> str:
        self.office.people[person] = replace(self._person(person), away=True)
        return f"{person} is away"

    def mark_back(self, person: str) -> str:
        self.office.people[person] = replace(self._person(person), away=False)
        return f"{person} is back"

    def notify(self, person: str, about: str) -> str:
        self._person(person)
        if about in self.office.tickets:
            self._ticket(about)
        elif about not in self.office.meetings:
            raise ToolFailure(f"there is no ticket or meeting {about[:40]}")
        notice = f"{person} about {about}"
        if notice in self.office.notices:
            raise ToolFailure(f"told {notice} already")
        self.office.notices[notice] = notice
        return f"told {notice}"

    # tickets

    def find_tickets(self, title: str) -> str:
        tickets = self.office.tickets
        found = _search("tickets", title, {key: ticket.title for key, ticket in tickets.items()})
        return as_json(
            {key: {"title": tickets[key].title, "status": tickets[key].status} for key in found}
        )

    def list_tickets(self, owner: str) -> str:
        self._person(owner)
        return as_json(
            {
                key: {"title": ticket.title, "status": ticket.status}
                for key, ticket in self.office.tickets.items()
                if ticket.owner == owner
            }
        )

    def get_ticket(self, ticket: str) -> str:
        return _shown(record_of("ticket", ticket, self.office.tickets))

    def open_ticket(self, title: str, priority: str, reporter: str) -> str:
        self._person(reporter)
        title = short("title", title)
        ticket = new_id("T", plain(title).rstrip("."), self.office.tickets)
        fields: dict[str, Any] = {"title": title, "priority": priority, "reporter": reporter}
        self.office.tickets[ticket] = Ticket(**fields)
        return f"opened {ticket}"

    def assign_ticket(self, ticket: str, person: str) -> str:
        changed = replace(self._open_ticket(ticket), owner=self._present(person))
        self.office.tickets[ticket] = changed
        return f"{person} owns {ticket}"

    def set_priority(self, ticket: str, priority: str) -> str:
        fields: dict[str, Any] = {"priority": priority}
        self.office.tickets[ticket] = replace(self._open_ticket(ticket), **fields)
        return f"{ticket} has the priority {priority}"

    def close_ticket(self, ticket: str, resolution: str) -> str:
        fields: dict[str, Any] = {"status": "closed", "resolution": resolution}
        self.office.tickets[ticket] = replace(self._open_ticket(ticket), **fields)
        return f"closed {ticket}"

    def reopen_ticket(self, ticket: str) -> str:
        known = self._ticket(ticket)
        if known.status == "open":
            raise ToolFailure(f"{ticket} is open already")
        self.office.tickets[ticket] = replace(known, status="open", resolution="")
        return f"{ticket} is open again"

    def tag_ticket(self, ticket: str, tag: str) -> str:
        known, tag = self._open_ticket(ticket), plain(short("tag", tag))
        self.office.tickets[ticket] = replace(known, tags=_with(known.tags, tag))
        return f"{ticket} has the tag {tag}"

    def link_tickets(self, ticket: str, other: str) -> str:
        if ticket == other:
            raise ToolFailure(f"{ticket} cannot be linked to itself")
        first, second = self._open_ticket(ticket), self._ticket(other)
        self.office.tickets[ticket] = replace(first, links=_with(first.links, other))
        self.office.tickets[other] = replace(second, links=_with(second.links, ticket))
        return f"linked {ticket} and {other}"

    # meetings

    def find_meetings(self, title: str) -> str:
        meetings = self.office.meetings
        found = _search("meetings", title, {key: m.title for key, m in meetings.items()})
        return as_json({key: _when(meetings[key]) for key in found})

    def list_meetings(self, host: str) -> str:
        self._person(host)
        meetings = self.office.meetings.items()
        return as_json({key: _when(m) for key, m in meetings if m.host == host})

    def get_meeting(self, meeting: str) -> str:
        return _shown(record_of("meeting", meeting, self.office.meetings))

    def list_rooms(self, floor: int) -> str:
        rooms = {name: room.seats for name, room in self.office.rooms.items()
                 if room.floor == floor}  # fmt: skip
        if not rooms:
            floors = sorted({room.floor for room in self.office.rooms.values()})
            raise ToolFailure(f"there is no room on floor {floor}; floors: {_words(floors)}")
        return as_json({name: {"seats": seats} for name, seats in rooms.items()})

    def get_room(self, room: str) -> str:
        return _shown(self.office.rooms[self._room(room)])

    def book_meeting(self, title: str, day: str, hour: int, room: str, host: str) -> str:
        title, name = short("title", title), self._room(room)
        self._check_free(name, day, hour)
        meeting = new_id("M", plain(title).rstrip("."), self.office.meetings)
        booked = Meeting(title, day, int(hour), name, self._present(host))
        self.office.meetings[meeting] = booked
        return f"booked {meeting}"

    def move_meeting(self, meeting: str, day: str, hour: int) -> str:
        known = self._meeting(meeting)
        self._check_free(known.room, day, hour, meeting)
        self.office.meetings[meeting] = replace(known, day=day, hour=int(hour))
        return f"{meeting} is on {day} at {int(hour)}"

    def change_room(self, meeting: str, room: str) -> str:
        known, name = self._meeting(meeting), self._room(room)
        self._check_free(name, known.day, known.hour, meeting)
        self.office.meetings[meeting] = replace(known, room=name)
        return f"{meeting} is in {name}"

    def change_host(self, meeting: str, person: str) -> str:
        changed = replace(self._meeting(meeting), host=self._present(person))
        self.office.meetings[meeting] = changed
        return f"{person} hosts {meeting}"

    def invite(self, meeting: str, person: str) -> str:
        known = self._meeting(meeting)
        self._person(person)
        self.office.meetings[meeting] = replace(known, guests=_with(known.guests, person))
        return f"{person} is invited to {meeting}"

    def uninvite(self, meeting: str, person: str) -> str:
        known = self._meeting(meeting)
        if person not in known.guests:
            raise ToolFailure(f"{person[:40]} is no guest of {meeting}: {_words(known.guests)}")
        left = tuple(guest for guest in known.guests if guest != person)
        self.office.meetings[meeting] = replace(known, guests=left)
        return f"{person} is no guest of {meeting} any more"

    def cancel_meeting(self, meeting: str) -> str:
        self.office.meetings[meeting] = replace(self._meeting(meeting), cancelled=True)
        return f"cancelled {meeting}"

    # the store

    def find_items(self, name: str) -> str:
        items = self.office.items
        found = _search("items", name, {key: item.name for key, item in items.items()})
        return as_json({key: _priced(items[key]) for key in found})

    def list_items(self, kind: str) -> str:
        items = self.office.items.items()
        listed = {key: _priced(item) for key, item in items if plain(item.kind) == plain(kind)}
        if not listed:
            kinds = sorted({item.kind for item in self.office.items.values()})
            raise ToolFailure(f"no item is of kind {kind[:40]}; kinds: {_words(kinds)}")
        return as_json(listed)

    def get_item(self, item: str) -> str:
        return _shown(record_of("item", item, self.office.items))

    def change_keeper(self, item: str, person: str) -> str:
        known = record_of("item", item, self.office.items)
        self._person(person)
        self.office.items[item] = replace(known, keeper=person)
        return f"{person} looks after {item}"

    def list_orders(self, buyer: str) -> str:
        self._person(buyer)
        return as_json(
            {
                key: {"item": order.item, "quantity": order.quantity, "cancelled": order.cancelled}
                for key, order in self.office.orders.items()
                if order.buyer == buyer
            }
        )

    def get_order(self, order: str) -> str:
        return _shown(record_of("order", order, self.office.orders))

    def order_item(self, item: str, quantity: int, buyer: str, approver: str = "") -> str:
        known = record_of("item", item, self.office.items)
        manager = self._person(buyer).manager
        _check_packs(item, known, quantity)
        cost = known.price * quantity
        if cost > APPROVED_ABOVE and (not approver or approver != manager):
            raise ToolFailure(
                f"this costs {cost} coins: above {APPROVED_ABOVE} the argument approver has to be "
                f"the manager of {buyer}"
            )
        order = new_id("O", f"{item} {buyer}", self.office.orders)
        made = Order(item, int(quantity), buyer, approver if cost > APPROVED_ABOVE else "")
        self.office.orders[order] = made
        return f"placed {order}"

    def change_quantity(self, order: str, quantity: int) -> str:
        known = self._order(order)
        _check_packs(known.item, self.office.items[known.item], quantity)
        self.office.orders[order] = replace(known, quantity=int(quantity))
        return f"{order} is for {int(quantity)} pieces"

    def cancel_order(self, order: str) -> str:
        self.office.orders[order] = replace(self._order(order), cancelled=True)
        return f"cancelled {order}"

    # what several of them look at

    def _person(self, person: str) -> Person:
        return record_of("person", person, self.office.people)

    def _present(self, person: str) -> str:
        """The id of somebody who is not away."""
        known = self._person(person)
        if known.away:
            instead = f": the deputy is {known.deputy}" if known.deputy else ""
            raise ToolFailure(f"{person} is away{instead}")
        return person

    def _check_other(self, person: str, other: str) -> None:
        self._person(person)
        self._person(other)
        if person == other:
            raise ToolFailure(f"expected two people, got {person} twice")

    def _check_team(self, team: str) -> str:
        """The team as it is written here."""
        teams = {plain(person.team): person.team for person in self.office.people.values()}
        if plain(team) not in teams:
            raise ToolFailure(
                f"there is no team {team[:40]}; teams: {_words(sorted(teams.values()))}"
            )
        return teams[plain(team)]

    def _ticket(self, ticket: str) -> Ticket:
        known = record_of("ticket", ticket, self.office.tickets)
        if known.merged_into:
            raise ToolFailure(f"{ticket} was merged into {known.merged_into}: take that one")
        return known

    def _open_ticket(self, ticket: str) -> Ticket:
        known = self._ticket(ticket)
        if known.status == "closed":
            raise ToolFailure(f"{ticket} is closed: it has to be reopened first")
        return known

    def _meeting(self, meeting: str) -> Meeting:
        known = record_of("meeting", meeting, self.office.meetings)
        if known.cancelled:
            raise ToolFailure(f"{meeting} is cancelled")
        return known

    def _room(self, room: str) -> str:
        """The room as it is written here."""
        names = {plain(name): name for name in self.office.rooms}
        if plain(room) not in names:
            raise ToolFailure(f"there is no room {room[:40]}; rooms: {_words(self.office.rooms)}")
        return names[plain(room)]

    def _check_free(self, room: str, day: str, hour: int, meeting: str = "") -> None:
        """Raises ToolFailure when another meeting has the room then."""
        taken = {
            other.room: key for key, other in self.office.meetings.items()
            if (other.day, other.hour) == (day, hour) and key != meeting and not other.cancelled
        }  # fmt: skip
        if room and room in taken:
            own = self.office.meetings[meeting].room if meeting else ""
            free = [
                f"{name} ({known.seats} seats)"
                for name, known in self.office.rooms.items() if name not in {*taken, own}
            ]  # fmt: skip
            raise ToolFailure(
                f"{room} ({self.office.rooms[room].seats} seats) is taken on {day} at {hour} by "
                f"{taken[room]}; free then: {_words(free)}"
            )

    def _order(self, order: str) -> Order:
        known = record_of("order", order, self.office.orders)
        if known.cancelled:
            raise ToolFailure(f"{order} is cancelled")
        return known


_CALLS: Mapping[str, Callable[..., str]] = MappingProxyType(
    {
        schema["function"]["name"]: getattr(OfficeTools, schema["function"]["name"])
        for schema in TOOLS
    }
)


def make(task: ToolTask, context: ToolContext) -> OfficeTools:
    """The office that the task's state describes. Raises TaskError for a wrong state."""
    return OfficeTools(read_office(task.state.get("office", {})))


def _search(kind: str, words: str, names: Mapping[str, str]) -> list[str]:
    """The ids whose names hold all of the words. Raises ToolFailure where none does."""
    wanted = plain(words).split()
    found = [
        key for key, name in names.items()
        if wanted and set(wanted) <= set(plain(name).split())
    ]  # fmt: skip
    if not found:
        known = {plain(name): name for name in names.values()}
        near = difflib.get_close_matches(plain(words), list(known), n=3, cutoff=0.7)
        like = "; like it: " + ", ".join(known[name] for name in near) if near else ""
        raise ToolFailure(f"no {kind} are called {words[:60]!r}{like}")
    return found[:_LISTED]


def _check_packs(item: str, known: Item, quantity: int) -> None:
    if quantity % known.pack:
        raise ToolFailure(
            f"{item} comes in packs of {known.pack}: expected a multiple of {known.pack} pieces"
        )


def _with(members: tuple[str, ...], new: str) -> tuple[str, ...]:
    """Members with one more, in the order of all. Raises ToolFailure when it is there already."""
    if new in members:
        raise ToolFailure(f"{new} is there already")
    return tuple(sorted([*members, new]))


def _when(meeting: Meeting) -> dict[str, object]:
    shown: dict[str, object] = {"title": meeting.title, "day": meeting.day, "hour": meeting.hour}
    return {**shown, "cancelled": True} if meeting.cancelled else shown


def _priced(item: Item) -> dict[str, object]:
    return {"name": item.name, "price": item.price, "stock": item.stock}


def _shown(record: Person | Room | Meeting | Ticket | Item | Order) -> str:
    """A record without what is empty."""
    return as_json({key: value for key, value in asdict(record).items() if value not in ("", ())})


def _words(names: Iterable[object]) -> str:
    return ", ".join(map(str, names)) or "none"
