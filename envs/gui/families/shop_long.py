"""Families about a large shop: lists of several pages, and things that are not to be had."""

from __future__ import annotations

from clawrl_gym.envs.conversation.problems import ITEMS
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.gui.apps.shop import PAGE_SIZE
from clawrl_gym.envs.gui.families.family import (
    Family,
    TaskDraft,
    Turns,
    done,
    give_up,
    link,
    press,
    select,
    write,
)
from clawrl_gym.envs.gui.families.shop import (
    NAMES,
    World,
    added,
    task_draft,
    thing,
)

KINDS = ITEMS
"""Departments; few of them are in one shop."""
SIZES = ("small", "large", "long")


def find(draw: Draw) -> TaskDraft:
    """A thing of a large shop, which may not sell it, or not any more."""
    names = draw.some(NAMES, 13)
    world, missing = _large(draw, names[:-1]), names[-1]
    item, count = draw.pick(names[:-1]), draw.between(2, 9)
    case = draw.below(6)
    if case == 0:
        item = missing
    if case == 1:
        world["items"][item]["stock"] = 0
    told = draw.pick(
        (
            "Find {i} in the shop and put {n} of it into the basket.",
            "I want {n} {i}. Put them in the basket.",
            "Please put {n} of {i} in the basket, or give up if you cannot.",
        )
    )
    searched = (write("Search", item), press("Search"))
    turns: Turns
    if case == 0:
        turns = (searched, give_up(f"{item} is not sold"))
    elif case == 1:
        turns = (searched, (link(item),), give_up(f"{item} is sold out"))
    else:
        turns = (searched, (link(item),), added(count), done())
    feasible = case > 1
    return task_draft(
        key=f"{count} {item}",
        instruction=told.format(i=item, n=count),
        world=world,
        solution=turns,
        after=world | {"basket": {item: count}} if feasible else None,
        feasible=feasible,
    )


def cheapest(draw: Draw) -> TaskDraft:
    """The thing of a kind with the lowest price; the kind takes two pages."""
    world, kind, names = _with_long_kind(draw)
    prices = draw.some(range(5, 99), len(names))
    for name, price in zip(names, prices, strict=True):
        world["items"][name]["price"] = price
    place = prices.index(min(prices))
    count = draw.between(2, 9)
    told = draw.pick(
        (
            "Put {n} of what costs least in {k} into the basket.",
            "What is cheapest in {k}? Put {n} of it in the basket.",
            "I want {n} of the cheapest thing in {k}. Put them in my basket.",
        )
    )
    back = ((link("Back"),),) if place < PAGE_SIZE else ()
    item = names[place]
    return task_draft(
        key=f"{count} {kind}",
        instruction=told.format(k=kind, n=count),
        world=world,
        solution=(
            (link(kind),),
            (link("More"),),
            *back,
            (link(item),),
            added(count),
            done(),
        ),
        after=world | {"basket": {item: count}},
    )


def size(draw: Draw) -> TaskDraft:
    """A thing in a size."""
    world, kind, names = _with_long_kind(draw)
    item, wanted, count = draw.pick(names), draw.pick(SIZES), draw.between(2, 9)
    for name in names:
        world["items"][name]["sizes"] = draw.some(SIZES, len(SIZES))
    told = draw.pick(
        (
            "Put {n} {s} {i} from {k} into the basket.",
            "I want {n} of {i} in the size {s}. It is in {k}. Put them in the basket.",
            "Please add {n} {s} {i} to the basket. Look in {k}.",
        )
    )
    more = ((link("More"),),) if names.index(item) >= PAGE_SIZE else ()
    return task_draft(
        key=f"{count} {wanted} {item}",
        instruction=told.format(n=count, s=wanted, i=item, k=kind),
        world=world,
        solution=(
            (link(kind),),
            *more,
            (link(item),),
            (select("Size", wanted), *added(count)),
            done(),
        ),
        after=world | {"basket": {f"{item}, {wanted}": count}},
    )


def budget(draw: Draw) -> TaskDraft:
    """As many of a thing as the money is enough for."""
    world = _large(draw, draw.some(NAMES, 12))
    item = draw.pick(list(world["items"]))
    price, count = draw.between(4, 19), draw.between(2, 9)
    world["items"][item]["price"] = price
    money = price * count + draw.below(price)
    told = draw.pick(
        (
            "I have {m} coins. Put as many {i} in the basket as I can pay.",
            "Put {i} into the basket, as many as {m} coins are enough for.",
        )
    )
    return task_draft(
        key=f"{item} {money}",
        instruction=told.format(m=money, i=item),
        world=world,
        solution=((write("Search", item), press("Search")), (link(item),), added(count), done()),
        after=world | {"basket": {item: count}},
    )


SHOP_LONG = (
    Family("shop_budget", budget),
    Family("shop_cheapest", cheapest),
    Family("shop_find", find),
    Family("shop_size", size),
)


def _large(draw: Draw, names: list[str]) -> World:
    """A shop with things of several kinds."""
    kinds = draw.some(KINDS, 3)
    return {"items": {name: thing(draw, kinds[n % 3]) for n, name in enumerate(names)}}


def _with_long_kind(draw: Draw) -> tuple[World, str, list[str]]:
    """A shop with a kind that takes two pages; and the kind, and its things in order."""
    kind, *rest = draw.some(KINDS, 3)
    names = draw.some(NAMES, 12)
    mine, others = names[:7], names[7:]
    items = {name: thing(draw, kind) for name in mine}
    items |= {name: thing(draw, rest[n % 2]) for n, name in enumerate(others)}
    return {"items": items}, kind, mine
