"""The tools of tau-bench's retail shop over its data: users, orders and products as it has them.

Names, arguments and what they do to the data are tau-bench's, so that its gold actions leave what
they leave there; `Tau2Retail` is the same shop as tau2-bench has it. What an episode changes is its
state.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import ClassVar, NotRequired, TypedDict

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Json, Tool
from clawrl_gym.envs.toolcall.benchmarks.tau_domain import Table, call_method
from clawrl_gym.envs.toolcall.benchmarks.tau_retail_tools import ADDRESS, REASONS, TOOLS
from clawrl_gym.envs.toolcall.task import ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolContext, ToolFailure
from clawrl_gym.envs.toolcall.toolsets.calculator import calculate

NAME, NAME_2 = "tau_retail", "tau2_retail"
TABLES = ("users", "orders", "products")


class FullName(TypedDict):
    first_name: str
    last_name: str


class PaymentMethod(TypedDict):
    source: str
    balance: NotRequired[float]
    """Balance of a gift card."""


class RetailUser(TypedDict):
    name: FullName
    address: dict[str, str]
    email: str
    payment_methods: dict[str, PaymentMethod]


class OrderItem(TypedDict):
    product_id: str
    item_id: str
    price: float
    options: dict[str, str]


class Payment(TypedDict):
    transaction_type: str
    amount: float
    payment_method_id: str


class RetailOrder(TypedDict):
    user_id: str
    address: dict[str, str]
    items: list[OrderItem]
    status: str
    payment_history: list[Payment]
    cancel_reason: NotRequired[str]
    exchange_items: NotRequired[list[str]]
    exchange_new_items: NotRequired[list[str]]
    exchange_payment_method_id: NotRequired[str]
    exchange_price_difference: NotRequired[float]
    return_items: NotRequired[list[str]]
    return_payment_method_id: NotRequired[str]


class Variant(TypedDict):
    available: bool
    price: float
    options: dict[str, str]


class RetailProduct(TypedDict):
    name: str
    product_id: str
    variants: dict[str, Variant]
    """Variants by item id."""


class RetailData(TypedDict):
    """Rows by table and id, with the fields that the tools use. What is loaded is never written."""

    users: dict[str, RetailUser]
    orders: dict[str, RetailOrder]
    products: dict[str, RetailProduct]


class TauRetail:
    """tau-bench's retail shop in one episode."""

    _tools: ClassVar[Sequence[Tool]] = TOOLS

    def __init__(self, data: RetailData) -> None:
        self._products = data["products"]
        self._users = Table("user", data["users"])
        self._orders = Table("order", data["orders"])

    def tools(self) -> list[Tool]:
        return list(self._tools)

    def call(self, name: str, arguments: Json, timeout_s: float) -> str:
        names = [one["function"]["name"] for one in self._tools]
        if name not in names:
            raise ToolFailure(f"there is no such tool; tools: {', '.join(names)}")
        return call_method(self, name, arguments)

    def state(self) -> RetailData:
        """The rows that are other than at the start, by table and id; no tool writes products."""
        return {
            "users": self._users.changes(),
            "orders": self._orders.changes(),
            "products": {},
        }

    def close(self) -> None:
        """Nothing is open."""

    def find_user_id_by_email(self, email: str) -> str:
        return self._find(lambda user: user["email"].lower() == email.lower())

    def find_user_id_by_name_zip(self, first_name: str, last_name: str, zip: str) -> str:
        identity = (first_name.lower(), last_name.lower(), zip)
        return self._find(
            lambda user: (
                (
                    user["name"]["first_name"].lower(),
                    user["name"]["last_name"].lower(),
                    user["address"]["zip"],
                )
                == identity
            )
        )

    def get_user_details(self, user_id: str) -> str:
        return json.dumps(self._users.row(user_id))

    def get_order_details(self, order_id: str) -> str:
        return json.dumps(self._orders.row(order_id))

    def get_product_details(self, product_id: str) -> str:
        if product_id not in self._products:
            raise ToolFailure("product not found")
        return json.dumps(self._products[product_id])

    def get_item_details(self, item_id: str) -> str:
        for product in self._products.values():
            if item_id in product["variants"]:
                return json.dumps(product["variants"][item_id])
        raise ToolFailure("item not found")

    def list_all_product_types(self) -> str:
        products = self._products.values()
        return json.dumps(
            dict(sorted((product["name"], product["product_id"]) for product in products))
        )

    def cancel_pending_order(self, order_id: str, reason: str) -> str:
        order = self._order_that_is("pending", order_id)
        if reason not in REASONS:
            raise ToolFailure(f"expected the reason to be one of: {', '.join(REASONS)}")
        refunds: list[Payment] = []
        for paid in order["payment_history"]:
            method, amount = paid["payment_method_id"], paid["amount"]
            refunds.append(_payment("refund", amount, method))
            if "gift_card" in method:
                self._add(order["user_id"], method, amount)
        order = self._orders.edit(order_id)
        order["status"] = "cancelled"
        order["cancel_reason"] = reason
        order["payment_history"] += refunds
        return json.dumps(order)

    def modify_pending_order_address(self, order_id: str, **address: str) -> str:
        self._pending_order(order_id)
        order = self._orders.edit(order_id)
        order["address"] = {name: address[name] for name in ADDRESS}
        return json.dumps(order)

    def modify_user_address(self, user_id: str, **address: str) -> str:
        self._users.row(user_id)
        user = self._users.edit(user_id)
        user["address"] = {name: address[name] for name in ADDRESS}
        return json.dumps(user)

    def modify_pending_order_items(
        self,
        order_id: str,
        item_ids: Sequence[str],
        new_item_ids: Sequence[str],
        payment_method_id: str,
    ) -> str:
        order = self._order_that_is("pending", order_id)
        difference = self._price_difference(order, item_ids, new_item_ids)
        method = self._method(order, payment_method_id)
        self._check_balance(method, difference)
        if method["source"] == "gift_card":
            self._add(order["user_id"], payment_method_id, -difference)
        order = self._orders.edit(order_id)
        kind = "payment" if difference > 0 else "refund"
        order["payment_history"].append(_payment(kind, abs(difference), payment_method_id))
        self._swap(order, item_ids, new_item_ids)
        order["status"] = "pending (item modified)"
        return json.dumps(order)

    def modify_pending_order_payment(self, order_id: str, payment_method_id: str) -> str:
        order = self._pending_order(order_id)
        method = self._method(order, payment_method_id)
        history = order["payment_history"]
        if len(history) != 1 or history[0]["transaction_type"] != "payment":
            raise ToolFailure("expected exactly one payment of the order")
        former, amount = history[0]["payment_method_id"], history[0]["amount"]
        if former == payment_method_id:
            raise ToolFailure("it is paid in this way already")
        self._check_balance(method, amount)
        if method["source"] == "gift_card":
            self._add(order["user_id"], payment_method_id, -amount)
        if "gift_card" in former:
            self._add(order["user_id"], former, amount)
        order = self._orders.edit(order_id)
        order["payment_history"] += [
            _payment("payment", amount, payment_method_id),
            _payment("refund", amount, former),
        ]
        return json.dumps(order)

    def exchange_delivered_order_items(
        self,
        order_id: str,
        item_ids: Sequence[str],
        new_item_ids: Sequence[str],
        payment_method_id: str,
    ) -> str:
        order = self._order_that_is("delivered", order_id)
        difference = round(self._price_difference(order, item_ids, new_item_ids), 2)
        self._check_balance(self._method(order, payment_method_id), difference)
        order = self._orders.edit(order_id)
        order["status"] = "exchange requested"
        order["exchange_items"] = sorted(item_ids)
        order["exchange_new_items"] = sorted(new_item_ids)
        order["exchange_payment_method_id"] = payment_method_id
        order["exchange_price_difference"] = difference
        return json.dumps(order)

    def return_delivered_order_items(
        self, order_id: str, item_ids: Sequence[str], payment_method_id: str
    ) -> str:
        order = self._order_that_is("delivered", order_id)
        self._method(order, payment_method_id)
        paid = order["payment_history"][0]["payment_method_id"]
        if "gift_card" not in payment_method_id and payment_method_id != paid:
            raise ToolFailure("expected the payment method of the order or a gift card")
        _check_items(order, item_ids)
        order = self._orders.edit(order_id)
        order["status"] = "return requested"
        order["return_items"] = sorted(item_ids)
        order["return_payment_method_id"] = payment_method_id
        return json.dumps(order)

    def calculate(self, expression: str) -> str:
        return calculate(expression)

    def think(self, thought: str) -> str:
        return ""

    def transfer_to_human_agents(self, summary: str) -> str:
        return "Transfer successful"

    def _find(self, fits: Callable[[RetailUser], bool]) -> str:
        for user_id in self._users.ids():
            if fits(self._users.row(user_id)):
                return user_id
        raise ToolFailure("user not found")

    def _swap(
        self, order: RetailOrder, item_ids: Sequence[str], new_item_ids: Sequence[str]
    ) -> None:
        for old, new in zip(item_ids, new_item_ids, strict=True):
            item = _item(order, old)
            variant = self._products[item["product_id"]]["variants"][new]
            item.update({"item_id": new, "price": variant["price"], "options": variant["options"]})

    def _pending_order(self, order_id: str) -> RetailOrder:
        """An order whose address and payment may be changed."""
        return self._order_that_is("pending", order_id)

    def _order_that_is(self, status: str, order_id: str) -> RetailOrder:
        order = self._orders.row(order_id)
        if order["status"] != status:
            raise ToolFailure(f"the order is {order['status']}, not {status}")
        return order

    def _method(self, order: RetailOrder, method: str) -> PaymentMethod:
        methods = self._users.row(order["user_id"])["payment_methods"]
        if method not in methods:
            raise ToolFailure("payment method not found")
        return methods[method]

    def _check_balance(self, method: PaymentMethod, amount: float) -> None:
        if method["source"] == "gift_card" and method["balance"] < amount:
            raise ToolFailure("the balance of the gift card is too low")

    def _add(self, user_id: str, card: str, amount: float) -> None:
        method = self._users.edit(user_id)["payment_methods"][card]
        method["balance"] = round(method["balance"] + amount, 2)

    def _price_difference(
        self, order: RetailOrder, item_ids: Sequence[str], new_item_ids: Sequence[str]
    ) -> float:
        """Price of the new items minus the old. Raises ToolFailure when they cannot be had."""
        _check_items(order, item_ids)
        if len(item_ids) != len(new_item_ids):
            raise ToolFailure("expected as many new items as items")
        difference: float = 0
        for old, new in zip(item_ids, new_item_ids, strict=True):
            item = _item(order, old)
            variant = self._products[item["product_id"]]["variants"].get(new)
            if variant is None or not variant["available"]:
                raise ToolFailure(f"new item {new[:40]} not found or not available")
            difference += variant["price"] - item["price"]
        return difference


