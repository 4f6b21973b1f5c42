"""Families about one ticket: read, comment, edit, close, file."""

from __future__ import annotations

from clawrl_gym.envs.draw import WORDS, Draw
from clawrl_gym.envs.gui.apps.tickets import (
    CLOSED,
    DUPLICATE,
    OPEN,
    PRIORITIES,
    REASONS,
)
from clawrl_gym.envs.gui.families.family import (
    Family,
    TaskDraft,
    answer,
    done,
    link,
    press,
    select,
    write,
)
from clawrl_gym.envs.gui.families.tickets_world import (
    TROUBLES,
    World,
    changed,
    commented,
    draw_ticket,
    draw_words,
    draw_world,
    other_than,
    task_draft,
    unused,
)


def owner(draw: Draw) -> TaskDraft:
    """Whose ticket it is, or how it stands: a line of the list tells."""
    world = draw_world(draw, draw.between(3, 4))
    number = draw.pick(list(world["tickets"]))
    ticket = world["tickets"][number]
    what = draw.pick(("owner", "status"))
    named, short = draw.pick(((f"ticket {number}", number), (f"the {ticket['title']}",) * 2))
    told = draw.pick(
        ("Who is the owner of {t}?", "Tell me the owner of {t}.")
        if what == "owner"
        else ("What is the status of {t}?", "Tell me the status of {t}.")
    ).format(t=named)
    return task_draft(
        world, (f"{what}/{short}", told), (answer(ticket[what]),), answer=ticket[what]
    )


def comment(draw: Draw) -> TaskDraft:
    """A few words on the ticket that is open."""
    world, number = draw_ticket(draw)
    words = draw_words(draw)
    told = draw.pick(
        (
            "Add the comment {w}.",
            "Comment on this ticket: {w}",
            "Write the comment {w} here.",
            "Please say {w} in a comment.",
        )
    ).format(w=words)
    return task_draft(
        world,
        (words, told),
        ((write("Comment", words), press("Add comment")), done()),
        after=commented(world, number, words),
        path=f"ticket/{number}",
    )


def assign(draw: Draw) -> TaskDraft:
    """Somebody else is to do it."""
    world, number = draw_ticket(draw)
    person = other_than(draw, world["people"], world["tickets"][number]["owner"])
    told = draw.pick(
        (
            "Make {p} the owner of ticket {n}.",
            "Give ticket {n} to {p}.",
            "Ticket {n} is for {p} now.",
            "The owner of ticket {n} should be {p}.",
        )
    ).format(n=number, p=person)
    return _edited(world, number, (f"{number}/{person}", told), "owner", person)


def priority(draw: Draw) -> TaskDraft:
    """It matters more, or less."""
    world, number = draw_ticket(draw)
    wanted = other_than(draw, PRIORITIES, world["tickets"][number]["priority"])
    told = draw.pick(
        (
            "Set the priority of ticket {n} to {p}.",
            "Ticket {n} should have {p} priority.",
            "Change ticket {n} to {p} priority.",
        )
    ).format(n=number, p=wanted)
    return _edited(world, number, (f"{number}/{wanted}", told), "priority", wanted)


def label(draw: Draw) -> TaskDraft:
    """One word to find it by."""
    world, number = draw_ticket(draw)
    wanted = other_than(draw, WORDS, world["tickets"][number]["label"])
    told = draw.pick(
        (
            "Put the label {w} on ticket {n}.",
            "Set the label of ticket {n} to {w}.",
            "Ticket {n} needs the label {w}.",
        )
    ).format(n=number, w=wanted)
    return _edited(world, number, (f"{number}/{wanted}", told), "label", wanted)


def close(draw: Draw) -> TaskDraft:
    """It is over, for a reason."""
    world, number = draw_ticket(draw)
    reason = draw.pick([reason for reason in REASONS if reason != DUPLICATE])
    told = draw.pick(
        (
            "Close ticket {n}: it is {r}.",
            "Ticket {n} is {r}: close it.",
            "Please close ticket {n} as {r}.",
        )
    ).format(n=number, r=reason)
    return task_draft(
        world,
        (f"{number}/{reason}", told),
        ((link("Close"),), (select("Reason", reason), press("Close ticket")), done()),
        after=changed(world, number, status=CLOSED, reason=reason),
        path=f"ticket/{number}",
    )


def new(draw: Draw) -> TaskDraft:
    """A ticket that is not there yet."""
    world = draw_world(draw, 3)
    title = f"{draw.pick(TROUBLES)} {draw.pick(unused(world))}"
    person = draw.pick(world["people"])
    told = draw.pick(
        (
            "Make a new ticket for {p}: {t}",
            "Add the new ticket {t}. The owner is {p}.",
            "Start a new ticket {t} with the owner {p}.",
        )
    ).format(t=title, p=person)
    number = str(max(map(int, world["tickets"])) + 1)
    fresh = {"title": title, "status": OPEN, "priority": "normal", "owner": person, "label": "",
             "comments": [], "reason": "", "duplicate_of": None}  # fmt: skip
    return task_draft(
        world,
        (f"{title}/{person}", told),
        ((link("New"),), (write("Title", title), select("Owner", person), press("Create")), done()),
        after={**world, "tickets": {**world["tickets"], number: fresh}},
    )


def _edited(world: World, number: str, told: tuple[str, str], field: str, value: str) -> TaskDraft:
    """One field of the ticket that is open."""
    name = field.capitalize()
    step = write(name, value) if field == "label" else select(name, value)
    return task_draft(
        world,
        told,
        ((link("Edit"),), (step, press("Save")), done()),
        after=changed(world, number, **{field: value}),
        path=f"ticket/{number}",
    )


TICKETS = (
    Family("tickets_assign", assign, easy=True),
    Family("tickets_close", close, easy=True),
    Family("tickets_comment", comment, easy=True),
    Family("tickets_label", label, easy=True),
    Family("tickets_new", new, easy=True),
    Family("tickets_owner", owner, easy=True),
    Family("tickets_priority", priority, easy=True),
)
