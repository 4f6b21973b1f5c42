"""Families about a shop: the basket, then lists of several pages, and orders."""

from __future__ import annotations

import copy
from typing import TypedDict, Unpack

from clawrl_gym.envs.draw import STEMS, WORDS, Draw
from clawrl_gym.envs.gui.task import Step
from clawrl_gym.envs.showcase.conversation.problems import ITEMS
from clawrl_gym.envs.showcase.conversation.problems import NAMES as PEOPLE
from clawrl_gym.envs.showcase.gui.apps.shop import (
    FIRST_ORDER,
    HOST,
    PAGE_SIZE,
    PAYMENTS,
    REASONS,
    Item,
    PlacedOrder,
    Shop,
    ShopWorld,
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
    number,
    press,
    select,
    tick,
    write,
)

SITE = Application(HOST, Shop)
NAMES = tuple(stem for stem in STEMS if stem != "basket")
"""Names of the items."""


def add(draw: Draw) -> TaskContent:
    """So many of a thing that is on the first page."""
    world = draw_shop(draw, draw.between(3, 4))
    item, count = draw.pick(list(world["items"])), draw.between(2, 9)
    phrasing = draw.pick(
        (
            "Put {n} {i} into the basket.",
            "Add {n} of {i} to the basket.",
            "I want {n} of {i}: put them in the basket.",
            "Please add {n} {i} to my basket.",
        )
    )
    return SITE.task(
        key=f"{count} {item}",
        instruction=phrasing.format(n=count, i=item),
        world=world,
        solution=((link(item),), added(count), done()),
        after=world | {"basket": {item: count}},
    )


def count(draw: Draw) -> TaskContent:
    """Another number of a thing that is in the basket."""
    world = filled_basket(draw, draw.between(2, 3))
    basket = world["basket"]
    item = draw.pick(list(basket))
    new_count = draw.pick([n for n in range(2, 10) if n != basket[item]])
    phrasing = draw.pick(
        (
            "I want {n} {i} in the basket, not {o}.",
            "Change the number of {i} in the basket to {n}.",
            "Please make it {n} of {i}. The rest of the basket is right.",
        )
    )
    return SITE.task(
        key=f"{new_count} {item}",
        instruction=phrasing.format(n=new_count, i=item, o=basket[item]),
        world=world,
        path="basket",
        solution=((number("Number", new_count, near=item), press("Save")), done()),
        after=world | {"basket": basket | {item: new_count}},
    )


def remove(draw: Draw) -> TaskContent:
    """A thing that goes out of the basket."""
    world = filled_basket(draw, draw.between(2, 3))
    basket = world["basket"]
    item, spared = draw.some(list(basket), 2)
    phrasing = draw.pick(
        (
            "Take the {i} out of the basket. The {o} stays.",
            "Remove {i} from the basket, not {o}.",
            "I do not want {i} any more, but {o}: change the basket.",
        )
    )
    return SITE.task(
        key=f"{item} {spared}",
        instruction=phrasing.format(i=item, o=spared),
        world=world,
        path="basket",
        solution=((press("Remove", near=item),), done()),
        after=world | {"basket": {name: n for name, n in basket.items() if name != item}},
    )


def stock(draw: Draw) -> TaskContent:
    """Read an item's stock: its own page says it."""
    world = draw_shop(draw, draw.between(3, 4))
    item = draw.pick(list(world["items"]))
    phrasing = draw.pick(
        (
            "How many {i} are left in the shop?",
            "Answer with the number of {i} that are left.",
            "Please find out how many of {i} the shop has.",
        )
    )
    left = str(world["items"][item]["stock"])
    return SITE.task(
        key=item,
        instruction=phrasing.format(i=item),
        world=world,
        solution=((link(item),), answer(left)),
        answer=left,
    )


def added(count: int) -> tuple[Step, ...]:
    """Steps on an item's page that put this many into the basket."""
    return (number("Number", count), press("Add to basket"))


def draw_item(draw: Draw, kind: str = "things") -> Item:
    """Item of a shop; there are enough of it for any basket."""
    return {"price": draw.between(3, 99), "stock": draw.between(10, 99), "kind": kind}


def draw_shop(draw: Draw, count: int) -> ShopWorld:
    """A shop with `count` things of one kind, and an empty basket."""
    return {"items": {name: draw_item(draw) for name in draw.some(NAMES, count)}}


def filled_basket(draw: Draw, count: int) -> ShopWorld:
    """A shop whose things all lie in the basket."""
    world = draw_shop(draw, count)
    return world | {"basket": {name: draw.between(1, 9) for name in world["items"]}}


KINDS = ITEMS
"""Departments; few of them are in one shop."""
SIZES = ("small", "large", "long")


