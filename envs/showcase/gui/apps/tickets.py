"""A ticket system: a list with search, tickets with comments, edited, closed and opened again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypedDict

from clawrl_gym.envs.gui.site import Request, Response
from clawrl_gym.envs.showcase.gui.apps.serving import (
    RequestRefused,
    filled,
    optional,
    page,
    path_to,
    refuse_rest,
    see_other,
    serve,
    whole,
)

HOST = "tickets"
TITLE = "Tickets"
MENU = ((TITLE, "/"), ("New", "/new"), ("Search", "/search"))
PRIORITIES = ("low", "normal", "high")
NOBODY = "nobody"
ANY = "any"
OPEN, WAITING, CLOSED = "open", "waiting", "closed"
DUPLICATE = "duplicate"
REASONS = ("solved", "not ours", DUPLICATE)
ME = "You"
PAGE_SIZE = 6
"""Tickets of one page of a list."""
MAX_TICKETS = 500
LONGEST_LINE = 80
"""Characters of a title, a label or a comment."""


@dataclass(slots=True)
class Ticket:
    """One ticket."""

    title: str
    status: str
    priority: str
    owner: str
    label: str
    comments: list[list[str]]
    """Who, and what."""
    reason: str
    """Why it is closed, or nothing."""
    duplicate_of: int | None


class StoredTicket(TypedDict):
    """The fields of `Ticket`."""

    title: str
    status: str
    priority: str
    owner: str
    label: str
    comments: list[list[str]]
    reason: str
    duplicate_of: int | None


class TicketsWorld(TypedDict):
    """Stored state: names, and tickets by number in digits."""

    people: list[str]
    tickets: dict[str, StoredTicket]


class Tickets:
    """The site."""

    def __init__(self, world: TicketsWorld) -> None:
        self._people = [NOBODY, *world["people"]]
        self._tickets = {
            int(number): Ticket(**stored) for number, stored in world["tickets"].items()
        }

    def handle(self, request: Request) -> Response:
        pages = {
            "": self._start_page,
            "new": self._new_page,
            "search": self._search_page,
            "found": self._matches_page,
            "ticket": self._ticket_page,
            "edit": self._edit_page,
            "close": self._close_page,
        }
        changes = {
            "new": self._create,
            "comment": self._comment,
            "edit": self._save,
            "close": self._close,
            "reopen": self._reopen,
        }
        return serve(request, pages, changes, TITLE, MENU)

    def state(self) -> object:
        return {str(number): asdict(ticket) for number, ticket in self._tickets.items()}

    def _start_page(self, request: Request, rest: str) -> Response:
        refuse_rest(rest)
        return self._list_page(TITLE, list(self._tickets), request, {})

    def _matches_page(self, request: Request, rest: str) -> Response:
        refuse_rest(rest)
        search = {name: request.query.get(name, "").strip() for name in ("q", "status", "owner")}
        numbers = [number for number, ticket in self._tickets.items() if _fits(ticket, search)]
        return self._list_page("Found", numbers, request, search)

    def _list_page(
        self, title: str, numbers: Sequence[int], request: Request, search: Mapping[str, str]
    ) -> Response:
        first = whole(request.query.get("from", "0"), "The place in the list", 0, MAX_TICKETS)
        end = first + PAGE_SIZE
        return page(
            "tickets/list",
            title,
            MENU,
            tickets=[(number, self._tickets[number]) for number in numbers[first:end]],
            more=path_to(request.path, **search, **{"from": end}) if end < len(numbers) else "",
        )

    def _search_page(self, request: Request, rest: str) -> Response:
        refuse_rest(rest)
        return page(
            "tickets/search",
            "Search",
            MENU,
            statuses=(ANY, OPEN, WAITING, CLOSED),
            owners=(ANY, *self._people),
        )

    def _ticket_page(self, request: Request, rest: str) -> Response:
        number, ticket = self._ticket(rest)
        return page(
            "tickets/ticket",
            f"{number} {ticket.title}",
            MENU,
            number=number,
            ticket=ticket,
            is_closed=ticket.status == CLOSED,
        )

    def _comment(self, request: Request, rest: str) -> Response:
        number, ticket = self._ticket(rest)
        ticket.comments.append([ME, _line(filled(request, "text", "The comment"))])
        return see_other(f"/ticket/{number}")

    def _new_page(self, request: Request, rest: str) -> Response:
        refuse_rest(rest)
        return page("tickets/new", "New ticket", MENU, priorities=PRIORITIES, owners=self._people)

    def _create(self, request: Request, rest: str) -> Response:
        refuse_rest(rest)
        if len(self._tickets) >= MAX_TICKETS:
            raise RequestRefused("There are too many tickets.")
        title = _line(filled(request, "title", "The title"))
        priority = _one_of(request, "priority", PRIORITIES)
        owner = _one_of(request, "owner", self._people)
        number = max(self._tickets, default=0) + 1
        self._tickets[number] = Ticket(title, OPEN, priority, owner, "", [], "", None)
        return see_other(f"/ticket/{number}")

    def _edit_page(self, request: Request, rest: str) -> Response:
        number, ticket = self._open_ticket(rest)
        return page(
            "tickets/edit",
            f"Edit {number}",
            MENU,
            number=number,
            ticket=ticket,
            statuses=(OPEN, WAITING),
            priorities=PRIORITIES,
            owners=self._people,
        )

    def _save(self, request: Request, rest: str) -> Response:
        number, ticket = self._open_ticket(rest)
        status = _one_of(request, "status", (OPEN, WAITING))
        priority = _one_of(request, "priority", PRIORITIES)
        owner = _one_of(request, "owner", self._people)
        label = _line(optional(request, "label"))
        ticket.status, ticket.priority, ticket.owner, ticket.label = status, priority, owner, label
        return see_other(f"/ticket/{number}")

    def _close_page(self, request: Request, rest: str) -> Response:
        number, _ = self._open_ticket(rest)
        return page("tickets/close", f"Close {number}", MENU, number=number, reasons=REASONS)

    def _close(self, request: Request, rest: str) -> Response:
        number, ticket = self._open_ticket(rest)
        reason, of = _one_of(request, "reason", REASONS), optional(request, "of")
        if bool(of) != (reason == DUPLICATE):
            raise RequestRefused(
                "A duplicate, and nothing else, needs the number of the other ticket."
            )
        original = self._ticket(of)[0] if of else None
        if original == number:
            raise RequestRefused("A ticket cannot be a duplicate of itself.")
        ticket.status, ticket.reason, ticket.duplicate_of = CLOSED, reason, original
        return see_other(f"/ticket/{number}")

    def _reopen(self, request: Request, rest: str) -> Response:
        number, ticket = self._ticket(rest)
        if ticket.status != CLOSED:
            raise RequestRefused(f"Ticket {number} is not closed.")
        ticket.status, ticket.reason, ticket.duplicate_of = OPEN, "", None
        return see_other(f"/ticket/{number}")

    def _ticket(self, number: str) -> tuple[int, Ticket]:
        plain = number.isascii() and number.isdigit() and len(number) <= 6
        if not plain or int(number) not in self._tickets:
            raise RequestRefused("There is no such ticket.", 404)
        return int(number), self._tickets[int(number)]

    def _open_ticket(self, number: str) -> tuple[int, Ticket]:
        """A ticket that can be changed, by its number."""
        digits, ticket = self._ticket(number)
        if ticket.status == CLOSED:
            raise RequestRefused(f"Ticket {digits} is closed: open it again to change it.")
        return digits, ticket


def _fits(ticket: Ticket, search: Mapping[str, str]) -> bool:
    words = search["q"].casefold().split()
    return (
        all(word in ticket.title.casefold() for word in words)
        and search["status"] in ("", ANY, ticket.status)
        and search["owner"] in ("", ANY, ticket.owner)
    )


def _line(text: str) -> str:
    if len(text) > LONGEST_LINE or "\n" in text:
        raise RequestRefused(f"This must be one line of at most {LONGEST_LINE} characters.")
    return text


def _one_of(request: Request, name: str, options: Sequence[str]) -> str:
    option = filled(request, name, name.capitalize())
    if option not in options:
        raise RequestRefused(f"{name.capitalize()} must be one of: {', '.join(options)}.")
    return option
