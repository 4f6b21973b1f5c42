"""State of a shop: users, orders and products, each by its id.

{"users": {"u1": {"name": "Ana Lee", "zip": "10234", "address": "3 River Road"}},
 "orders": {"W12": {"user": "u1", "status": "pending", "items": ["p7"], "address": "3 River Road"}},
 "products": {"p7": {"name": "red lamp", "kind": "lamp", "price": 20, "stock": 3}}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clawrl_gym.core.errors import TaskError


class _ShopModel(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class ShopUser(_ShopModel):
    """A buyer."""

    name: str
    zip: str = ""
    address: str = ""


class Order(_ShopModel):
    """An order and its status."""

    user: str
    status: Literal["pending", "shipped", "delivered", "cancelled"] = "pending"
    items: list[str]
    """Products; one twice when it was bought twice."""
    address: str = ""
    days: int = 0
    """Days since it was delivered; 0 before."""
    reason: str = ""
    """Why it was cancelled."""
    returned: list[str] = Field(default_factory=list)
    """Items of the order that come back."""
    notes: list[str] = Field(default_factory=list)
    """Notes on other events, such as a coupon."""


class Product(_ShopModel):
    """A product for sale."""

    name: str
    kind: str = ""
    """Products of one kind may be exchanged for each other."""
    price: int = 0
    """Price in whole dollars."""
    stock: int = 1


class World(_ShopModel):
    """One shop."""

    users: dict[str, ShopUser] = Field(default_factory=dict)
    orders: dict[str, Order] = Field(default_factory=dict)
    products: dict[str, Product] = Field(default_factory=dict)
    handed_over: bool = False
    """Whether a human colleague was called."""


def read_world(state: Mapping[str, object]) -> World:
    """The shop of a task's state; a copy. Raises TaskError for what is none."""
    try:
        world = World.model_validate(state)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise TaskError(f"the shop's state is wrong at {where!r}: {first['msg']}") from None
    for name, order in world.orders.items():
        missing = [item for item in order.items if item not in world.products]
        if missing or order.user not in world.users:
            raise TaskError(
                f"the shop's order {name!r} is of user {order.user!r} with items {order.items!r}, "
                "expected ids that are in its users and products"
            )
    return world
