"""Families about tickets: one that is open, then search, counts, duplicates, and handing over."""

from __future__ import annotations

import copy
from typing import TypedDict, Unpack

from clawrl_gym.envs.draw import STEMS, WORDS, Draw
from clawrl_gym.envs.gui.task import Step
from clawrl_gym.envs.showcase.gui.apps.tickets import (
    CLOSED,
    DUPLICATE,
    HOST,
    ME,
    NOBODY,
    OPEN,
    PRIORITIES,
    REASONS,
    StoredTicket,
    Tickets,
    TicketsWorld,
)
from clawrl_gym.envs.showcase.gui.families.family import (
    Application,
    Family,
    TaskContent,
    Turns,
    answer,
    done,
    give_up,
    link,
    press,
    select,
    write,
)

SITE = Application(HOST, Tickets)

PEOPLE = ("Ana", "Ben", "Eva", "Ida", "Kim", "Lea", "Max", "Sam", "Tom", "Zoe")
TROUBLES = ("broken", "lost", "slow", "cold", "wrong", "old", "loud", "dirty", "empty")


def draw_world(draw: Draw, count: int, people: int = 3) -> TicketsWorld:
    """So many open tickets, with different titles and numbers."""
    names = draw.some(PEOPLE, people)
    numbers = sorted(draw.some(range(10, 100), count))
    tickets: dict[str, StoredTicket] = {
        str(number): {
            "title": f"{draw.pick(TROUBLES)} {subject}",
            "status": draw.pick(("open", "waiting")),
            "priority": draw.pick(PRIORITIES),
            "owner": draw.pick(names),
            "label": "",
            "comments": [],
            "reason": "",
            "duplicate_of": None,
        }
        for number, subject in zip(numbers, draw.some(STEMS, count), strict=True)
    }
    return {"people": names, "tickets": tickets}


def draw_ticket(draw: Draw, comments: int = 1) -> tuple[TicketsWorld, str]:
    """A few tickets, and the number of one that some comments were made on."""
    world = draw_world(draw, 3)
    number = draw.pick(list(world["tickets"]))
    ticket = world["tickets"][number]
    ticket["label"] = draw.pick(("", draw.pick(WORDS)))
    for _ in range(comments):
        ticket["comments"].append([draw.pick(world["people"]), " ".join(draw.some(WORDS, 2))])
    return world, number


class TicketChange(TypedDict, total=False):
    """Fields of a ticket that a task changes."""

    title: str
    status: str
    priority: str
    owner: str
    label: str
    comments: list[list[str]]
    reason: str
    duplicate_of: int | None


def changed(world: TicketsWorld, number: str, **fields: Unpack[TicketChange]) -> TicketsWorld:
    """The world with these fields of a ticket set."""
    after = copy.deepcopy(world)
    after["tickets"][number] = {**after["tickets"][number], **fields}
    return after


def commented(world: TicketsWorld, number: str, words: str) -> TicketsWorld:
    comments = [*world["tickets"][number]["comments"], [ME, words]]
    return changed(world, number, comments=comments)


def other_than(draw: Draw, choices: tuple[str, ...] | list[str], now: str) -> str:
    return draw.pick([choice for choice in choices if choice != now])


def draw_words(draw: Draw) -> str:
    return " ".join(draw.some(WORDS, draw.between(1, 2)))


def unused(world: TicketsWorld) -> list[str]:
    """Things that no ticket is about."""
    about = {ticket["title"].partition(" ")[2] for ticket in world["tickets"].values()}
    return [stem for stem in STEMS if stem not in about]


def owner(draw: Draw) -> TaskContent:
    """Tell a ticket's owner or status: a line of the list shows it."""
    world = draw_world(draw, draw.between(3, 4))
    number = draw.pick(list(world["tickets"]))
    ticket = world["tickets"][number]
    is_owner = draw.pick(("owner", "status")) == "owner"
    field, value = ("owner", ticket["owner"]) if is_owner else ("status", ticket["status"])
    name, short = draw.pick(((f"ticket {number}", number), (f"the {ticket['title']}",) * 2))
    instruction = draw.pick(
        ("Who is the owner of {t}?", "Tell me the owner of {t}.")
        if is_owner
        else ("What is the status of {t}?", "Tell me the status of {t}.")
    ).format(t=name)
    return SITE.task(f"{field}/{short}", instruction, world, (answer(value),), answer=value)


