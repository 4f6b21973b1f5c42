"""Skills with a ticket, and opening one."""

from __future__ import annotations

from clawrl_gym.envs.gui.task import Step
from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.gui.apps.serving import next_number
from clawrl_gym.envs.showcase.gui.apps.tickets import (
    CLOSED,
    DUPLICATE,
    HOST,
    ME,
    OPEN,
    WAITING,
    StoredTicket,
)
from clawrl_gym.envs.showcase.gui.composed.desk import Desk
from clawrl_gym.envs.showcase.gui.composed.skill import Args, Kind, Refused, Skill
from clawrl_gym.envs.showcase.gui.composed.ways import to, to_ticket
from clawrl_gym.envs.showcase.gui.families.family import Turns, link, press, select, write


def _ticket(desk: Desk, args: Args) -> StoredTicket:
    return desk.tickets["tickets"][str(args["ticket"])]


def _open(desk: Desk, args: Args) -> StoredTicket:
    ticket = _ticket(desk, args)
    if ticket["status"] == CLOSED:
        raise Refused
    return ticket


def edited(desk: Desk, args: Args, step: Step) -> Turns:
    return (*to_ticket(desk, args["ticket"]), (link("Edit"),), (step, press("Save")))


def _assigned(desk: Desk, args: Args) -> None:
    _open(desk, args)["owner"] = str(args["person"])


def _ranked(desk: Desk, args: Args) -> None:
    _open(desk, args)["priority"] = str(args["priority"])


def _labelled(desk: Desk, args: Args) -> None:
    _open(desk, args)["label"] = str(args["word"])


def _waiting(desk: Desk, args: Args) -> None:
    _open(desk, args)["status"] = WAITING


def _commented(desk: Desk, args: Args) -> None:
    _ticket(desk, args)["comments"].append([ME, str(args["text"])])


def _closed(desk: Desk, args: Args) -> None:
    ticket = _open(desk, args)
    ticket["status"], ticket["reason"] = CLOSED, str(args["reason"])


def _duplicate(desk: Desk, args: Args) -> None:
    ticket = _open(desk, args)
    ticket["status"], ticket["reason"] = CLOSED, DUPLICATE
    ticket["duplicate_of"] = int(args["other"])


def _reopened(desk: Desk, args: Args) -> None:
    ticket = _ticket(desk, args)
    if ticket["status"] != CLOSED:
        raise Refused
    ticket["status"], ticket["reason"], ticket["duplicate_of"] = OPEN, "", None


def _opened(desk: Desk, args: Args) -> None:
    tickets = desk.tickets["tickets"]
    tickets[next_number(tickets)] = {
        "title": str(args["title"]), "status": OPEN, "priority": str(args["priority"]),
        "owner": str(args["person"]), "label": "", "comments": [], "reason": "",
        "duplicate_of": None,
    }  # fmt: skip


def _close(reason: str, of: str, desk: Desk, args: Args) -> Turns:
    form = (select("Reason", reason), *([write("Duplicate of", of)] if of else []))
    way = (*to_ticket(desk, args["ticket"]), (link("Close"),))
    return (*way, (*form, press("Close ticket")))


def _open_new(desk: Desk, args: Args) -> Turns:
    form = (
        write("Title", str(args["title"])),
        select("Priority", str(args["priority"])),
        select("Owner", str(args["person"])),
        press("Create"),
    )
    return (*to(HOST), (link("New"),), form)


