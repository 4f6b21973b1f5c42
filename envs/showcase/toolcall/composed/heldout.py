"""Parts of held-out families: as many calls as there are records that they are about."""

from __future__ import annotations

from collections.abc import Sequence

from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.toolcall.composed.composer import Composer
from clawrl_gym.envs.showcase.toolcall.composed.plan import Part
from clawrl_gym.envs.showcase.toolcall.composed.skill import Kind, NotApplicable, Ref
from clawrl_gym.envs.showcase.toolcall.families.family import CallSpec

_WEIGHT = 3
"""Skills that one of these counts as."""

_TICKETS_ONLY = Phrasings(
    (),
    (
        "give every open ticket of {x} to {y}, then mark {x} as away",
        "as {x} goes on leave, assign all open tickets that {x} owns to {y} and mark {x} as away",
        "let {y} take over whatever tickets {x} has open, and after that mark {x} as away",
        "clear the desk of {x}: all tickets that {x} owns and that are open become those of {y}; "
        "then {x} is to be marked as away",
        "see that no open ticket is left with {x}, who goes on leave and is to be marked away; "
        "{y} takes them all",
        "prepare the leave of {x}: {y} gets each open ticket {x} owns, and {x} is marked away",
    ),
)
_ALL_OF_IT = Phrasings(
    (),
    (
        "give every open ticket of {x} to {y}, let {y} host all meetings that {x} hosts, then mark "
        "{x} as away",
        "as {x} goes on leave, hand all open tickets and all hosted meetings of {x} to {y} and "
        "mark {x} as away",
        "prepare the leave of {x}: open tickets and meetings to host all go to {y}, and {x} is "
        "marked away",
        "whatever {x} owns of open tickets, or hosts of meetings, make it a matter of {y}; then "
        "{x} is to be marked as away",
        "let {y} step in for {x} in each open ticket that {x} owns and as host of each meeting "
        "that {x} hosts, and set {x} to away",
        "empty the hands of {x}, who leaves for a month and is to be marked away: open tickets "
        "get {y} as owner, meetings get {y} as host",
    ),
)
_BELOW = Phrasings(
    (),
    (
        "order {q} pieces for {y} of every {s} of which fewer than {n} are in stock",
        "for each {s} with a stock below {n}, place an order for {q} pieces, buyer {y}",
        "look through everything of the kind {s}: where less than {n} are left, order {q} pieces "
        "in the name of {y}",
        "check the stock of each {s} and have {y} buy {q} pieces of whichever has under {n}",
        "wherever we hold fewer than {n} of some {s}, get {q} pieces of it on order for {y}",
        "restock each {s} that is down to less than {n} by an order of {q} pieces; {y} is the "
        "buyer",
    ),
)


def handover(composer: Composer, draw: Draw) -> None:
    """Somebody goes, and somebody else takes over. Raises NotApplicable."""
    refs = composer.refs
    now = refs.now
    with_meetings = draw.below(2) == 0
    leaver, heir = (
        refs.draw_ref(Kind.PERSON, fits=lambda who: not now.people[str(who)].away) for _ in range(2)
    )
    if leaver is None or heir is None or leaver.value == heir.value:
        raise NotApplicable
    x, y = str(leaver.value), str(heir.value)
    tickets = [key for key, t in now.tickets.items() if t.owner == x and t.status == "open"]
    meetings = (
        [key for key, m in now.meetings.items() if m.host == x and not m.cancelled]
        if with_meetings
        else []
    )
    if not tickets or (with_meetings and not meetings):
        raise NotApplicable
    looks = [*leaver.looks, *heir.looks, ("list_tickets", {"owner": x})]
    looks += [("list_meetings", {"host": x})] if with_meetings else []
    calls: list[CallSpec] = [("assign_ticket", {"ticket": t, "person": y}) for t in tickets]
    calls += [("change_host", {"meeting": m, "person": y}) for m in meetings]
    left_out = draw.below(len(calls))
    calls.append(("mark_away", {"person": x}))
    phrasings = _ALL_OF_IT if with_meetings else _TICKETS_ONLY
    composer.add_part(
        _part("handover", phrasings, {"x": leaver, "y": heir}, looks, calls, left_out)
    )


def restock(composer: Composer, draw: Draw) -> None:
    """Order an item that runs out. Raises NotApplicable."""
    refs = composer.refs
    buyer = refs.draw_ref(Kind.PERSON)
    sort = refs.draw_ref(Kind.SORT)
    if buyer is None or sort is None:
        raise NotApplicable
    items = {key: item for key, item in refs.now.items.items() if item.kind == sort.value}
    least, quantity = draw.between(8, 20), draw.between(2, 12)
    low = [key for key, item in items.items() if item.stock < least]
    enough = [key for key in items if key not in low]
    if not low or not enough:
        raise NotApplicable
    arguments = {"quantity": quantity, "buyer": buyer.value}
    calls: list[CallSpec] = [("order_item", {"item": key, **arguments}) for key in low]
    numbers = {"n": least, "q": quantity}
    limits = {name: Ref(Kind.QUANTITY, value, str(value)) for name, value in numbers.items()}
    looks = [*buyer.looks, ("list_items", {"kind": sort.value})]
    words = {"y": buyer, "s": sort, **limits}
    composer.add_part(_part("restock", _BELOW, words, looks, calls, draw.below(len(calls))))


def _part(
    name: str,
    phrasings: Phrasings,
    refs: dict[str, Ref],
    looks: Sequence[CallSpec],
    calls: Sequence[CallSpec],
    left_out: int,
) -> Part:
    """Its near solution leaves one call out; alone, it does nothing."""
    return Part(
        skill=name,
        phrasings=phrasings,
        words={key: ref.words for key, ref in refs.items()},
        looks=tuple(looks),
        calls=tuple(calls),
        near=tuple(call for i, call in enumerate(calls) if i != left_out),
        uses=frozenset(ref.value for ref in refs.values()),
        weight=_WEIGHT,
    )