def find(draw: Draw) -> TaskContent:
    """A thing of a large shop, which may not sell it, or not any more."""
    names = draw.some(NAMES, 13)
    world, missing = _large(draw, names[:-1]), names[-1]
    item, count = draw.pick(names[:-1]), draw.between(2, 9)
    case = draw.below(6)
    if case == 0:
        item = missing
    if case == 1:
        world["items"][item]["stock"] = 0
    phrasing = draw.pick(
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
    return SITE.task(
        key=f"{count} {item}",
        instruction=phrasing.format(i=item, n=count),
        world=world,
        solution=turns,
        after=world | {"basket": {item: count}} if feasible else None,
        feasible=feasible,
    )


def cheapest(draw: Draw) -> TaskContent:
    """The thing of a kind with the lowest price; the kind takes two pages."""
    world, kind, names = _with_long_kind(draw)
    prices = draw.some(range(5, 99), len(names))
    for name, price in zip(names, prices, strict=True):
        world["items"][name]["price"] = price
    place = prices.index(min(prices))
    count = draw.between(2, 9)
    phrasing = draw.pick(
        (
            "Put {n} of what costs least in {k} into the basket.",
            "What is cheapest in {k}? Put {n} of it in the basket.",
            "I want {n} of the cheapest thing in {k}. Put them in my basket.",
        )
    )
    back = ((link("Back"),),) if place < PAGE_SIZE else ()
    item = names[place]
    return SITE.task(
        key=f"{count} {kind}",
        instruction=phrasing.format(k=kind, n=count),
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


def size(draw: Draw) -> TaskContent:
    """A thing in a size."""
    world, kind, names = _with_long_kind(draw)
    item, size_name, count = draw.pick(names), draw.pick(SIZES), draw.between(2, 9)
    for name in names:
        world["items"][name]["sizes"] = draw.some(SIZES, len(SIZES))
    phrasing = draw.pick(
        (
            "Put {n} {s} {i} from {k} into the basket.",
            "I want {n} of {i} in the size {s}. It is in {k}. Put them in the basket.",
            "Please add {n} {s} {i} to the basket. Look in {k}.",
        )
    )
    more = ((link("More"),),) if names.index(item) >= PAGE_SIZE else ()
    return SITE.task(
        key=f"{count} {size_name} {item}",
        instruction=phrasing.format(n=count, s=size_name, i=item, k=kind),
        world=world,
        solution=(
            (link(kind),),
            *more,
            (link(item),),
            (select("Size", size_name), *added(count)),
            done(),
        ),
        after=world | {"basket": {f"{item}, {size_name}": count}},
    )


def budget(draw: Draw) -> TaskContent:
    """Buy as many of a thing as the money is enough for."""
    world = _large(draw, draw.some(NAMES, 12))
    item = draw.pick(list(world["items"]))
    price, count = draw.between(4, 19), draw.between(2, 9)
    world["items"][item]["price"] = price
    money = price * count + draw.below(price)
    phrasing = draw.pick(
        (
            "I have {m} coins. Put as many {i} in the basket as I can pay.",
            "Put {i} into the basket, as many as {m} coins are enough for.",
        )
    )
    return SITE.task(
        key=f"{item} {money}",
        instruction=phrasing.format(m=money, i=item),
        world=world,
        solution=((write("Search", item), press("Search")), (link(item),), added(count), done()),
        after=world | {"basket": {item: count}},
    )


def _large(draw: Draw, names: list[str]) -> ShopWorld:
    """A shop with things of several kinds."""
    kinds = draw.some(KINDS, 3)
    return {"items": {name: draw_item(draw, kinds[n % 3]) for n, name in enumerate(names)}}


def _with_long_kind(draw: Draw) -> tuple[ShopWorld, str, list[str]]:
    """A shop with a kind that takes two pages; and the kind, and its things in order."""
    kind, *rest = draw.some(KINDS, 3)
    names = draw.some(NAMES, 12)
    members, strangers = names[:7], names[7:]
    items = {name: draw_item(draw, kind) for name in members}
    items |= {name: draw_item(draw, rest[n % 2]) for n, name in enumerate(strangers)}
    return {"items": items}, kind, members


def order(draw: Draw) -> TaskContent:
    """Order what is in the basket."""
    world = filled_basket(draw, draw.between(1, 2))
    name, address, payment = _buyer(draw)
    phrasing = draw.pick(
        (
            "Order the basket for {n}, address {a}. Pay by {p}.",
            "Check out: the name is {n}, the address is {a} and the payment is {p}.",
            "Please order what is in the basket. Send it to {n}, {a}, paid by {p}.",
        )
    )
    return SITE.task(
        key=f"{name} {address} {payment}",
        instruction=phrasing.format(n=name, a=address, p=payment),
        world=world,
        path="basket",
        solution=((link("Check out"),), _checked_out(name, address, payment), done()),
        after=_with_order(world, name, address, payment, _sum(world)),
    )


def coupon(draw: Draw) -> TaskContent:
    """The basket is ordered, and costs less."""
    code, percent = draw.pick(WORDS), draw.pick((10, 20, 25, 50))
    world = filled_basket(draw, draw.between(2, 3)) | {"coupons": {code: percent}}
    name, address, payment = _buyer(draw)
    phrasing = draw.pick(
        (
            "Order the basket with the coupon {c} for {n}, address {a}. Pay by {p}.",
            "Use the coupon {c} and check out: name {n}, address {a}, payment {p}.",
        )
    )
    full = _sum(world)
    return SITE.task(
        key=f"{code} {name} {address} {payment}",
        instruction=phrasing.format(c=code, n=name, a=address, p=payment),
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


def cancel(draw: Draw) -> TaskContent:
    """An order that nobody wants any more; it may be on its way already."""
    world = _with_orders(draw, ["open", "sent", "open", draw.pick(("sent", "delivered"))])
    feasible = draw.below(3) > 0
    status = "open" if feasible else "sent"
    fitting = [n for n, order in world["orders"].items() if order["status"] == status]
    number = draw.pick(fitting)
    item = next(iter(world["orders"][number]["items"]))
    phrasing = draw.pick(
        (
            "Cancel the order {o}. I do not need {i} any more.",
            "I ordered {i} with order {o}: please cancel it.",
            "Cancel order {o} ({i}) or give up if it is too late.",
        )
    )
    opened = ((link(f"Order {number}"),),)
    turns: Turns = (*opened, (press("Cancel order"),), done())
    if not feasible:
        turns = (*opened, give_up(f"the order {number} is {status} already"))
    return SITE.task(
        key=f"{number} {item}",
        instruction=phrasing.format(o=number, i=item),
        world=world,
        path="orders",
        solution=turns,
        after=_with_status(world, number, status="cancelled") if feasible else None,
        feasible=feasible,
    )


def give_back(draw: Draw) -> TaskContent:
    """An order that came, by what was in it; all orders of the list look alike."""
    world = _with_orders(draw, ["delivered"] * 3)
    number, reason = draw.pick(list(world["orders"])), draw.pick(REASONS)
    item = next(iter(world["orders"][number]["items"]))
    phrasing = draw.pick(
        (
            "Return the order with {i}: it is {r}.",
            "I got {i}, and it is {r}. Return that order.",
            "Please return the order that has {i} in it. The reason is: {r}.",
        )
    )
    opened = [each for each in world["orders"] if int(each) <= int(number)]
    turns: list[tuple[Step, ...]] = [(link("Orders"),)]
    for opened_number in opened:
        turns += [
            (link(f"Order {opened_number}"),),
            *([(link("Orders"),)] if opened_number != number else []),
        ]
    turns += [(select("Reason", reason), press("Return")), done()]
    return SITE.task(
        key=f"{item} {reason}",
        instruction=phrasing.format(i=item, r=reason),
        world=world,
        solution=tuple(turns),
        after=_with_status(world, number, status="returned", reason=reason),
    )


def _buyer(draw: Draw) -> tuple[str, str, str]:
    """Name, address and payment."""
    return draw.pick(PEOPLE), f"{draw.between(2, 99)} {draw.pick(STEMS)}", draw.pick(PAYMENTS)


def _checked_out(name: str, address: str, payment: str) -> tuple[Step, ...]:
    return (
        write("Name", name),
        write("Address", address),
        tick(payment, "radio"),
        press("Order"),
    )


def _sum(world: ShopWorld) -> int:
    return sum(world["items"][name]["price"] * count for name, count in world["basket"].items())


def _order(
    basket: dict[str, int], name: str, address: str, payment: str, total: int, status: str
) -> PlacedOrder:
    return {
        "name": name,
        "address": address,
        "payment": payment,
        "items": basket,
        "sum": total,
        "status": status,
    }


def _with_order(world: ShopWorld, name: str, address: str, payment: str, total: int) -> ShopWorld:
    """The shop when its basket was ordered."""
    order = _order(world["basket"], name, address, payment, total, "open")
    return world | {"basket": {}, "orders": {str(FIRST_ORDER + 1): order}}


def _with_orders(draw: Draw, statuses: list[str]) -> ShopWorld:
    """A shop with an order of one thing in each status."""
    names = draw.some(NAMES, len(statuses))
    first = draw.between(FIRST_ORDER + 1, 990)
    items = {name: draw_item(draw) for name in names}
    orders: dict[str, PlacedOrder] = {}
    for place, (name, status) in enumerate(zip(names, statuses, strict=True)):
        count = draw.between(1, 5)
        total = count * items[name]["price"]
        orders[str(first + place)] = _order({name: count}, *_buyer(draw), total, status)
    return {"items": items, "orders": orders}


class OrderChange(TypedDict, total=False):
    """Fields of an order that a task changes."""

    status: str
    reason: str


def _with_status(world: ShopWorld, number: str, **fields: Unpack[OrderChange]) -> ShopWorld:
    after = copy.deepcopy(world)
    after["orders"][number] = {**after["orders"][number], **fields}
    return after


SHOP = (
    Family("shop_add", add, easy=True),
    Family("shop_budget", budget),
    Family("shop_cancel", cancel, easy=True, may_be_infeasible=True),
    Family("shop_cheapest", cheapest),
    Family("shop_count", count, easy=True),
    Family("shop_coupon", coupon),
    Family("shop_find", find, may_be_infeasible=True),
    Family("shop_order", order, easy=True),
    Family("shop_remove", remove, easy=True),
    Family("shop_return", give_back),
    Family("shop_size", size),
    Family("shop_stock", stock, easy=True),
)