TICKETS = (
    Skill(
        "open_ticket", HOST,
        {"title": Kind.TROUBLE, "priority": Kind.PRIORITY, "person": Kind.WORKER},
        Phrasings(
            (
                "open a ticket {title} with {priority} priority, owned by {person}",
                "file a new ticket {title}: priority {priority}, owner {person}",
                "make a ticket called {title} for {person}, with the priority {priority}",
                "put in a ticket {title}; its owner is {person} and its priority {priority}",
            ),
            (
                "enter a ticket {title} that {person} owns, priority {priority}",
                "create the ticket {title} at {priority} priority and let {person} own it",
            ),
        ),
        _opened, _open_new, makes=Kind.TICKET,
    ),
    Skill(
        "assign_ticket", HOST, {"ticket": Kind.TICKET, "person": Kind.WORKER},
        Phrasings(
            (
                "give {ticket} to {person}", "make {person} the owner of {ticket}",
                "assign {ticket} to {person}", "see that {person} owns {ticket}",
            ),
            ("let {person} own {ticket}", "put {ticket} into the hands of {person}"),
        ),
        _assigned,
        lambda desk, args: edited(desk, args, select("Owner", str(args["person"]))), settles=True,
    ),
    Skill(
        "rank_ticket", HOST, {"ticket": Kind.TICKET, "priority": Kind.PRIORITY},
        Phrasings(
            (
                "set the priority of {ticket} to {priority}", "give {ticket} {priority} priority",
                "see that {ticket} has {priority} priority",
                "change the priority of {ticket} to {priority}",
            ),
            (
                "let the priority of {ticket} be {priority}",
                "bring {ticket} to {priority} priority",
            ),
        ),
        _ranked,
        lambda desk, args: edited(desk, args, select("Priority", str(args["priority"]))),
        settles=True,
    ),
    Skill(
        "tag_ticket", HOST, {"ticket": Kind.TICKET, "word": Kind.WORD},
        Phrasings(
            (
                "set the label of {ticket} to {word}", "make {word} the label of {ticket}",
                "label {ticket} with {word}", "use {word} as the label of {ticket}",
            ),
            ("let the label of {ticket} be {word}", "have {ticket} labelled with {word}"),
        ),
        _labelled,
        lambda desk, args: edited(desk, args, write("Label", str(args["word"]))), settles=True,
    ),
    Skill(
        "park_ticket", HOST, {"ticket": Kind.TICKET},
        Phrasings(
            (
                "set {ticket} to waiting", "change the status of {ticket} to waiting",
                "put {ticket} on waiting", "see that {ticket} is waiting",
            ),
            (
                "let the status of {ticket} be waiting",
                "have the status of {ticket} changed to waiting",
            ),
        ),
        _waiting, lambda desk, args: edited(desk, args, select("Status", WAITING)), settles=True,
    ),
    Skill(
        "comment_ticket", HOST, {"ticket": Kind.TICKET, "text": Kind.TEXT},
        Phrasings(
            (
                "comment on {ticket}: {text}", "add the comment {text} to {ticket}",
                "write the comment {text} on {ticket}", "leave {text} as a comment on {ticket}",
            ),
            ("let {ticket} have the comment {text}", "note {text} in a comment on {ticket}"),
        ),
        _commented,
        lambda desk, args: (
            *to_ticket(desk, args["ticket"]),
            (write("Comment", str(args["text"])), press("Add comment")),
        ),
    ),
    Skill(
        "close_ticket", HOST, {"ticket": Kind.TICKET, "reason": Kind.REASON},
        Phrasings(
            (
                "close {ticket} as {reason}", "close {ticket}; the reason is {reason}",
                "mark {ticket} as closed with the reason {reason}",
                "close {ticket}, saying {reason}",
            ),
            ("have {ticket} closed, reason {reason}", "settle {ticket} by closing it as {reason}"),
        ),
        _closed, lambda desk, args: _close(str(args["reason"]), "", desk, args),
    ),
    Skill(
        "merge_ticket", HOST, {"ticket": Kind.TICKET, "other": Kind.TICKET},
        Phrasings(
            (
                "close {ticket} as a duplicate of {other}",
                "mark {ticket} as a duplicate of {other} and close it",
                "close {ticket}: it is a duplicate of {other}",
                "as {ticket} only repeats {other}, close it as a duplicate of that one",
            ),
            (
                "have {ticket} closed as a duplicate of {other}",
                "let {ticket} be closed as the duplicate that it is of {other}",
            ),
        ),
        _duplicate,
        lambda desk, args: (
            *to_ticket(desk, args["other"]),  # which shows its number
            *_close(DUPLICATE, str(args["other"]), desk, args),
        ),
    ),
    Skill(
        "reopen_ticket", HOST, {"ticket": Kind.TICKET},
        Phrasings(
            (
                "open {ticket} again", "reopen {ticket}", "take {ticket} up again by reopening it",
                "undo the closing of {ticket}",
            ),
            ("let {ticket} be open again", "have {ticket} reopened"),
        ),
        _reopened, lambda desk, args: (*to_ticket(desk, args["ticket"]), (press("Open again"),)),
    ),
)  # fmt: skip
