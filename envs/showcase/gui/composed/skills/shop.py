"""Skills of the shop: the basket, and orders."""

from __future__ import annotations

from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.gui.apps.serving import next_number
from clawrl_gym.envs.showcase.gui.apps.shop import FIRST_ORDER, HOST, PlacedOrder, ShopWorld
from clawrl_gym.envs.showcase.gui.composed.desk import Desk
from clawrl_gym.envs.showcase.gui.composed.skill import Args, Kind, Refused, Skill
from clawrl_gym.envs.showcase.gui.composed.ways import to_basket, to_item, to_order
from clawrl_gym.envs.showcase.gui.families.family import (
    Turns,
    link,
    number,
    press,
    select,
    tick,
    write,
)


def basket_of(desk: Desk) -> dict[str, int]:
    return desk.shop.setdefault("basket", {})


def _order(desk: Desk, args: Args, status: str) -> PlacedOrder:
    order = desk.shop.get("orders", {})[str(args["order"])]
    if order["status"] != status:
        raise Refused
    return order


def _check_stock(desk: Desk, args: Args) -> None:
    if int(args["count"]) > desk.shop["items"][str(args["item"])]["stock"]:
        raise Refused


def _added(desk: Desk, args: Args) -> None:
    if args["item"] in basket_of(desk):
        raise Refused  # whether so many more are meant would not be clear
    _check_stock(desk, args)
    basket_of(desk)[str(args["item"])] = int(args["count"])


def _counted(desk: Desk, args: Args) -> None:
    if args["item"] not in basket_of(desk):
        raise Refused
    _check_stock(desk, args)
    basket_of(desk)[str(args["item"])] = int(args["count"])


def _removed(desk: Desk, args: Args) -> None:
    if basket_of(desk).pop(str(args["item"]), None) is None:
        raise Refused


def _used(desk: Desk, args: Args) -> None:
    known = desk.shop.get("coupons", {})
    if args["coupon"] not in known or not basket_of(desk) or desk.shop.get("coupon"):
        raise Refused
    desk.shop["coupon"] = str(args["coupon"])


def total(shop: ShopWorld) -> int:
    """Price of the basket."""
    basket, coupon = shop.get("basket", {}), shop.get("coupon", "")
    full = sum(shop["items"][item]["price"] * count for item, count in basket.items())
    return full - full * shop.get("coupons", {}).get(coupon, 0) // 100


def _bought(desk: Desk, args: Args) -> None:
    if not basket_of(desk):
        raise Refused
    orders = desk.shop.setdefault("orders", {})
    orders[next_number(orders, FIRST_ORDER)] = {
        "name": str(args["person"]), "address": str(args["address"]),
        "payment": str(args["payment"]), "items": dict(basket_of(desk)),
        "sum": total(desk.shop), "status": "open",
    }  # fmt: skip
    desk.shop["basket"], desk.shop["coupon"] = {}, ""


def _cancelled(desk: Desk, args: Args) -> None:
    _order(desk, args, "open")["status"] = "cancelled"


def _returned(desk: Desk, args: Args) -> None:
    order = _order(desk, args, "delivered")
    order["status"], order["reason"] = "returned", str(args["fault"])


def put_in(desk: Desk, args: Args) -> Turns:
    """So many of an item into the basket, whatever is in it."""
    count = int(args["count"])
    return (*to_item(args["item"]), (number("Number", count), press("Add to basket")))


def _set_count(desk: Desk, args: Args) -> Turns:
    changed = number("Number", int(args["count"]), near=str(args["item"]))
    return (*to_basket(), (changed, press("Save")))


def _check_out(desk: Desk, args: Args) -> Turns:
    form = (
        write("Name", str(args["person"])),
        write("Address", str(args["address"])),
        tick(str(args["payment"]), "radio"),
        press("Order"),
    )
    return (*to_basket(), (link("Check out"),), form)


SHOP = (
    Skill(
        "fill_basket", HOST, {"item": Kind.ITEM, "count": Kind.COUNT},
        Phrasings(
            (
                "put {count} pieces of {item} into the basket",
                "add {item} to the basket, {count} of it",
                "lay {count} pieces of {item} in the basket",
                "get {item} into the basket: {count} pieces",
            ),
            (
                "let the basket have {count} pieces of {item}, too",
                "place {item} in the basket, {count} times",
            ),
        ),
        _added, put_in,
    ),
    Skill(
        "set_count", HOST, {"item": Kind.LINE, "count": Kind.COUNT},
        Phrasings(
            (
                "see that the basket holds exactly {count} pieces of {item}",
                "make it {count} pieces of {item} in the basket, no more and no fewer",
                "let there be {count} pieces of {item} in the basket, all told",
                "set the number of {item} in the basket to {count}",
            ),
            (
                "have exactly {count} pieces of {item} in the basket",
                "bring the count of {item} in the basket to {count}",
            ),
        ),
        _counted, _set_count, settles=True, blind=put_in,
    ),
    Skill(
        "empty_line", HOST, {"item": Kind.LINE},
        Phrasings(
            (
                "take {item} out of the basket", "remove {item} from the basket",
                "drop {item} from the basket", "clear {item} from the basket",
            ),
            ("have {item} out of the basket", "let {item} leave the basket"),
        ),
        _removed,
        lambda desk, args: (*to_basket(), (press("Remove", near=str(args["item"])),)),
    ),
    Skill(
        "use_coupon", HOST, {"coupon": Kind.COUPON},
        Phrasings(
            (
                "use the coupon {coupon} for the basket", "enter the coupon {coupon} in the basket",
                "apply the coupon {coupon} to the basket",
                "redeem the coupon {coupon} for the basket",
            ),
            (
                "let the coupon {coupon} count for the basket",
                "put the coupon {coupon} to use in the shop",
            ),
        ),
        _used,
        lambda desk, args: (*to_basket(), (write("Coupon", str(args["coupon"])), press("Use"))),
    ),
    Skill(
        "check_out", HOST,
        {"person": Kind.PERSON, "address": Kind.ADDRESS, "payment": Kind.PAYMENT},
        Phrasings(
            (
                "order what is in the basket for {person}, address {address}, paid by {payment}",
                "check the basket out: name {person}, address {address}, payment by {payment}",
                "place the order for the basket; it goes to {person}, {address}, and is paid by "
                "{payment}",
                "buy the basket in the name of {person} with the address {address}, by {payment}",
            ),
            (
                "have the basket ordered for {person} at the address {address}, payment {payment}",
                "turn the basket into an order: {person}, {address}, paid by {payment}",
            ),
        ),
        _bought, _check_out,
    ),
    Skill(
        "cancel_order", HOST, {"order": Kind.ORDER},
        Phrasings(
            (
                "cancel {order}", "call {order} off", "see that {order} is cancelled",
                "withdraw {order} by cancelling it",
            ),
            ("let {order} be cancelled", "have {order} cancelled"),
        ),
        _cancelled, lambda desk, args: (*to_order(args["order"]), (press("Cancel order"),)),
    ),
    Skill(
        "return_order", HOST, {"order": Kind.ORDER, "fault": Kind.FAULT},
        Phrasings(
            (
                "return {order} for the reason {fault}", "send {order} back; the reason is {fault}",
                "give {order} back, reason {fault}", "return {order}, stating {fault}",
            ),
            ("have {order} returned as {fault}", "let {order} go back for the reason {fault}"),
        ),
        _returned,
        lambda desk, args: (
            *to_order(args["order"]), (select("Reason", str(args["fault"])), press("Return"))
        ),
    ),
)  # fmt: skip
