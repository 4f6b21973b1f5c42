"""Families about many tickets: search, count, duplicates, and handing over."""

from __future__ import annotations

from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.gui.apps.tickets import (
    CLOSED,
    DUPLICATE,
    NOBODY,
    OPEN,
    PRIORITIES,
    REASONS,
)
from clawrl_gym.envs.gui.families.family import (
    Family,
    TaskDraft,
    Turns,
    answer,
    done,
    give_up,
    link,
    press,
    select,
    write,
)
from clawrl_gym.envs.gui.families.tickets_world import (
    PEOPLE,
    TROUBLES,
    changed,
    commented,
    draw_ticket,
    draw_words,
    draw_world,
    other_than,
    task_draft,
    unused,
)
from clawrl_gym.envs.gui.task import Step


def find(draw: Draw) -> TaskDraft:
    """A ticket that is not in sight; sometimes it is nowhere."""
    world = draw_world(draw, 9)
    thing, words = draw.pick(unused(world)), draw_words(draw)
    title = f"{draw.pick(TROUBLES)} {thing}"
    searched = _searched(write("Words", title))
    feasible = draw.below(2) == 0
    told = draw.pick(
        ("Find the ticket {t} and add the comment {w}.",
         "There is a ticket {t}. Write the comment {w} there.",
         "Comment on the ticket {t}: {w}")
    ).format(t=title, w=words)  # fmt: skip
    if not feasible:
        turns: Turns = (*searched, give_up("There is no such ticket."))
        return task_draft(world, (f"{title}/{words}", told), turns, feasible=False)
    number = draw.pick(list(world["tickets"]))
    world["tickets"][number]["title"] = title
    turns = (*searched, (link(title),), (write("Comment", words), press("Add comment")), done())
    after = commented(world, number, words)
    return task_draft(world, (f"{title}/{words}", told), turns, after=after)


def hand(draw: Draw) -> TaskDraft:
    """A ticket that goes to somebody who sometimes does not work here."""
    world = draw_world(draw, 5)
    number = draw.pick(list(world["tickets"]))
    ticket = world["tickets"][number]
    feasible = draw.below(2) == 0
    strangers = [name for name in PEOPLE if name not in world["people"]]
    person = (
        other_than(draw, world["people"], ticket["owner"]) if feasible else draw.pick(strangers)
    )
    told = draw.pick(
        ("The {t} goes to {p} and has {r} priority.",
         "Make {p} the owner of the {t}, with {r} priority.")
    )  # fmt: skip
    wanted = other_than(draw, PRIORITIES, ticket["priority"])
    instruction = told.format(t=ticket["title"], p=person, r=wanted)
    key = f"{ticket['title']}/{person}/{wanted}"
    opened: Turns = ((link(ticket["title"]),), (link("Edit"),))
    if not feasible:
        turns = (*opened, give_up(f"There is no {person}."))
        return task_draft(world, (key, instruction), turns, feasible=False)
    turns = (
        *opened,
        (select("Priority", wanted), select("Owner", person), press("Save")),
        done(),
    )
    after = changed(world, number, owner=person, priority=wanted)
    return task_draft(world, (key, instruction), turns, after=after)


def count(draw: Draw) -> TaskDraft:
    """How many tickets somebody has, on two pages of a list."""
    world = draw_world(draw, draw.between(8, 10), people=4)
    person, word = draw.pick(world["people"]), draw.pick(TROUBLES)
    for number in draw.some(list(world["tickets"]), draw.between(3, 5)):
        thing = world["tickets"][number]["title"].partition(" ")[2]
        world["tickets"][number]["title"] = f"{word} {thing}"
    fitting = [
        it
        for it in world["tickets"].values()
        if it["owner"] == person and it["title"].startswith(f"{word} ")
    ]
    told = draw.pick(
        ("How many tickets of {p} are about something {w}?",
         "Count the tickets of {p} with the word {w}.")
    ).format(p=person, w=word)  # fmt: skip
    turns = (*_searched(write("Words", word), select("Owner", person)), answer(len(fitting)))
    return task_draft(world, (f"{person}/{word}", told), turns, answer=str(len(fitting)))


def duplicate(draw: Draw) -> TaskDraft:
    """Two tickets about the same thing: the later one is closed."""
    world = draw_world(draw, 8)
    first, second = sorted(draw.some(list(world["tickets"]), 2), key=int)
    title = world["tickets"][first]["title"]
    world["tickets"][second]["title"] = title
    told = draw.pick(
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
    return task_draft(world, (title, told), turns, after=after)


def away(draw: Draw) -> TaskDraft:
    """All tickets of somebody who is away go to somebody else."""
    world = draw_world(draw, 8, people=4)
    absent, person = draw.some(world["people"], 2)
    others = [name for name in world["people"] if name != absent]
    theirs = draw.some(list(world["tickets"]), 2)
    for number, ticket in world["tickets"].items():
        ticket["owner"] = absent if number in theirs else draw.pick(others)
    told = draw.pick(
        ("{a} is away. Give all tickets of {a} with the word {w} to {p}.",
         "All tickets of {a} with the word {w} go to {p}, as {a} is away.")
    )  # fmt: skip
    word = draw.pick(TROUBLES)
    turns: list[tuple[Step, ...]] = []
    after = world
    for number in theirs:
        title = f"{word} {world['tickets'][number]['title'].partition(' ')[2]}"
        world["tickets"][number]["title"] = title
    for number in theirs:
        turns += _searched(write("Words", word), select("Owner", absent))
        turns += [(link(world["tickets"][number]["title"]),), (link("Edit"),)]
        turns += [(select("Owner", person), press("Save"))]
        after = changed(after, number, owner=person)
    key = f"{absent}/{person}/{word}"
    instruction = told.format(a=absent, w=word, p=person)
    return task_draft(world, (key, instruction), (*turns, done()), after=after)


def again(draw: Draw) -> TaskDraft:
    """A ticket that was closed too early, and is nobody's any more."""
    world, number = draw_ticket(draw, comments=0)
    world["tickets"][number] |= {"status": CLOSED, "reason": REASONS[draw.below(2)]}
    words = draw_words(draw)
    told = draw.pick(
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
    return task_draft(world, (f"{number}/{words}", told), turns, after=after)


def _searched(*fields: Step) -> Turns:
    return ((link("Search"),), (*fields, press("Find")))


TICKETS_LONG = (
    Family("tickets_again", again),
    Family("tickets_away", away),
    Family("tickets_count", count),
    Family("tickets_duplicate", duplicate),
    Family("tickets_find", find),
    Family("tickets_hand", hand),
)
