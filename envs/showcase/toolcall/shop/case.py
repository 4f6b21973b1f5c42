"""One drawn shop with the order that a task is about, before anything is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clawrl_gym.agents.tool_calls import Call, Reply
from clawrl_gym.core.types import Json
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.toolcall.shop.world import Order, Product, ShopUser, World
from clawrl_gym.envs.toolcall.task import Goal

FIRST_NAMES = (
    "Ana", "Ben", "Carla", "Dario", "Elif", "Felix", "Greta", "Hugo", "Ines", "Jonas",
    "Kira", "Liam", "Mara", "Nils", "Olga", "Pavel", "Rosa", "Sven", "Tara", "Viktor",
)  # fmt: skip
LAST_NAMES = (
    "Abel", "Brandt", "Costa", "Duval", "Eriksen", "Fischer", "Garcia", "Horvat", "Ivanov",
    "Jansen", "Keller", "Lopez", "Moreau", "Novak", "Olsen", "Peters", "Rossi", "Silva", "Toth",
)  # fmt: skip
STREETS = ("River Road", "Mill Lane", "Park Street", "Hill Road", "Lake Lane", "Station Street")
KINDS = ("lamp", "chair", "kettle", "jacket", "backpack", "clock", "blanket", "teapot")
COLOURS = ("red", "blue", "green", "black", "white", "yellow")
REASONS = {
    "no longer needed": "I no longer need it.",
    "ordered by mistake": "I ordered it by mistake.",
}
"""Why an order may be cancelled, and how a customer puts it."""
DAYS = 30
"""Days after the delivery in which items may come back."""


@dataclass(frozen=True, slots=True)
class ShopRequest:
    """A family's request in its shop."""

    opening: str
    customer: Mapping[str, object]
    """Script of the customer."""
    solution: tuple[Reply, ...]
    goals: tuple[Goal, ...] = ()
    """Goals beside the state that the solution leaves and the look at who asks."""
    is_user: bool = True
    """Whether the customer is one."""


@dataclass(slots=True)
class ShopCase:
    """A shop, the customer, and an order of theirs that the task is about."""

    draw: Draw
    world: World
    user_id: str
    order_id: str
    other_id: str
    """Another order of the customer: pending."""
    strange_id: str
    """A pending order of somebody else."""
    _calls: int = field(default=0)

    @property
    def user(self) -> ShopUser:
        return self.world.users[self.user_id]

    @property
    def order(self) -> Order:
        return self.world.orders[self.order_id]

    def name_of(self, item: str) -> str:
        return self.world.products[item].name

    def price_of(self, items: Sequence[str]) -> int:
        return sum(self.world.products[item].price for item in items)

    def call(self, tool: str, **arguments: object) -> Reply:
        """A reply with one call."""
        self._calls += 1
        return Reply("", (Call(f"call-{self._calls}", tool, json.dumps(arguments)),))

    def identify(self) -> tuple[Reply, Reply]:
        """The first turn of every task: who is it?"""
        question = Reply("What is your zip, please?")
        return question, self.call("find_user", name=self.user.name, zip=self.user.zip)

    def script(
        self, wish: str, answers: Sequence[Json] = (), zip_code: str = "", **fields: object
    ) -> dict[str, object]:
        """A customer with this wish who knows name and zip: the own one, or `zip_code`."""
        knows = [
            {
                "when": ["zip", "postal code", "post code"],
                "say": f"My zip is {zip_code or self.user.zip}.",
            },
            {"when": ["name", "who"], "say": f"My name is {self.user.name}."},
        ]
        return {"type": "script", "answers": [*knows, *answers], "unsure": wish, **fields}

    def other_address(self) -> str:
        """An address that is nobody's."""
        used = {user.address for user in self.world.users.values()}
        while (address := draw_address(self.draw)) in used:
            pass
        return address


def draw_case(draw: Draw, status: str, *, days: int = 0, items: int = 2) -> ShopCase:
    """A shop with an order of `items` different items in this status, and others around it."""
    world = World()
    kinds = draw.some(KINDS, 4)
    for kind in kinds:
        for colour in draw.some(COLOURS, 4):
            product = f"p{_fresh(draw, world.products, 100)}"
            world.products[product] = Product(
                name=f"{colour} {kind}", kind=kind, price=draw.between(10, 90), stock=0
            )
    for kind in kinds:  # one of each kind is out of stock, so that stock has to be looked at
        for product in draw.some(_of_kind(world, kind), 3):
            world.products[product].stock = draw.between(1, 9)
    names = zip(draw.some(FIRST_NAMES, 3), draw.some(LAST_NAMES, 3), strict=True)
    for first, last in names:
        user = f"u{_fresh(draw, world.users, 10)}"
        code = str(draw.between(10_000, 99_999))
        world.users[user] = ShopUser(name=f"{first} {last}", zip=code, address=draw_address(draw))
    customer, _, stranger = list(world.users)
    bought = [draw.pick(_of_kind(world, kind)) for kind in draw.some(kinds, items)]
    order_id = _order(draw, world, customer, bought, status, days)
    other_order = _order(draw, world, customer, draw.some(list(world.products), 1), "pending")
    foreign_order = _order(draw, world, stranger, draw.some(list(world.products), 2), "pending")
    _order(draw, world, list(world.users)[1], draw.some(list(world.products), 2), "shipped")
    return ShopCase(draw, world, customer, order_id, other_order, foreign_order)


def draw_swap(case: ShopCase, *, stocked: bool) -> tuple[str, str]:
    """An item of the order, and another product of its kind that is in stock or is not."""
    rows = case.world.products
    item = case.draw.pick(case.order.items)
    same_kind = [p for p in rows if p != item and rows[p].kind == rows[item].kind]
    product = case.draw.pick(same_kind)
    rows[product].stock = case.draw.between(1, 9) if stocked else 0
    return item, product


def draw_address(draw: Draw) -> str:
    return f"{draw.between(1, 99)} {draw.pick(STREETS)}"


def _of_kind(world: World, kind: str) -> list[str]:
    return [name for name, product in world.products.items() if product.kind == kind]


def _order(
    draw: Draw, world: World, user: str, items: list[str], status: str, days: int = 0
) -> str:
    name = f"W{_fresh(draw, world.orders, 1000)}"
    world.orders[name] = Order.model_validate(
        {
            "user": user,
            "status": status,
            "items": items,
            "address": world.users[user].address,
            "days": days,
        }
    )
    return name


def _fresh(draw: Draw, ids: Mapping[str, object], low: int) -> int:
    """A number of one length whose id is not taken, whatever letter stands before it."""
    numbers = {int(name[1:]) for name in ids}
    while (number := draw.between(low, 10 * low - 1)) in numbers:
        pass
    return number
