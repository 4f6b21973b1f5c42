"""Families about a shop's orders: forms to fill, and orders that cannot be undone any more."""

from __future__ import annotations

import copy
from typing import Any

from clawrl_gym.envs.conversation.problems import NAMES as PEOPLE
from clawrl_gym.envs.draw import STEMS, WORDS, Draw
from clawrl_gym.envs.gui.apps.shop import FIRST_ORDER, PAYMENTS, REASONS
from clawrl_gym.envs.gui.families.family import (
    Family,
    TaskDraft,
    Turns,
    done,
    give_up,
    link,
    press,
    select,
    tick,
    write,
)
from clawrl_gym.envs.gui.families.shop import NAMES, URL, World, filled_basket, task_draft, thing


def order(draw: Draw) -> TaskDraft:
    """What is in the basket is ordered."""
    world = filled_basket(draw, draw.between(1, 2))
    name, address, payment = _buyer(draw)
    told = draw.pick(
        (
            "Order the basket for {n}, address {a}. Pay by {p}.",
            "Check out: the name is {n}, the address is {a} and the payment is {p}.",
            "Please order what is in the basket. Send it to {n}, {a}, paid by {p}.",
        )
    )
    return task_draft(
        key=f"{name} {address} {payment}",
        instruction=told.format(n=name, a=address, p=payment),
        world=world,
        start=f"{URL}basket",
        solution=((link("Check out"),), _checked_out(name, address, payment), done()),
        after=_with_order(world, name, address, payment, _sum(world)),
    )


def coupon(draw: Draw) -> TaskDraft:
    """The basket is ordered, and costs less."""
    code, percent = draw.pick(WORDS), draw.pick((10, 20, 25, 50))
    world = filled_basket(draw, draw.between(2, 3)) | {"coupons": {code: percent}}
    name, address, payment = _buyer(draw)
    told = draw.pick(
        (
            "Order the basket with the coupon {c} for {n}, address {a}. Pay by {p}.",
            "Use the coupon {c} and check out: name {n}, address {a}, payment {p}.",
        )
    )
    full = _sum(world)
    return task_draft(
        key=f"{code} {name} {address} {payment}",
        instruction=told.format(c=code, n=name, a=address, p=payment),
        world=world,
        solution=(
            (link("Basket"),),
            (write("Coupon", code), press("Use")),
            (link("Check out"),),
            _checked_out(name, address, payment),
            done(),
        ),
        after=_with_order(world, name, address, payment, full - full * percent // 100),
    )


def cancel(draw: Draw) -> TaskDraft:
    """An order that nobody wants any more; it may be on its way already."""
    world = _with_orders(draw, ["open", "sent", "open", draw.pick(("sent", "delivered"))])
    feasible = draw.below(3) > 0
    status = "open" if feasible else "sent"
    fitting = [n for n, order in world["orders"].items() if order["status"] == status]
    number = draw.pick(fitting)
    item = next(iter(world["orders"][number]["items"]))
    told = draw.pick(
        (
            "Cancel the order {o}. I do not need {i} any more.",
            "I ordered {i} with order {o}: please cancel it.",
            "Cancel order {o} ({i}) or give up if it is too late.",
        )
    )
    shown = ((link(f"Order {number}"),),)
    turns: Turns = (*shown, (press("Cancel order"),), done())
    if not feasible:
        turns = (*shown, give_up(f"the order {number} is {status} already"))
    return task_draft(
        key=f"{number} {item}",
        instruction=told.format(o=number, i=item),
        world=world,
        start=f"{URL}orders",
        solution=turns,
        after=_with_status(world, number, {"status": "cancelled"}) if feasible else None,
        feasible=feasible,
    )


def give_back(draw: Draw) -> TaskDraft:
    """An order that came, by what was in it; all orders of the list look alike."""
    world = _with_orders(draw, ["delivered"] * 3)
    number, reason = draw.pick(list(world["orders"])), draw.pick(REASONS)
    item = next(iter(world["orders"][number]["items"]))
    told = draw.pick(
        (
            "Return the order with {i}: it is {r}.",
            "I got {i}, and it is {r}. Return that order.",
            "Please return the order that has {i} in it. The reason is: {r}.",
        )
    )
    looked = [other for other in world["orders"] if int(other) <= int(number)]
    turns: list[Any] = [(link("Orders"),)]
    for other in looked:
        turns += [(link(f"Order {other}"),), *([(link("Orders"),)] if other != number else [])]
    turns += [(select("Reason", reason), press("Return")), done()]
    return task_draft(
        key=f"{item} {reason}",
        instruction=told.format(i=item, r=reason),
        world=world,
        solution=tuple(turns),
        after=_with_status(world, number, {"status": "returned", "reason": reason}),
    )


SHOP_ORDERS = (
    Family("shop_cancel", cancel, easy=True),
    Family("shop_coupon", coupon),
    Family("shop_order", order, easy=True),
    Family("shop_return", give_back),
)


def _buyer(draw: Draw) -> tuple[str, str, str]:
    """Name, address and payment."""
    return draw.pick(PEOPLE), f"{draw.between(2, 99)} {draw.pick(STEMS)}", draw.pick(PAYMENTS)


def _checked_out(name: str, address: str, payment: str) -> tuple[Any, ...]:
    return (
        write("Name", name),
        write("Address", address),
        tick(payment, "radio"),
        press("Order"),
    )


def _sum(world: World) -> int:
    return sum(world["items"][name]["price"] * count for name, count in world["basket"].items())


def _ordered(items: World, name: str, address: str, payment: str, total: int, status: str) -> World:
    return {
        "name": name,
        "address": address,
        "payment": payment,
        "items": items,
        "sum": total,
        "status": status,
    }


def _with_order(world: World, name: str, address: str, payment: str, total: int) -> World:
    """The shop when its basket was ordered."""
    order = _ordered(world["basket"], name, address, payment, total, "open")
    return world | {"basket": {}, "orders": {str(FIRST_ORDER + 1): order}}


def _with_orders(draw: Draw, statuses: list[str]) -> World:
    """A shop with an order of one thing in each status."""
    names = draw.some(NAMES, len(statuses))
    first = draw.between(FIRST_ORDER + 1, 990)
    items = {name: thing(draw) for name in names}
    orders = {}
    for place, (name, status) in enumerate(zip(names, statuses, strict=True)):
        count = draw.between(1, 5)
        total = count * items[name]["price"]
        orders[str(first + place)] = _ordered({name: count}, *_buyer(draw), total, status)
    return {"items": items, "orders": orders}


def _with_status(world: World, number: str, change: World) -> World:
    after = copy.deepcopy(world)
    after["orders"][number] |= change
    return after
