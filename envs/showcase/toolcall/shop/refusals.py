"""Wishes of the shop's customers that the rules, or the shop, do not allow."""

from __future__ import annotations

from collections.abc import Set

from clawrl_gym.agents.tool_calls import Reply
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.toolcall.shop.case import (
    DAYS,
    REASONS,
    ShopCase,
    ShopRequest,
    draw_case,
    draw_swap,
)
from clawrl_gym.envs.showcase.toolcall.shop.goals import AttemptGoal, RefusalGoal


def cancel_shipped(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "shipped")
    wish = f"I want to cancel order {case.order_id}. {REASONS['no longer needed']}"
    script = case.script(wish, then=["Can you not make an exception? Please cancel it."])
    lookup = case.call("get_order", order=case.order_id)
    refusal = "It has been shipped already, so it cannot be cancelled."
    solution = (*case.identify(), lookup, Reply(refusal), Reply(f"I am sorry. {refusal}"))
    goals = (RefusalGoal(), _looked_at(case))
    return case, ShopRequest(f"I am {case.user.name}. {wish}", script, solution, goals)


def cancel_stranger(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "pending")
    wish = f"Please cancel order {case.strange_id}. {REASONS['ordered by mistake']}"
    refusal = Reply(f"I cannot do that: {case.strange_id} is not one of your orders.")
    solution = (*case.identify(), refusal)
    return case, ShopRequest(f"Hello, {case.user.name} here. {wish}", case.script(wish), solution,
                       (RefusalGoal(),))  # fmt: skip


def wrong_zip(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "pending")
    claimed = str(10_000 + (int(case.user.zip) - 10_000 + draw.between(1, 89_998)) % 90_000)
    wish = f"Please send order {case.order_id} to {case.other_address()}."
    script = case.script(wish, zip_code=claimed)
    question, _ = case.identify()
    attempt = case.call("find_user", name=case.user.name, zip=claimed)
    refusal = Reply("I cannot find you with that name and zip, so I cannot help you.")
    goals = (RefusalGoal(), AttemptGoal("find_user", (case.user.name, claimed)))
    opening = f"My name is {case.user.name}. {wish}"
    return case, ShopRequest(opening, script, (question, attempt, refusal), goals, is_user=False)


def address_shipped(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "shipped")
    wish = f"Please send my order {case.order_id} to {case.other_address()} instead."
    lookup = case.call("get_order", order=case.order_id)
    refusal = Reply("It is on its way already: the address cannot be changed any more.")
    solution = (*case.identify(), lookup, refusal)
    goals = (RefusalGoal(), _looked_at(case))
    opening = f"I am {case.user.name}. {wish}"
    return case, ShopRequest(opening, case.script(wish), solution, goals)


def exchange_sold_out(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "delivered", days=draw.between(1, DAYS))
    item, product = draw_swap(case, stocked=False)
    wish = (f"Please exchange the {case.name_of(item)} of {case.order_id} for the "
            f"{case.name_of(product)}.")  # fmt: skip
    script = case.script(wish, no="No, then leave it.", wrong=_names(case, {item, product}))
    listing = case.call("list_products", kind=case.world.products[item].kind)
    refusal = Reply(f"Sorry, the {case.name_of(product)} is not in stock, so that cannot be.")
    solution = (
        *case.identify(),
        case.call("get_order", order=case.order_id),
        listing,
        refusal,
    )
    goals = (RefusalGoal(), _looked_at(case))
    return case, ShopRequest(f"I am {case.user.name}. {wish}", script, solution, goals)


def return_late(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "delivered", days=draw.between(DAYS + 1, 3 * DAYS))
    item = draw.pick(case.order.items)
    wish = f"I want to return the {case.name_of(item)} of order {case.order_id}."
    script = case.script(wish, then=["It was never used! Please take it back."])
    lookup = case.call("get_order", order=case.order_id)
    refusal = f"It was delivered more than {DAYS} days ago, so you cannot return it."
    solution = (*case.identify(), lookup, Reply(refusal), Reply(f"I am sorry. {refusal}"))
    goals = (RefusalGoal(), _looked_at(case))
    return case, ShopRequest(f"Hello, I am {case.user.name}. {wish}", script, solution, goals)


def _looked_at(case: ShopCase) -> AttemptGoal:
    """The order that it is about has been looked at."""
    return AttemptGoal("get_order", (case.order_id,))


def _names(case: ShopCase, but: Set[str]) -> list[str]:
    """All products but these."""
    return [row.name for name, row in case.world.products.items() if name not in but]
