"""Families about a shop's orders and products: cancel, move, price."""

from __future__ import annotations

import copy
from typing import Any

from clawrl_gym.envs.draw import STEMS, WORDS, Draw
from clawrl_gym.envs.showcase.toolcall.families.family import TaskContent, replies
from clawrl_gym.envs.toolcall.goals import AnswerGoal, StateGoal

SHOP = ("shop",)
CONFIRMATION = "Done."
"""Said when the shop's books are changed."""


def cancel(draw: Draw) -> TaskContent:
    """An order that nobody wants any more."""
    world, order = _world(draw)
    reason = draw.pick(WORDS)
    after = copy.deepcopy(world)
    after["handed_over"] = False
    after["orders"][order] |= {"status": "cancelled", "reason": reason}
    for item in after["orders"][order]["items"]:
        after["products"][item]["stock"] += 1
    form = draw.pick(("Cancel order {o}: {w}.", "Please cancel the order {o}. It is {w}."))
    return TaskContent(
        instruction=form.format(o=order, w=reason),
        solution=replies([("cancel_order", {"order": order, "reason": reason})], CONFIRMATION),
        goals=(StateGoal("shop", after, contains=True),),
        toolsets=SHOP,
        tools=("cancel_order", "hand_over"),
        state={"shop": world},
    )


def move(draw: Draw) -> TaskContent:
    """One order goes elsewhere; where its user lives stays."""
    world, order = _world(draw)
    user, address = world["orders"][order]["user"], _address(draw)
    after = copy.deepcopy(world)
    after["orders"][order]["address"] = address
    form = draw.pick(("Send order {o} of {u} to {w}.", "The order {o} of {u} should go to {w}."))
    return TaskContent(
        instruction=form.format(o=order, u=user, w=address),
        solution=replies([("change_address", {"order": order, "address": address})], CONFIRMATION),
        goals=(StateGoal("shop", after, contains=True),),
        toolsets=SHOP,
        tools=("change_address", "move_user"),
        state={"shop": world},
    )


def price(draw: Draw) -> TaskContent:
    """Price of one product."""
    world, _ = _world(draw)
    product = draw.pick(sorted(world["products"]))
    value = world["products"][product]["price"]
    form = draw.pick(("How many coins is product {p}?", "What is the price of product {p}?"))
    return TaskContent(
        instruction=form.format(p=product),
        solution=replies([("get_product", {"product": product})], f"The price is {value}."),
        goals=(AnswerGoal(str(value)),),
        toolsets=SHOP,
        tools=("get_product", "get_order"),
        state={"shop": world},
        key=f"price {product}",
    )


def _world(draw: Draw) -> tuple[dict[str, Any], str]:
    """A shop with one user, two products and a pending order; and the order."""
    user, order = f"u{draw.between(10, 99)}", f"W{draw.between(100, 999)}"
    first, second = draw.some(range(10, 100), 2)
    products = {
        f"p{number}": {
            "name": f"{draw.pick(WORDS)} {stem}",
            "kind": stem,
            "price": draw.between(10, 99),
            "stock": draw.between(2, 9),
        }
        for number, stem in zip((first, second), draw.some(STEMS, 2), strict=True)
    }
    address = _address(draw)
    item = f"p{draw.pick((first, second))}"
    return {
        "users": {user: {"name": "Ana", "zip": "10234", "address": address}},
        "orders": {order: {"user": user, "status": "pending", "items": [item], "address": address}},
        "products": products,
    }, order


def _address(draw: Draw) -> str:
    return f"{draw.between(2, 99)} {draw.pick(STEMS)}"
