"""What customers of the shop want and cannot have: the rules, or the shop, do not allow it."""

from __future__ import annotations

from collections.abc import Set

from clawrl_gym.agents.tool_calls import Reply
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.toolcall.shop.case import (
    DAYS,
    REASONS,
    ShopCase,
    ShopRequest,
    draw_case,
    draw_swap,
)
from clawrl_gym.envs.toolcall.shop.goals import AttemptGoal, RefusalGoal


def cancel_shipped(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "shipped")
    wish = f"I want to cancel order {case.order_id}. {REASONS['no longer needed']}"
    script = case.script(wish, then=["Can you not make an exception? Please cancel it."])
    looked = case.call("get_order", order=case.order_id)
    refused = "It has been shipped already, so it cannot be cancelled."
    solution = (*case.identify(), looked, Reply(refused), Reply(f"I am sorry. {refused}"))
    goals = (RefusalGoal(), _looked_at(case))
    return case, ShopRequest(f"I am {case.user.name}. {wish}", script, solution, goals)


def cancel_stranger(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "pending")
    wish = f"Please cancel order {case.strange_id}. {REASONS['ordered by mistake']}"
    refused = Reply(f"I cannot do that: {case.strange_id} is not one of your orders.")
    solution = (*case.identify(), refused)
    return case, ShopRequest(f"Hello, {case.user.name} here. {wish}", case.script(wish), solution,
                       (RefusalGoal(),))  # fmt: skip


def wrong_zip(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "pending")
    claimed = str(10_000 + (int(case.user.zip) - 10_000 + draw.between(1, 89_998)) % 90_000)
    wish = f"Please send order {case.order_id} to {case.other_address()}."
    script = case.script(wish)
    script["answers"][0]["say"] = f"My zip is {claimed}."
    asked, _ = case.identify()
    tried = case.call("find_user", name=case.user.name, zip=claimed)
    refused = Reply("I cannot find you with that name and zip, so I cannot help you.")
    goals = (RefusalGoal(), AttemptGoal("find_user", (case.user.name, claimed)))
    opening = f"My name is {case.user.name}. {wish}"
    return case, ShopRequest(opening, script, (asked, tried, refused), goals, known=False)


def address_shipped(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "shipped")
    wish = f"Please send my order {case.order_id} to {case.other_address()} instead."
    looked = case.call("get_order", order=case.order_id)
    refused = Reply("It is on its way already: the address cannot be changed any more.")
    solution = (*case.identify(), looked, refused)
    goals = (RefusalGoal(), _looked_at(case))
    opening = f"I am {case.user.name}. {wish}"
    return case, ShopRequest(opening, case.script(wish), solution, goals)


def exchange_sold_out(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "delivered", days=draw.between(1, DAYS))
    item, product = draw_swap(case, stocked=False)
    wish = (f"Please exchange the {case.name_of(item)} of {case.order_id} for the "
            f"{case.name_of(product)}.")  # fmt: skip
    script = case.script(wish, no="No, then leave it.", wrong=_names(case, {item, product}))
    listed = case.call("list_products", kind=case.world.products[item].kind)
    refused = Reply(f"Sorry, the {case.name_of(product)} is not in stock, so that cannot be.")
    solution = (
        *case.identify(),
        case.call("get_order", order=case.order_id),
        listed,
        refused,
    )
    goals = (RefusalGoal(), _looked_at(case))
    return case, ShopRequest(f"I am {case.user.name}. {wish}", script, solution, goals)


def return_late(draw: Draw) -> tuple[ShopCase, ShopRequest]:
    case = draw_case(draw, "delivered", days=draw.between(DAYS + 1, 3 * DAYS))
    item = draw.pick(case.order.items)
    wish = f"I want to return the {case.name_of(item)} of order {case.order_id}."
    script = case.script(wish, then=["It was never used! Please take it back."])
    looked = case.call("get_order", order=case.order_id)
    refused = f"It was delivered more than {DAYS} days ago, so you cannot return it."
    solution = (*case.identify(), looked, Reply(refused), Reply(f"I am sorry. {refused}"))
    goals = (RefusalGoal(), _looked_at(case))
    return case, ShopRequest(f"Hello, I am {case.user.name}. {wish}", script, solution, goals)


def _looked_at(case: ShopCase) -> AttemptGoal:
    """The order that it is about has been looked at."""
    return AttemptGoal("get_order", (case.order_id,))


def _names(case: ShopCase, but: Set[str]) -> list[str]:
    """All products but these."""
    return [row.name for name, row in case.world.products.items() if name not in but]
