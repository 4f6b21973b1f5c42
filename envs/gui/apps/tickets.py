"""A ticket system: a list with search, tickets with comments, edited, closed and opened again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from clawrl_gym.envs.gui.apps.html import (
    Html,
    bullets,
    button,
    choice,
    form,
    heading,
    hidden,
    link,
    notice,
    page,
    paragraph,
    path_to,
    see_other,
    table,
    text_field,
)
from clawrl_gym.envs.gui.apps.serving import Refused, filled, optional, serve, whole
from clawrl_gym.envs.gui.site import Request, Response

HOST = "tickets"
TITLE = "Tickets"
MENU = (link(TITLE, "/"), link("New", "/new"), link("Search", "/search"))
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


class Tickets:
    """The site. Its world has `people`, and `tickets` as above by number (in digits)."""

    def __init__(self, world: Mapping[str, Any]) -> None:
        self._people: list[str] = [NOBODY, *world["people"]]
        self._tickets = {int(number): Ticket(**it) for number, it in world["tickets"].items()}

    def handle(self, request: Request) -> Response:
        pages = {
            "": self._list,
            "new": self._new,
            "search": self._search,
            "found": self._found,
            "ticket": self._ticket,
            "edit": self._edit,
            "close": self._close,
        }
        changes = {
            "new": self._create,
            "comment": self._comment,
            "edit": self._save,
            "close": self._closed,
            "reopen": self._reopen,
        }
        return serve(request, pages, changes, TITLE, MENU)

    def state(self) -> Any:
        return {str(number): asdict(ticket) for number, ticket in self._tickets.items()}

    def _list(self, request: Request, rest: str) -> Response:
        _end(rest)
        return self._shown(TITLE, list(self._tickets), request, {})

    def _found(self, request: Request, rest: str) -> Response:
        _end(rest)
        asked = {name: request.query.get(name, "").strip() for name in ("q", "status", "owner")}
        found = [number for number, it in self._tickets.items() if _fits(it, asked)]
        return self._shown("Found", found, request, asked)

    def _shown(
        self, title: str, numbers: Sequence[int], request: Request, asked: Mapping[str, str]
    ) -> Response:
        first = whole(request.query.get("from", "0"), "The place in the list", 0, MAX_TICKETS)
        rows = [self._row(number) for number in numbers[first : first + PAGE_SIZE]]
        shown = table(rows, ("Number", "Title", "Status", "Owner"))
        blocks = [shown if rows else notice("There is no such ticket.")]
        if first + PAGE_SIZE < len(numbers):
            rest = path_to(request.path, **asked, **{"from": first + PAGE_SIZE})
            blocks.append(paragraph(link("More", rest)))
        return page(title, heading(title), *blocks, menu=MENU)

    def _row(self, number: int) -> tuple[str | Html, ...]:
        ticket = self._tickets[number]
        return str(number), link(ticket.title, f"/ticket/{number}"), ticket.status, ticket.owner

    def _search(self, request: Request, rest: str) -> Response:
        _end(rest)
        fields = (
            text_field("Words", "q"),
            choice("Status", "status", (ANY, OPEN, WAITING, CLOSED)),
            choice("Owner", "owner", (ANY, *self._people)),
            button("Find"),
        )
        asked = form("/found", *(paragraph(field) for field in fields), method="get")
        return page("Search", heading("Search"), asked, menu=MENU)

    def _ticket(self, request: Request, rest: str) -> Response:
        number, ticket = self._known(rest)
        title = f"{number} {ticket.title}"
        facts = [f"Status: {ticket.status}", f"Priority: {ticket.priority}"]
        facts.append(f"Owner: {ticket.owner}")
        facts += [f"Label: {ticket.label}"] if ticket.label else []
        blocks = [paragraph(fact) for fact in facts]
        if ticket.reason:
            blocks.append(paragraph(f"Closed: {ticket.reason}", *self._original(ticket)))
        if ticket.comments:
            blocks.append(bullets([f"{who}: {text}"] for who, text in ticket.comments))
        comment = paragraph(text_field("Comment", "text"), button("Add comment"))
        blocks.append(form(f"/comment/{number}", comment))
        if ticket.status == CLOSED:
            again = paragraph(hidden("number", number), button("Open again"))
            blocks.append(form(f"/reopen/{number}", again))
        else:
            both = link("Edit", f"/edit/{number}"), link("Close", f"/close/{number}")
            blocks.append(paragraph(*both))
        return page(title, heading(title), *blocks, menu=MENU)

    def _original(self, ticket: Ticket) -> tuple[str | Html, ...]:
        of = ticket.duplicate_of
        return () if of is None else ("of", link(str(of), f"/ticket/{of}"))

    def _comment(self, request: Request, rest: str) -> Response:
        number, ticket = self._known(rest)
        ticket.comments.append([ME, _line(filled(request, "text", "The comment"))])
        return see_other(f"/ticket/{number}")

    def _new(self, request: Request, rest: str) -> Response:
        _end(rest)
        fields = (
            text_field("Title", "title"),
            choice("Priority", "priority", PRIORITIES, "normal"),
            choice("Owner", "owner", self._people),
            button("Create"),
        )
        sent = form("/new", *(paragraph(field) for field in fields))
        return page("New ticket", heading("New ticket"), sent, menu=MENU)

    def _create(self, request: Request, rest: str) -> Response:
        _end(rest)
        if len(self._tickets) >= MAX_TICKETS:
            raise Refused("There are too many tickets.")
        title = _line(filled(request, "title", "The title"))
        priority = _one_of(request, "priority", PRIORITIES)
        owner = _one_of(request, "owner", self._people)
        number = max(self._tickets, default=0) + 1
        self._tickets[number] = Ticket(title, OPEN, priority, owner, "", [], "", None)
        return see_other(f"/ticket/{number}")

    def _edit(self, request: Request, rest: str) -> Response:
        number, ticket = self._unclosed(rest)
        fields = (
            choice("Status", "status", (OPEN, WAITING), ticket.status),
            choice("Priority", "priority", PRIORITIES, ticket.priority),
            choice("Owner", "owner", self._people, ticket.owner),
            text_field("Label", "label", ticket.label),
        )
        below = paragraph(button("Save"), link("Cancel", f"/ticket/{number}"))
        sent = form(f"/edit/{number}", *(paragraph(field) for field in fields), below)
        return page(f"Edit {number}", heading(f"Edit {number}"), sent, menu=MENU)

    def _save(self, request: Request, rest: str) -> Response:
        number, ticket = self._unclosed(rest)
        status = _one_of(request, "status", (OPEN, WAITING))
        priority = _one_of(request, "priority", PRIORITIES)
        owner = _one_of(request, "owner", self._people)
        label = _line(optional(request, "label"))
        ticket.status, ticket.priority, ticket.owner, ticket.label = status, priority, owner, label
        return see_other(f"/ticket/{number}")

    def _close(self, request: Request, rest: str) -> Response:
        number, _ = self._unclosed(rest)
        fields = (choice("Reason", "reason", REASONS), text_field("Duplicate of", "of"))
        below = paragraph(button("Close ticket"), link("Cancel", f"/ticket/{number}"))
        sent = form(f"/close/{number}", *(paragraph(field) for field in fields), below)
        return page(f"Close {number}", heading(f"Close {number}"), sent, menu=MENU)

    def _closed(self, request: Request, rest: str) -> Response:
        number, ticket = self._unclosed(rest)
        reason, of = _one_of(request, "reason", REASONS), optional(request, "of")
        if bool(of) != (reason == DUPLICATE):
            raise Refused("A duplicate, and nothing else, needs the number of the other ticket.")
        original = self._known(of)[0] if of else None
        if original == number:
            raise Refused("A ticket cannot be a duplicate of itself.")
        ticket.status, ticket.reason, ticket.duplicate_of = CLOSED, reason, original
        return see_other(f"/ticket/{number}")

    def _reopen(self, request: Request, rest: str) -> Response:
        number, ticket = self._known(rest)
        if ticket.status != CLOSED:
            raise Refused(f"Ticket {number} is not closed.")
        ticket.status, ticket.reason, ticket.duplicate_of = OPEN, "", None
        return see_other(f"/ticket/{number}")

    def _known(self, number: str) -> tuple[int, Ticket]:
        plain = number.isascii() and number.isdigit() and len(number) <= 6
        if not plain or int(number) not in self._tickets:
            raise Refused("There is no such ticket.", 404)
        return int(number), self._tickets[int(number)]

    def _unclosed(self, number: str) -> tuple[int, Ticket]:
        known, ticket = self._known(number)
        if ticket.status == CLOSED:
            raise Refused(f"Ticket {known} is closed: open it again to change it.")
        return known, ticket


def _fits(ticket: Ticket, asked: Mapping[str, str]) -> bool:
    words = asked["q"].casefold().split()
    return (
        all(word in ticket.title.casefold() for word in words)
        and asked["status"] in ("", ANY, ticket.status)
        and asked["owner"] in ("", ANY, ticket.owner)
    )


def _line(text: str) -> str:
    if len(text) > LONGEST_LINE or "\n" in text:
        raise Refused(f"This must be one line of at most {LONGEST_LINE} characters.")
    return text


def _one_of(request: Request, name: str, options: Sequence[str]) -> str:
    sent = filled(request, name, name.capitalize())
    if sent not in options:
        raise Refused(f"{name.capitalize()} must be one of: {', '.join(options)}.")
    return sent


def _end(rest: str) -> None:
    if rest:
        raise Refused("There is no such page.", 404)
