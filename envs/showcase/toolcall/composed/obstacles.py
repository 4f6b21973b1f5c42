"""First refusals of a tool: it says why, and other arguments, or something before, do it.

What is to be done then is said by the refusal, by the rules that always hold, or by both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from clawrl_gym.envs.showcase.toolcall.composed.refs import Refs
from clawrl_gym.envs.showcase.toolcall.composed.skill import Kind, Ref, Skill
from clawrl_gym.envs.showcase.toolcall.families.family import CallSpec
from clawrl_gym.envs.showcase.toolcall.office.toolset import APPROVED_ABOVE
from clawrl_gym.envs.showcase.toolcall.office.world import Meeting

Args = dict[str, Ref]
Obstacle = Callable[[Refs, Skill, Args], "tuple[Args, tuple[CallSpec, ...]] | None"]
"""Puts it in the way: the arguments as the request has them, and the calls from the one that is
refused to the one that does it; None where it does not fit."""


def call_of(skill: Skill, args: Mapping[str, Ref], **others: object) -> CallSpec:
    """The call of a skill with these arguments, some of which may be others."""
    return skill.name, {**{name: ref.value for name, ref in args.items()}, **others}


def _closed(refs: Refs, skill: Skill, args: Args) -> tuple[Args, tuple[CallSpec, ...]] | None:
    ticket = str(args["ticket"].value)
    known = refs.start.tickets.get(ticket)
    if known is None or known != refs.now.tickets[ticket] or known.status == "closed":
        return None
    refs.put("tickets", ticket, replace(known, status="closed", resolution="answered"))
    attempt = call_of(skill, args)
    return args, (attempt, ("reopen_ticket", {"ticket": ticket}), attempt)


def _merged(refs: Refs, skill: Skill, args: Args) -> tuple[Args, tuple[CallSpec, ...]] | None:
    """The ticket that is asked for lives on as another one."""
    ticket, draw = str(args["ticket"].value), refs.draw
    known = refs.start.tickets.get(ticket)
    if known is None or known != refs.now.tickets[ticket] or known.links:
        return None
    now = refs.now.tickets.items()
    others = [key for key, other in now if other.status == "open" and not other.merged_into]
    values = [ref.value for ref in args.values()]
    others = [key for key in others if key not in values and key in refs.start.tickets]
    if not others:
        return None
    into = draw.pick(others)
    refs.put("tickets", ticket, replace(known, merged_into=into))
    return args, (call_of(skill, args), call_of(skill, args, ticket=into))


def _away(refs: Refs, skill: Skill, args: Args) -> tuple[Args, tuple[CallSpec, ...]] | None:
    person = str(args["person"].value)
    known = refs.start.people.get(person)
    if known is None or known != refs.now.people[person] or not known.deputy:
        return None
    if refs.now.people[known.deputy].away:
        return None
    refs.put("people", person, replace(known, away=True))
    return args, (call_of(skill, args), call_of(skill, args, person=known.deputy))


def _taken(refs: Refs, skill: Skill, args: Args) -> tuple[Args, tuple[CallSpec, ...]] | None:
    """Another meeting has the room: the smallest free one with as many seats will do."""
    room, now = str(args["room"].value), refs.now
    if "meeting" in args:
        meeting = now.meetings[str(args["meeting"].value)]
        day, hour = meeting.day, meeting.hour
    else:
        day, hour = str(args["day"].value), int(args["hour"].value)
    taken = {m.room for m in now.meetings.values() if (m.day, m.hour) == (day, hour)}
    free = sorted(
        (known.seats, name) for name, known in now.rooms.items()
        if name not in {*taken, room} and known.seats >= now.rooms[room].seats
    )  # fmt: skip
    if room in taken or not free:
        return None
    host = refs.draw.pick(list(refs.start.people))
    title = refs.cast.title(Kind.MEETING)
    refs.put("meetings", refs.cast.new_id("M"), Meeting(title, day, hour, room, host))
    return args, (call_of(skill, args), call_of(skill, args, room=free[0][1]))


def _packs(refs: Refs, skill: Skill, args: Args) -> tuple[Args, tuple[CallSpec, ...]] | None:
    """Sold in packs: rounded up to full ones."""
    quantity = int(args["quantity"].value)
    order = args.get("order")
    item = str(args["item"].value) if order is None else refs.now.orders[str(order.value)].item
    known, pack = refs.now.items[item], refs.draw.pick((4, 5, 6, 8))
    full = -(-quantity // pack) * pack
    if full == quantity or known != refs.start.items.get(item) or known.pack > 1:
        return None
    if full * known.price > APPROVED_ABOVE:
        return None
    refs.put("items", item, replace(known, pack=pack))
    return args, (call_of(skill, args), call_of(skill, args, quantity=full))


def _approval(refs: Refs, skill: Skill, args: Args) -> tuple[Args, tuple[CallSpec, ...]] | None:
    """So much that the buyer's manager has to approve."""
    known = refs.now.items[str(args["item"].value)]
    buyer = str(args["buyer"].value)
    manager = refs.now.people[buyer].manager
    if not manager or known.pack > 1:
        return None
    least = APPROVED_ABOVE // known.price + 1
    quantity = refs.draw.between(least, least + 20)
    args = {**args, "quantity": replace(args["quantity"], value=quantity, words=str(quantity))}
    return args, (
        call_of(skill, args),
        ("get_person", {"person": buyer}),
        call_of(skill, args, approver=manager),
    )


OBSTACLES: Mapping[str, tuple[Obstacle, frozenset[str]]] = MappingProxyType(
    {
        "approval": (_approval, frozenset({"order_item"})),
        "away": (_away, frozenset({"assign_ticket", "change_host"})),
        "closed": (
            _closed, frozenset({"assign_ticket", "set_priority", "tag_ticket", "link_tickets"})
        ),
        "merged": (
            _merged, frozenset({"assign_ticket", "set_priority", "tag_ticket", "close_ticket"})
        ),
        "packs": (_packs, frozenset({"order_item", "change_quantity"})),
        "taken": (_taken, frozenset({"change_room", "book_meeting"})),
    }
)  # fmt: skip
"""Obstacles by name: what puts it in the way, and the skills that it fits."""
MISSPELT = "misspelt"
"""One more: a name that is written wrongly, in whatever takes a person."""