def comment(draw: Draw) -> TaskContent:
    """A few words on the ticket that is open."""
    world, number = draw_ticket(draw)
    words = draw_words(draw)
    instruction = draw.pick(
        (
            "Add the comment {w}.",
            "Comment on this ticket: {w}",
            "Write the comment {w} here.",
            "Please say {w} in a comment.",
        )
    ).format(w=words)
    return SITE.task(
        words,
        instruction,
        world,
        ((write("Comment", words), press("Add comment")), done()),
        after=commented(world, number, words),
        path=f"ticket/{number}",
    )


def assign(draw: Draw) -> TaskContent:
    """Somebody else is to do it."""
    world, number = draw_ticket(draw)
    person = other_than(draw, world["people"], world["tickets"][number]["owner"])
    instruction = draw.pick(
        (
            "Make {p} the owner of ticket {n}.",
            "Give ticket {n} to {p}.",
            "Ticket {n} is for {p} now.",
            "The owner of ticket {n} should be {p}.",
        )
    ).format(n=number, p=person)
    after = changed(world, number, owner=person)
    return _edited(number, f"{number}/{person}", instruction, world, select("Owner", person), after)


def priority(draw: Draw) -> TaskContent:
    """Raise or lower a priority."""
    world, number = draw_ticket(draw)
    level = other_than(draw, PRIORITIES, world["tickets"][number]["priority"])
    instruction = draw.pick(
        (
            "Set the priority of ticket {n} to {p}.",
            "Ticket {n} should have {p} priority.",
            "Change ticket {n} to {p} priority.",
        )
    ).format(n=number, p=level)
    after = changed(world, number, priority=level)
    return _edited(
        number, f"{number}/{level}", instruction, world, select("Priority", level), after
    )


def label(draw: Draw) -> TaskContent:
    """One word to find it by."""
    world, number = draw_ticket(draw)
    word = other_than(draw, WORDS, world["tickets"][number]["label"])
    instruction = draw.pick(
        (
            "Put the label {w} on ticket {n}.",
            "Set the label of ticket {n} to {w}.",
            "Ticket {n} needs the label {w}.",
        )
    ).format(n=number, w=word)
    after = changed(world, number, label=word)
    return _edited(number, f"{number}/{word}", instruction, world, write("Label", word), after)


def close(draw: Draw) -> TaskContent:
    """Close a ticket, for a reason."""
    world, number = draw_ticket(draw)
    reason = draw.pick([reason for reason in REASONS if reason != DUPLICATE])
    instruction = draw.pick(
        (
            "Close ticket {n}: it is {r}.",
            "Ticket {n} is {r}: close it.",
            "Please close ticket {n} as {r}.",
        )
    ).format(n=number, r=reason)
    return SITE.task(
        f"{number}/{reason}",
        instruction,
        world,
        ((link("Close"),), (select("Reason", reason), press("Close ticket")), done()),
        after=changed(world, number, status=CLOSED, reason=reason),
        path=f"ticket/{number}",
    )


def new(draw: Draw) -> TaskContent:
    """A ticket that is not there yet."""
    world = draw_world(draw, 3)
    title = f"{draw.pick(TROUBLES)} {draw.pick(unused(world))}"
    person = draw.pick(world["people"])
    instruction = draw.pick(
        (
            "Make a new ticket for {p}: {t}",
            "Add the new ticket {t}. The owner is {p}.",
            "Start a new ticket {t} with the owner {p}.",
        )
    ).format(t=title, p=person)
    number = str(max(map(int, world["tickets"])) + 1)
    ticket = StoredTicket(
        title=title, status=OPEN, priority="normal", owner=person, label="",
        comments=[], reason="", duplicate_of=None,
    )  # fmt: skip
    return SITE.task(
        f"{title}/{person}",
        instruction,
        world,
        ((link("New"),), (write("Title", title), select("Owner", person), press("Create")), done()),
        after={**world, "tickets": {**world["tickets"], number: ticket}},
    )


