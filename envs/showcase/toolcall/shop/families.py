"""Wishes of the shop's customers by family; `refusals.py` has those that must be refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from clawrl_gym.agents.tool_calls import Reply
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.toolcall.shop import refusals
from clawrl_gym.envs.showcase.toolcall.shop.case import (
    DAYS,
    REASONS,
    ShopCase,
    ShopRequest,
    draw_case,
    draw_swap,
)
from clawrl_gym.envs.showcase.toolcall.shop.goals import StatedNumberGoal

Family = Callable[[Draw], tuple[ShopCase, ShopRequest]]

RULES = f"""You are the assistant of a shop. Customers write to you; you have tools.
1. Find the customer by name and zip before anything else; ask for what you do not know. If nobody \
fits, say that you cannot help.
2. Only a customer's own orders are shown to them or changed.
3. Only a pending order is cancelled or sent elsewhere. The reason of a cancellation is one of: \
{", ".join(REASONS)}.
4. Items of a delivered order are exchanged or come back within {DAYS} days of the delivery, not \
later. A product is exchanged for one of its kind that is in stock.
5. Do what the customer wants, nothing beyond it, and then say what you did. If it cannot be, say \
that it cannot be, and why. Hand over to a colleague only when somebody was hurt.
"""


def _cancel(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "pending")
    reason = draw.pick(list(REASONS))
    wish = f"I want to cancel my order {case.order_id}."
    script = case.script(
        wish,
        answers=[{"when": ["reason", "why"], "say": REASONS[reason]}],
        wrong=[case.other_id],
        no=f"No, only {case.order_id}.",
    )
    solution = (
        *case.identify(),
        Reply("Why do you want to cancel it?"),
        case.call("cancel_order", order=case.order_id, reason=reason),
        Reply(f"Your order {case.order_id} is cancelled."),
    )
    return case, ShopRequest(f"Hi, I am {case.user.name}. {wish}", script, solution)


def _cancel_told(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "pending", items=draw.between(2, 3))
    reason = draw.pick(list(REASONS))
    wish = f"Please cancel {case.order_id} and tell me how much I get back. {REASONS[reason]}"
    products = [case.call("get_product", product=item) for item in dict.fromkeys(case.order.items)]
    total = case.price_of(case.order.items)
    solution = (
        *case.identify(),
        case.call("get_order", order=case.order_id),
        *products,
        case.call("cancel_order", order=case.order_id, reason=reason),
        Reply(f"Order {case.order_id} is cancelled. You get {total} dollars back."),
    )
    goals = (StatedNumberGoal(total, "how much comes back"),)
    return case, ShopRequest(f"{case.user.name} here. {wish}", case.script(wish), solution, goals)


def _address(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "pending")
    address = case.other_address()
    wish = f"My order {case.order_id} has to go to another address."
    script = case.script(
        wish,
        answers=[{"when": ["address", "where", "street"], "say": f"It should go to {address}."}],
        wrong=[case.user.address, case.other_id],
    )
    solution = (
        *case.identify(),
        Reply("What is the new address?"),
        case.call("change_address", order=case.order_id, address=address),
        Reply(f"Order {case.order_id} goes to {address} now."),
    )
    return case, ShopRequest(f"Hi, {case.user.name} here. {wish}", script, solution)


def _move(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, draw.pick(("pending", "shipped")))
    address = case.other_address()
    wish = "I have moved. Please change my address, and that of all orders that can still change."
    script = case.script(
        wish, answers=[{"when": ["address", "where", "street"], "say": f"I live at {address}."}]
    )
    pending = [
        case.other_id,
        *([case.order_id] if case.order.status == "pending" else []),
    ]
    solution = (
        *case.identify(),
        Reply("What is your new address?"),
        *(case.call("get_order", order=order) for order in (case.order_id, case.other_id)),
        case.call("move_user", user=case.user_id, address=address),
        *(case.call("change_address", order=order, address=address) for order in pending),
        Reply(f"Your address is {address} now, and {' and '.join(pending)} go there."),
    )
    return case, ShopRequest(f"Hello, this is {case.user.name}. {wish}", script, solution)


def _exchange(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "delivered", days=draw.between(1, DAYS))
    item, product = draw_swap(case, stocked=True)
    product_name = case.name_of(product)
    wish = f"I want to exchange the {case.name_of(item)} of order {case.order_id}."
    script = case.script(
        wish,
        answers=[{"when": ["which", "colour", "color", "instead", "exchange it for"],
                  "say": f"I want the {product_name} instead."}],
        yes=f"Yes, the {product_name}, please.",
    )  # fmt: skip
    solution = (
        *case.identify(),
        case.call("get_order", order=case.order_id),
        Reply("Which one would you like instead?"),
        case.call("list_products", kind=case.world.products[item].kind),
        case.call("exchange_item", order=case.order_id, item=item, product=product),
        Reply(f"You get the {product_name}."),
    )
    return case, ShopRequest(f"{case.user.name} here. {wish}", script, solution)


def _exchange_cheapest(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "delivered", days=draw.between(1, DAYS))
    item = draw.pick(case.order.items)
    rows = case.world.products
    candidates = [
        p for p in rows if p != item and rows[p].kind == rows[item].kind and rows[p].stock
    ]
    product = min(candidates, key=lambda p: (rows[p].price, p))
    for candidate in candidates:  # one is the cheapest, and no other
        if candidate != product and rows[candidate].price == rows[product].price:
            rows[candidate].price += 1
    kind = rows[item].kind
    wish = (f"Please exchange the {rows[item].name} of order {case.order_id} for the cheapest "
            f"other {kind} that you have in stock.")  # fmt: skip
    solution = (
        *case.identify(),
        case.call("get_order", order=case.order_id),
        case.call("list_products", kind=kind),
        case.call("exchange_item", order=case.order_id, item=item, product=product),
        Reply(f"You get the {rows[product].name} for {rows[product].price} dollars."),
    )
    opening = f"Hi, I am {case.user.name}. {wish}"
    return case, ShopRequest(opening, case.script(wish), solution)


def _return(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "delivered", days=draw.between(1, DAYS), items=3)
    kept_item = draw.pick(case.order.items)
    back = [item for item in case.order.items if item != kept_item]
    wish = f"I want to return all of order {case.order_id} but the {case.name_of(kept_item)}."
    solution = (
        *case.identify(),
        case.call("get_order", order=case.order_id),
        *(case.call("get_product", product=item) for item in case.order.items),
        case.call("return_items", order=case.order_id, items=back),
        Reply(f"Send back {' and '.join(map(case.name_of, back))}."),
    )
    opening = f"This is {case.user.name}. {wish}"
    return case, ShopRequest(opening, case.script(wish), solution)


def _two_wishes(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "pending")
    address, reason = case.other_address(), draw.pick(list(REASONS))
    wish = f"Please cancel order {case.order_id}. {REASONS[reason]}"
    then = f"Thanks. And please send {case.other_id} to {address}."
    solution = (
        *case.identify(),
        case.call("cancel_order", order=case.order_id, reason=reason),
        Reply(f"Order {case.order_id} is cancelled."),
        case.call("change_address", order=case.other_id, address=address),
        Reply(f"{case.other_id} goes to {address}."),
    )
    script = case.script(wish, then=[then])
    return case, ShopRequest(f"Hi, {case.user.name} here. {wish}", script, solution)


def _hurt(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "delivered", days=draw.between(1, 2 * DAYS))
    item = draw.pick(case.order.items)
    wish = f"The {case.name_of(item)} of order {case.order_id} has hurt my son."
    solution = (
        *case.identify(),
        case.call("hand_over", why=f"The {case.name_of(item)} hurt somebody."),
        Reply("I am sorry to hear that. A colleague takes over now."),
    )
    opening = f"I am {case.user.name}. {wish}"
    return case, ShopRequest(opening, case.script(wish), solution)


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "cancel": _cancel,
        "cancel_told": _cancel_told,
        "cancel_shipped": refusals.cancel_shipped,
        "cancel_stranger": refusals.cancel_stranger,
        "wrong_zip": refusals.wrong_zip,
        "address": _address,
        "address_shipped": refusals.address_shipped,
        "move": _move,
        "exchange": _exchange,
        "exchange_cheapest": _exchange_cheapest,
        "exchange_sold_out": refusals.exchange_sold_out,
        "return": _return,
        "return_late": refusals.return_late,
        "two_wishes": _two_wishes,
        "hurt": _hurt,
    }
)
"""Drawn tasks by family."""
