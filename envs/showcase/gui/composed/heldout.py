"""Parts of held-out families: as many things to do as there are records that they are about."""

from __future__ import annotations

from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.gui.apps.shop import REASONS
from clawrl_gym.envs.showcase.gui.composed.composer import Composer
from clawrl_gym.envs.showcase.gui.composed.plan import Action, Part
from clawrl_gym.envs.showcase.gui.composed.skill import Kind, NotApplicable
from clawrl_gym.envs.showcase.gui.composed.values import is_closed

_WEIGHT = 3
"""Skills that one of these counts as."""

_TICKETS_ONLY = Phrasings(
    (),
    (
        "give every ticket that {x} owns and that is not closed to {y}",
        "let {y} take over all tickets of {x} that are not closed",
        "see that no unclosed ticket is left with {x}; {y} becomes their owner",
        "as {x} is leaving, make {y} the owner of each ticket of {x} that is not closed",
        "hand whatever {x} owns of unclosed tickets to {y}",
        "clear the desk of {x}: tickets that are not closed all go to {y}",
    ),
)
_TICKETS_AND_EVENTS = Phrasings(
    (),
    (
        "give every ticket that {x} owns and that is not closed to {y}, and invite {y} to every "
        "event that {x} is a guest of",
        "as {x} is leaving, let {y} own all unclosed tickets of {x}, and be invited to each event "
        "to which {x} is",
        "let {y} step in for {x}: as owner of each ticket that is not closed, and as one more "
        "guest wherever {x} is one",
        "hand all unclosed tickets of {x} to {y}, who is also to be invited to whatever event has "
        "{x} among its guests",
        "prepare the leave of {x}: unclosed tickets get {y} as owner, and {y} is invited wherever "
        "{x} is a guest",
        "see that {y} owns whatever unclosed tickets {x} has, and comes as a guest to all events "
        "of which {x} is a guest",
    ),
)
_ORDERS = Phrasings(
    (),
    (
        'undo the orders of {x}: cancel those that are open and return the delivered ones as "{r}"',
        'in the name of {x} there are orders: the open ones are to be cancelled, the delivered '
        'ones returned for the reason "{r}"',
        'cancel every open order that goes to {x}, and return each delivered one, reason "{r}"',
        'go through the orders for {x}; whatever is open is cancelled, whatever is delivered goes '
        'back as "{r}"',
        'let {x} have none of the orders any more: open ones cancelled, delivered ones returned '
        'with the reason "{r}"',
        'see that all open orders of {x} are cancelled and all delivered ones are returned, '
        'stating "{r}"',
    ),
)  # fmt: skip


def handover(composer: Composer, draw: Draw) -> None:
    """Somebody goes, and somebody else takes over. Raises NotApplicable."""
    refs = composer.refs
    now = refs.now
    with_events = draw.below(2) == 0
    x, y = draw.some(now.tickets["people"], 2)
    tickets = [
        number for number, ticket in now.tickets["tickets"].items()
        if ticket["owner"] == x and not is_closed(now, number)
    ]  # fmt: skip
    events = [
        number for number, event in now.calendar["events"].items()
        if with_events and x in event["guests"] and y not in event["guests"]
    ]  # fmt: skip
    if not tickets or (with_events and not events) or len(tickets) + len(events) < 2:
        raise NotApplicable
    actions: list[Action] = [("assign_ticket", {"ticket": t, "person": y}) for t in tickets]
    actions += [("invite_guest", {"event": event, "person": y}) for event in events]
    phrasings = _TICKETS_AND_EVENTS if with_events else _TICKETS_ONLY
    looks = (("ticket_of", x), *((("event_of", x),) if with_events else ()))
    composer.add_part(
        Part(
            skill="handover",
            phrasings=phrasings,
            words={"x": x, "y": y},
            actions=tuple(actions),
            near=_without_one(draw, actions),
            looks=looks,
            weight=_WEIGHT,
            uses=frozenset(_used(actions)),
        )
    )


def unwind(composer: Composer, draw: Draw) -> None:
    """Return an item that somebody has bought. Raises NotApplicable."""
    orders = composer.refs.now.shop.get("orders", {})
    x = draw.pick(sorted({order["name"] for order in orders.values()}))
    reason = draw.pick(REASONS)
    actions: list[Action] = []
    for number, order in orders.items():
        if order["name"] == x and order["status"] == "open":
            actions.append(("cancel_order", {"order": number}))
        if order["name"] == x and order["status"] == "delivered":
            actions.append(("return_order", {"order": number, "fault": reason}))
    if len({name for name, _ in actions}) < 2:
        raise NotApplicable
    composer.add_part(
        Part(
            skill="unwind",
            phrasings=_ORDERS,
            words={"x": x, "r": reason},
            actions=tuple(actions),
            near=_without_one(draw, actions),
            looks=(("order_of", x),),
            weight=_WEIGHT,
            uses=frozenset(_used(actions)),
        )
    )


def _without_one(draw: Draw, actions: list[Action]) -> tuple[Action, ...]:
    left_out = draw.below(len(actions))
    return tuple(action for place, action in enumerate(actions) if place != left_out)


def _used(actions: list[Action]) -> set[str]:
    kinds = {"ticket": Kind.TICKET, "event": Kind.EVENT, "order": Kind.ORDER}
    return {
        f"{kinds[name]} {value}" for _, args in actions for name, value in args.items()
        if name in kinds
    }  # fmt: skip
