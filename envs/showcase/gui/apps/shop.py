"""A shop: things of several kinds, a search, a basket with a coupon, orders to cancel or return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, TypedDict

from clawrl_gym.envs.gui.site import Request, Response
from clawrl_gym.envs.showcase.gui.apps.serving import (
    RequestRefused,
    filled,
    list_part,
    next_number,
    page,
    see_other,
    serve,
    whole,
)

HOST = "shop"
MENU = (("Shop", "/"), ("Basket", "/basket"), ("Orders", "/orders"))
PAYMENTS = ("card", "cash", "bill")
REASONS = ("broken", "too small", "too late", "not wanted")
PAGE_SIZE = 5
"""Things on one page of a list."""
MOST = 99
"""Pieces of one thing in a basket."""
FIRST_ORDER = 100


class Item(TypedDict):
    """Something that is sold; `price` in coins, `stock` is how many are left."""

    price: int
    stock: int
    kind: str
    sizes: NotRequired[list[str]]


class PlacedOrder(TypedDict):
    name: str
    address: str
    payment: str
    items: dict[str, int]
    sum: int
    status: str
    reason: NotRequired[str]


"""A purchase; `reason` says why it was returned."""


class ShopWorld(TypedDict):
    """Stored state: items by name, percents by coupon, counts by item, orders by number."""

    items: dict[str, Item]
    coupons: NotRequired[dict[str, int]]
    basket: NotRequired[dict[str, int]]
    coupon: NotRequired[str]
    orders: NotRequired[dict[str, PlacedOrder]]


class Shop:
    """The site."""

    def __init__(self, world: ShopWorld) -> None:
        self._items = world["items"]
        self._coupons = world.get("coupons", {})
        self._basket = world.get("basket", {})
        self._coupon = world.get("coupon", "")
        self._orders = world.get("orders", {})

    def handle(self, request: Request) -> Response:
        """Answer a request; what is refused changes nothing."""
        pages = {
            "": self._home_page,
            "kind": self._kind_page,
            "search": self._search_page,
            "item": self._item_page,
            "basket": self._basket_page,
            "checkout": self._checkout_page,
            "orders": self._orders_page,
            "order": self._order_page,
        }
        changes = {
            "item": self._add,
            "basket": self._change,
            "coupon": self._use,
            "checkout": self._buy,
            "order": self._undo,
        }
        return serve(request, pages, changes, "Shop", MENU)

    def state(self) -> object:
        """Basket, coupon in use, orders."""
        return {"basket": self._basket, "coupon": self._coupon, "orders": self._orders}

    def _home_page(self, request: Request, rest: str) -> Response:
        kinds = sorted({item["kind"] for item in self._items.values()})
        if len(kinds) == 1:
            return self._list_page("Shop", "/", list(self._items), request)
        return page("shop/kinds", "Shop", MENU, query="", kinds=kinds)

    def _kind_page(self, request: Request, rest: str) -> Response:
        names = [name for name, item in self._items.items() if item["kind"] == rest]
        if not names:
            raise RequestRefused("There is no such kind of thing.", 404)
        return self._list_page(rest, f"/kind/{rest}", names, request)

    def _search_page(self, request: Request, rest: str) -> Response:
        query = " ".join(request.query.get("q", "").casefold().split())
        names = [name for name in self._items if query and query in name]
        return self._list_page("Search", "/search", names, request, query)

    def _list_page(
        self, title: str, path: str, names: Sequence[str], request: Request, query: str = ""
    ) -> Response:
        names_of_page, turns = list_part(request, path, names, PAGE_SIZE, query)
        return page(
            "shop/list",
            title,
            MENU,
            query=query,
            items=[(name, self._items[name]) for name in names_of_page],
            turns=turns,
        )

    def _item_page(self, request: Request, rest: str) -> Response:
        item = self._item(rest)
        return page("shop/item", rest, MENU, item=item, sizes=item.get("sizes"))

    def _add(self, request: Request, rest: str) -> Response:
        item = self._item(rest)
        added = whole(request.form.get("count", ""), "The number", 1, MOST)
        line = rest
        if sizes := item.get("sizes"):
            size = filled(request, "size", "The size")
            if size not in sizes:
                raise RequestRefused("There is no such size.")
            line = f"{rest}, {size}"
        count = self._basket.get(line, 0) + added
        self._check(line, count)
        self._basket[line] = count
        return see_other("/basket")

    def _check(self, line: str, count: int) -> None:
        """Refused when the shop has fewer."""
        stock = self._item(line.partition(",")[0])["stock"]
        if count > min(stock, MOST):
            raise RequestRefused(f"There are only {stock} of {line} left.")

    def _item(self, name: str) -> Item:
        if name not in self._items:
            raise RequestRefused("We do not sell this.", 404)
        return self._items[name]

    def _basket_page(self, request: Request, rest: str) -> Response:
        return page(
            "shop/basket",
            "Basket",
            MENU,
            basket=self._basket,
            total=self._sum(),
            coupon=self._coupon,
            has_coupons=bool(self._coupons),
        )

    def _change(self, request: Request, rest: str) -> Response:
        if "remove" in request.form:
            if self._basket.pop(request.form["remove"], None) is None:
                raise RequestRefused("This is not in the basket.")
            return see_other("/basket")
        counts = {
            line: whole(request.form.get(f"count {line}", str(count)), "The number", 0, MOST)
            for line, count in self._basket.items()
        }
        for line, count in counts.items():
            self._check(line, count)
        self._basket = {line: count for line, count in counts.items() if count}
        return see_other("/basket")

    def _use(self, request: Request, rest: str) -> Response:
        code = filled(request, "code", "The coupon").casefold()
        if code not in self._coupons:
            raise RequestRefused("There is no such coupon.")
        self._coupon = code
        return see_other("/basket")

    def _sum(self) -> int:
        full = sum(
            self._item(line.partition(",")[0])["price"] * count
            for line, count in self._basket.items()
        )
        return full - full * self._coupons.get(self._coupon, 0) // 100

    def _checkout_page(self, request: Request, rest: str) -> Response:
        if not self._basket:
            raise RequestRefused("The basket is empty.")
        return page("shop/checkout", "Check out", MENU, total=self._sum(), payments=PAYMENTS)

    def _buy(self, request: Request, rest: str) -> Response:
        if not self._basket:
            raise RequestRefused("The basket is empty.")
        payment = filled(request, "payment", "The payment")
        if payment not in PAYMENTS:
            raise RequestRefused("You cannot pay in this way.")
        number = next_number(self._orders, FIRST_ORDER)
        order: PlacedOrder = {
            "name": filled(request, "name", "The name"),
            "address": filled(request, "address", "The address"),
            "payment": payment,
            "items": self._basket,
            "sum": self._sum(),
            "status": "open",
        }
        self._orders[number] = order
        self._basket, self._coupon = {}, ""
        return see_other(f"/order/{number}")

    def _orders_page(self, request: Request, rest: str) -> Response:
        return page("shop/orders", "Orders", MENU, orders=self._orders)

    def _order(self, number: str) -> PlacedOrder:
        if number not in self._orders:
            raise RequestRefused("There is no such order.", 404)
        return self._orders[number]

    def _order_page(self, request: Request, rest: str) -> Response:
        order = self._order(rest)
        return page("shop/order", f"Order {rest}", MENU, number=rest, order=order, reasons=REASONS)

    def _undo(self, request: Request, rest: str) -> Response:
        order = self._order(rest)
        change = (request.form.get("do"), order["status"])
        if change == ("cancel", "open"):
            order["status"] = "cancelled"
        elif change == ("return", "delivered"):
            reason = filled(request, "reason", "The reason")
            if reason not in REASONS:
                raise RequestRefused("There is no such reason.")
            order["status"], order["reason"] = "returned", reason
        else:
            raise RequestRefused(f"This cannot be done: the order is {order['status']}.")
        return see_other(f"/order/{rest}")