def _edited(
    number: str,
    key: str,
    instruction: str,
    world: TicketsWorld,
    step: Step,
    after: TicketsWorld,
) -> TaskContent:
    """One field of the ticket that is open."""
    return SITE.task(
        key,
        instruction,
        world,
        ((link("Edit"),), (step, press("Save")), done()),
        after=after,
        path=f"ticket/{number}",
    )


def find(draw: Draw) -> TaskContent:
    """A ticket that is not in sight; sometimes it is nowhere."""
    world = draw_world(draw, 9)
    subject, words = draw.pick(unused(world)), draw_words(draw)
    title = f"{draw.pick(TROUBLES)} {subject}"
    searched = _searched(write("Words", title))
    feasible = draw.below(2) == 0
    instruction = draw.pick(
        ("Find the ticket {t} and add the comment {w}.",
         "There is a ticket {t}. Write the comment {w} there.",
         "Comment on the ticket {t}: {w}")
    ).format(t=title, w=words)  # fmt: skip
    if not feasible:
        turns: Turns = (*searched, give_up("There is no such ticket."))
        return SITE.task(f"{title}/{words}", instruction, world, turns, feasible=False)
    number = draw.pick(list(world["tickets"]))
    world["tickets"][number]["title"] = title
    turns = (*searched, (link(title),), (write("Comment", words), press("Add comment")), done())
    after = commented(world, number, words)
    return SITE.task(f"{title}/{words}", instruction, world, turns, after=after)


def hand(draw: Draw) -> TaskContent:
    """A ticket that goes to somebody who sometimes does not work here."""
    world = draw_world(draw, 5)
    number = draw.pick(list(world["tickets"]))
    ticket = world["tickets"][number]
    feasible = draw.below(2) == 0
    strangers = [name for name in PEOPLE if name not in world["people"]]
    person = (
        other_than(draw, world["people"], ticket["owner"]) if feasible else draw.pick(strangers)
    )
    phrasing = draw.pick(
        ("The {t} goes to {p} and has {r} priority.",
         "Make {p} the owner of the {t}, with {r} priority.")
    )  # fmt: skip
    level = other_than(draw, PRIORITIES, ticket["priority"])
    instruction = phrasing.format(t=ticket["title"], p=person, r=level)
    key = f"{ticket['title']}/{person}/{level}"
    opened: Turns = ((link(ticket["title"]),), (link("Edit"),))
    if not feasible:
        turns = (*opened, give_up(f"There is no {person}."))
        return SITE.task(key, instruction, world, turns, feasible=False)
    turns = (
        *opened,
        (select("Priority", level), select("Owner", person), press("Save")),
        done(),
    )
    after = changed(world, number, owner=person, priority=level)
    return SITE.task(key, instruction, world, turns, after=after)


def count(draw: Draw) -> TaskContent:
    """Count somebody's tickets, on two pages of a list."""
    world = draw_world(draw, draw.between(8, 10), people=4)
    person, word = draw.pick(world["people"]), draw.pick(TROUBLES)
    for number in draw.some(list(world["tickets"]), draw.between(3, 5)):
        subject = world["tickets"][number]["title"].partition(" ")[2]
        world["tickets"][number]["title"] = f"{word} {subject}"
    matches = [
        ticket
        for ticket in world["tickets"].values()
        if ticket["owner"] == person and ticket["title"].startswith(f"{word} ")
    ]
    instruction = draw.pick(
        ("How many tickets of {p} are about something {w}?",
         "Count the tickets of {p} with the word {w}.")
    ).format(p=person, w=word)  # fmt: skip
    turns = (*_searched(write("Words", word), select("Owner", person)), answer(len(matches)))
    return SITE.task(f"{person}/{word}", instruction, world, turns, answer=str(len(matches)))


