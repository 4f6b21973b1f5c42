"""Families about a shop: short ones."""

from __future__ import annotations

from typing import Any

from clawrl_gym.envs.draw import STEMS, Draw
from clawrl_gym.envs.gui.apps.shop import HOST, Shop
from clawrl_gym.envs.gui.families.family import (
    Family,
    Served,
    TaskDraft,
    Turns,
    answer,
    done,
    link,
    number,
    press,
)

URL = f"http://{HOST}/"
World = dict[str, Any]
NAMES = tuple(stem for stem in STEMS if stem != "basket")
"""What is sold."""


def add(draw: Draw) -> TaskDraft:
    """So many of a thing that is on the first page."""
    world = things(draw, draw.between(3, 4))
    item, count = draw.pick(list(world["items"])), draw.between(2, 9)
    told = draw.pick(
        (
            "Put {n} {i} into the basket.",
            "Add {n} of {i} to the basket.",
            "I want {n} of {i}: put them in the basket.",
            "Please add {n} {i} to my basket.",
        )
    )
    return task_draft(
        key=f"{count} {item}",
        instruction=told.format(n=count, i=item),
        world=world,
        solution=((link(item),), added(count), done()),
        after=world | {"basket": {item: count}},
    )


def count(draw: Draw) -> TaskDraft:
    """Another number of a thing that is in the basket."""
    world = filled_basket(draw, draw.between(2, 3))
    basket = world["basket"]
    item = draw.pick(list(basket))
    wanted = draw.pick([n for n in range(2, 10) if n != basket[item]])
    told = draw.pick(
        (
            "I want {n} {i} in the basket, not {o}.",
            "Change the number of {i} in the basket to {n}.",
            "Please make it {n} of {i}. The rest of the basket is right.",
        )
    )
    return task_draft(
        key=f"{wanted} {item}",
        instruction=told.format(n=wanted, i=item, o=basket[item]),
        world=world,
        start=f"{URL}basket",
        solution=((number("Number", wanted, near=item), press("Save")), done()),
        after=world | {"basket": basket | {item: wanted}},
    )


def remove(draw: Draw) -> TaskDraft:
    """A thing that goes out of the basket."""
    world = filled_basket(draw, draw.between(2, 3))
    basket = world["basket"]
    item, other = draw.some(list(basket), 2)
    told = draw.pick(
        (
            "Take the {i} out of the basket. The {o} stays.",
            "Remove {i} from the basket, not {o}.",
            "I do not want {i} any more, but {o}: change the basket.",
        )
    )
    return task_draft(
        key=f"{item} {other}",
        instruction=told.format(i=item, o=other),
        world=world,
        start=f"{URL}basket",
        solution=((press("Remove", near=item),), done()),
        after=world | {"basket": {name: n for name, n in basket.items() if name != item}},
    )


def stock(draw: Draw) -> TaskDraft:
    """How many of a thing there are: its own page says so."""
    world = things(draw, draw.between(3, 4))
    item = draw.pick(list(world["items"]))
    told = draw.pick(
        (
            "How many {i} are left in the shop?",
            "Answer with the number of {i} that are left.",
            "Please find out how many of {i} the shop has.",
        )
    )
    left = str(world["items"][item]["stock"])
    return task_draft(
        key=item,
        instruction=told.format(i=item),
        world=world,
        solution=((link(item),), answer(left)),
        answer=left,
    )


SHOP = (
    Family("shop_add", add, easy=True),
    Family("shop_count", count, easy=True),
    Family("shop_remove", remove, easy=True),
    Family("shop_stock", stock, easy=True),
)


def added(count: int) -> tuple[Any, ...]:
    """On the page of a thing: so many into the basket."""
    return (number("Number", count), press("Add to basket"))


def task_draft(
    key: str,
    instruction: str,
    world: World,
    solution: Turns,
    start: str = URL,
    after: World | None = None,
    answer: str | None = None,
    feasible: bool = True,
) -> TaskDraft:
    """A task in one shop."""
    return TaskDraft(
        key=key,
        instruction=instruction,
        start=start,
        sites={HOST: Served(Shop, world)},
        solution=solution,
        after={HOST: after} if after else {},
        answer=answer,
        feasible=feasible,
    )


def thing(draw: Draw, kind: str = "things") -> World:
    """What a shop knows of one thing; there are enough of it for any basket."""
    return {"price": draw.between(3, 99), "stock": draw.between(10, 99), "kind": kind}


def things(draw: Draw, count: int) -> World:
    """A shop with so many things of one kind, and an empty basket."""
    return {"items": {name: thing(draw) for name in draw.some(NAMES, count)}}


def filled_basket(draw: Draw, count: int) -> World:
    """A shop whose things all lie in the basket."""
    world = things(draw, count)
    return world | {"basket": {name: draw.between(1, 9) for name in world["items"]}}
