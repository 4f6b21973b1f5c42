"""The tools of a shop's assistant over one world, which they change.

A tool refuses what cannot be (no such order, nothing in stock). What the shop's rules forbid beyond
that, such as a return after too long a time, is the assistant's to know: tools carry it out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from clawrl_gym.core.types import Json, Tool
from clawrl_gym.envs.showcase.toolcall.shop.world import Order, ShopUser, World, read_world
from clawrl_gym.envs.toolcall.records import as_json, plain, record_of, short
from clawrl_gym.envs.toolcall.task import ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolContext, ToolFailure, tool

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}

TOOLS: tuple[Tool, ...] = (
    tool("find_user", "Find a user by name and zip", {"name": _TEXT, "zip": _TEXT}),
    tool("get_user", "Show a user and their orders", {"user": _TEXT}),
    tool("get_order", "Show an order", {"order": _TEXT}),
    tool("get_product", "Show a product", {"product": _TEXT}),
    tool("list_products", "List the products of a kind", {"kind": _TEXT}),
    tool("cancel_order", "Cancel a pending order", {"order": _TEXT, "reason": _TEXT}),
    tool("change_address", "Change where a pending order goes", {"order": _TEXT, "address": _TEXT}),
    tool("move_user", "Change a user's own address", {"user": _TEXT, "address": _TEXT}),
    tool(
        "exchange_item",
        "Exchange an item of an order for another product of its kind",
        {"order": _TEXT, "item": _TEXT, "product": _TEXT},
    ),
    tool("return_items", "Take back items of a delivered order", {"order": _TEXT, "items": _TEXTS}),
    tool("hand_over", "Hand the customer over to a human colleague", {"why": _TEXT}),
)


class ShopTools:
    """One shop in one episode."""

    def __init__(self, world: World) -> None:
        self._world = world

    def tools(self) -> list[Tool]:
        return list(TOOLS)

    def call(self, name: str, arguments: Json, timeout_s: float) -> str:
        """Carry out one call; it takes no time worth a limit. Raises ToolFailure."""
        if name not in _CALLS:
            raise ToolFailure(f"there is no such tool; tools: {', '.join(_CALLS)}")
        return _CALLS[name](self, **arguments)

    def state(self) -> dict[str, Any]:
        return self._world.model_dump()

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def find_user(self, name: str, zip: str) -> str:
        identity = (plain(name), plain(zip))
        for user_id, user in self._world.users.items():
            if (plain(user.name), plain(user.zip)) == identity:
                return self._shown_user(user_id, user)
        raise ToolFailure(f"no user is called {name} with zip {zip}")

    def get_user(self, user: str) -> str:
        return self._shown_user(user, record_of("user", user, self._world.users))

    def get_order(self, order: str) -> str:
        return as_json({"order": order, **self._order(order).model_dump(exclude_defaults=True)})

    def get_product(self, product: str) -> str:
        row = record_of("product", product, self._world.products)
        return as_json({"product": product, **row.model_dump()})

    def list_products(self, kind: str) -> str:
        products = {
            product_id: {"name": product.name, "price": product.price, "stock": product.stock}
            for product_id, product in self._world.products.items()
            if plain(product.kind) == plain(kind)
        }
        if not products:
            kinds = sorted({product.kind for product in self._world.products.values()})
            raise ToolFailure(f"no product is of kind {kind}; kinds: {', '.join(kinds)}")
        return as_json(products)

    def cancel_order(self, order: str, reason: str) -> str:
        row = self._order_that_is("pending", order)
        row.reason = short("reason", reason)
        row.status = "cancelled"
        for item in row.items:
            self._world.products[item].stock += 1
        return f"cancelled {order}"

    def change_address(self, order: str, address: str) -> str:
        row = self._order_that_is("pending", order)
        row.address = short("address", address)
        return f"{order} goes to {address}"

    def move_user(self, user: str, address: str) -> str:
        record_of("user", user, self._world.users).address = short("address", address)
        return f"{user} lives at {address}"

    def exchange_item(self, order: str, item: str, product: str) -> str:
        row = self._order(order)
        if row.status not in ("pending", "delivered"):
            raise ToolFailure(f"order {order} is {row.status}: nothing of it can be exchanged")
        self._check_items(order, row, [item])
        new = record_of("product", product, self._world.products)
        old = self._world.products[item]
        if new.kind != old.kind:
            raise ToolFailure(f"{item} is a {old.kind} and {product} is a {new.kind}")
        if product == item:
            raise ToolFailure(f"{item} is what the order has already")
        if new.stock < 1:
            raise ToolFailure(f"{product} is not in stock")
        new.stock -= 1
        old.stock += 1
        place = row.items.index(item)
        row.items = [*row.items[:place], product, *row.items[place + 1 :]]
        return f"exchanged {item} for {product} in {order}"

    def return_items(self, order: str, items: Sequence[str]) -> str:
        row = self._order_that_is("delivered", order)
        if not items:
            raise ToolFailure("no items were given: expected at least one")
        self._check_items(order, row, items)
        # In one order whatever the order of the calls: what comes back is a set.
        row.returned = sorted([*row.returned, *items])
        return f"{' '.join(items)} of {order} comes back"

    def hand_over(self, why: str) -> str:
        short("why", why)
        self._world.handed_over = True
        return "a colleague takes over"

    def _shown_user(self, user_id: str, user: ShopUser) -> str:
        orders = [name for name, order in self._world.orders.items() if order.user == user_id]
        return as_json({"user": user_id, **user.model_dump(), "orders": orders})

    def _order(self, order: str) -> Order:
        return record_of("order", order, self._world.orders)

    def _order_that_is(self, status: str, order: str) -> Order:
        row = self._order(order)
        if row.status != status:
            raise ToolFailure(f"order {order} is {row.status}, not {status}")
        return row

    def _check_items(self, order: str, row: Order, items: Sequence[str]) -> None:
        """Raises ToolFailure when the order has not, or no longer, all of these."""
        left = Counter(row.items) - Counter(row.returned)
        missing = Counter(items) - left
        if missing:
            raise ToolFailure(
                f"order {order} has no {', '.join(missing)} left; it has: {_list(left)}"
            )


_CALLS: Mapping[str, Callable[..., str]] = MappingProxyType(
    {schema["function"]["name"]: getattr(ShopTools, schema["function"]["name"]) for schema in TOOLS}
)


def make(task: ToolTask, context: ToolContext) -> ShopTools:
    """The shop that the task's state describes. Raises TaskError for a wrong state."""
    return ShopTools(read_world(task.state.get("shop", {})))


def _list(items: Counter[str]) -> str:
    return ", ".join(sorted(items.elements())) or "nothing"