def duplicate(draw: Draw) -> TaskContent:
    """Two tickets about the same thing: the later one is closed."""
    world = draw_world(draw, 8)
    first, second = sorted(draw.some(list(world["tickets"]), 2), key=int)
    title = world["tickets"][first]["title"]
    world["tickets"][second]["title"] = title
    instruction = draw.pick(
        ("There are two tickets {t}. Close the one with the higher number as a duplicate.",
         "Two tickets are about the {t}. The higher number is a duplicate: close it.")
    ).format(t=title)  # fmt: skip
    turns = (
        *_searched(write("Words", title)),
        (link(title, nth=1),),
        (link("Close"),),
        (select("Reason", DUPLICATE), write("Duplicate of", first), press("Close ticket")),
        done(),
    )
    after = changed(world, second, status=CLOSED, reason=DUPLICATE, duplicate_of=int(first))
    return SITE.task(title, instruction, world, turns, after=after)


def away(draw: Draw) -> TaskContent:
    """All tickets of somebody who is away go to somebody else."""
    world = draw_world(draw, 8, people=4)
    absent, person = draw.some(world["people"], 2)
    colleagues = [name for name in world["people"] if name != absent]
    numbers = draw.some(list(world["tickets"]), 2)
    for number, ticket in world["tickets"].items():
        ticket["owner"] = absent if number in numbers else draw.pick(colleagues)
    phrasing = draw.pick(
        ("{a} is away. Give all tickets of {a} with the word {w} to {p}.",
         "All tickets of {a} with the word {w} go to {p}, as {a} is away.")
    )  # fmt: skip
    word = draw.pick(TROUBLES)
    turns: list[tuple[Step, ...]] = []
    after = world
    for number in numbers:
        title = f"{word} {world['tickets'][number]['title'].partition(' ')[2]}"
        world["tickets"][number]["title"] = title
    for number in numbers:
        turns += _searched(write("Words", word), select("Owner", absent))
        turns += [(link(world["tickets"][number]["title"]),), (link("Edit"),)]
        turns += [(select("Owner", person), press("Save"))]
        after = changed(after, number, owner=person)
    key = f"{absent}/{person}/{word}"
    instruction = phrasing.format(a=absent, w=word, p=person)
    return SITE.task(key, instruction, world, (*turns, done()), after=after)


def again(draw: Draw) -> TaskContent:
    """A ticket that was closed too early, and is nobody's any more."""
    world, number = draw_ticket(draw, comments=0)
    world["tickets"][number] |= {"status": CLOSED, "reason": REASONS[draw.below(2)]}
    words = draw_words(draw)
    instruction = draw.pick(
        ("Open ticket {n} again, with the comment {w}, and with {o} as its owner.",
         "Ticket {n} is not settled: open it again, say {w} in a comment, and make {o} its owner.")
    ).format(n=number, w=words, o=NOBODY)  # fmt: skip
    turns = (
        (link(world["tickets"][number]["title"]),),
        (press("Open again"),),
        (write("Comment", words), press("Add comment")),
        (link("Edit"),),
        (select("Owner", NOBODY), press("Save")),
        done(),
    )
    after = changed(commented(world, number, words), number, status=OPEN, reason="", owner=NOBODY)
    return SITE.task(f"{number}/{words}", instruction, world, turns, after=after)


def _searched(*fields: Step) -> Turns:
    return ((link("Search"),), (*fields, press("Find")))


TICKETS = (
    Family("tickets_again", again),
    Family("tickets_assign", assign, easy=True),
    Family("tickets_away", away),
    Family("tickets_close", close, easy=True),
    Family("tickets_comment", comment, easy=True),
    Family("tickets_count", count),
    Family("tickets_duplicate", duplicate),
    Family("tickets_find", find, may_be_infeasible=True),
    Family("tickets_hand", hand, may_be_infeasible=True),
    Family("tickets_label", label, easy=True),
    Family("tickets_new", new, easy=True),
    Family("tickets_owner", owner, easy=True),
    Family("tickets_priority", priority, easy=True),
)