class Tau2Retail(TauRetail):
    """tau2-bench's shop: an order stays pending when its items are modified, and all new items get
    the price and the options of the last one, as they do there."""

    _tools = tuple(one for one in TOOLS if one["function"]["name"] != "think")

    def _pending_order(self, order_id: str) -> RetailOrder:
        order = self._orders.row(order_id)
        if "pending" not in order["status"]:
            raise ToolFailure(f"the order is {order['status']}, not pending")
        return order

    def modify_pending_order_items(
        self,
        order_id: str,
        item_ids: Sequence[str],
        new_item_ids: Sequence[str],
        payment_method_id: str,
    ) -> str:
        if any(old == new for old, new in zip(item_ids, new_item_ids, strict=False)):
            raise ToolFailure("expected new items that are other than the old ones")
        return super().modify_pending_order_items(
            order_id, item_ids, new_item_ids, payment_method_id
        )

    def _swap(
        self, order: RetailOrder, item_ids: Sequence[str], new_item_ids: Sequence[str]
    ) -> None:
        if not item_ids:
            return
        product = self._products[_item(order, item_ids[-1])["product_id"]]
        last = product["variants"][new_item_ids[-1]]
        for old, new in zip(item_ids, new_item_ids, strict=True):
            _item(order, old).update(
                {"item_id": new, "price": last["price"], "options": last["options"]}
            )


def make(task: ToolTask, context: ToolContext) -> TauRetail:
    """The shop over the task's data. Raises TaskError when there is none."""
    return TauRetail(_data(task, NAME))


def make_second(task: ToolTask, context: ToolContext) -> Tau2Retail:
    """The same of tau2-bench."""
    return Tau2Retail(_data(task, NAME_2))


def _data(task: ToolTask, name: str) -> RetailData:
    data: RetailData = task.state.get(name, {})
    if set(data) != set(TABLES):
        raise TaskError(f"task {task.id!r}: expected its state to have tau-bench's retail data")
    return data


def _item(order: RetailOrder, item_id: str) -> OrderItem:
    return next(item for item in order["items"] if item["item_id"] == item_id)


def _check_items(order: RetailOrder, item_ids: Sequence[str]) -> None:
    missing = Counter(item_ids) - Counter(item["item_id"] for item in order["items"])
    if missing:
        raise ToolFailure(f"the order has no item {next(iter(missing))[:40]}")


def _payment(kind: str, amount: float, method: str) -> Payment:
    return {"transaction_type": kind, "amount": amount, "payment_method_id": method}
