"""A shop: things of several kinds, a search, a basket with a coupon, orders to cancel or return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clawrl_gym.envs.gui.apps.html import (
    Html,
    bullets,
    button,
    choice,
    form,
    heading,
    link,
    notice,
    number_field,
    page,
    paragraph,
    path_to,
    radio,
    see_other,
    table,
    text_field,
)
from clawrl_gym.envs.gui.apps.serving import Refused, filled, serve, whole
from clawrl_gym.envs.gui.site import Request, Response

HOST = "shop"
MENU = (link("Shop", "/"), link("Basket", "/basket"), link("Orders", "/orders"))
PAYMENTS = ("card", "cash", "bill")
REASONS = ("broken", "too small", "too late", "not wanted")
ROWS = 5
"""Things on one page of a list."""
MOST = 99
"""Pieces of one thing in a basket."""
FIRST_ORDER = 100


class Shop:
    """World: items (price, stock, kind, sizes), coupons, basket, coupon, orders."""

    def __init__(self, world: Any) -> None:
        self._items: Mapping[str, Any] = world["items"]
        self._coupons: Mapping[str, int] = world.get("coupons", {})
        self._basket: dict[str, int] = world.get("basket", {})
        self._coupon: str = world.get("coupon", "")
        self._orders: dict[str, Any] = world.get("orders", {})

    def handle(self, request: Request) -> Response:
        """Answer a request; what is refused changes nothing."""
        pages = {
            "": self._home,
            "kind": self._kind,
            "search": self._search,
            "item": self._item,
            "basket": self._show_basket,
            "checkout": self._form,
            "orders": self._list_orders,
            "order": self._show_order,
        }
        changes = {
            "item": self._add,
            "basket": self._change,
            "coupon": self._use,
            "checkout": self._buy,
            "order": self._undo,
        }
        return serve(request, pages, changes, "Shop", MENU)

    def state(self) -> Any:
        """Basket, coupon in use, orders."""
        return {"basket": self._basket, "coupon": self._coupon, "orders": self._orders}

    def _home(self, request: Request, rest: str) -> Response:
        kinds = sorted({item["kind"] for item in self._items.values()})
        if len(kinds) == 1:
            return self._listed("Shop", "/", list(self._items), request)
        shown = bullets([(link(kind, f"/kind/{kind}"),) for kind in kinds])
        return page("Shop", heading("Shop"), _search_form(), shown, menu=MENU)

    def _kind(self, request: Request, rest: str) -> Response:
        names = [name for name, item in self._items.items() if item["kind"] == rest]
        if not names:
            raise Refused("There is no such kind of thing.", 404)
        return self._listed(rest, f"/kind/{rest}", names, request)

    def _search(self, request: Request, rest: str) -> Response:
        query = " ".join(request.query.get("q", "").casefold().split())
        names = [name for name in self._items if query and query in name]
        return self._listed("Search", "/search", names, request, query)

    def _listed(
        self, title: str, path: str, names: Sequence[str], request: Request, query: str = ""
    ) -> Response:
        pages = max(1, -(-len(names) // ROWS))
        number = whole(request.query.get("page", "1"), "The page", 1, pages)
        rows = [
            (link(name, f"/item/{name}"), _coins(self._items[name]["price"]))
            for name in names[(number - 1) * ROWS : number * ROWS]
        ]
        asked = {"q": query} if query else {}
        turns = [
            link(text, path_to(path, **asked, page=place))
            for text, place in (("Back", number - 1), ("More", number + 1))
            if 1 <= place <= pages
        ]
        shown = table(rows) if rows else notice("Nothing was found.")
        blocks = [heading(title), _search_form(query), shown]
        return page(title, *blocks, *([paragraph(*turns)] if turns else []), menu=MENU)

    def _item(self, request: Request, rest: str) -> Response:
        item = self._known(rest)
        told = [heading(rest), paragraph(f"{_coins(item['price'])}, {item['stock']} left")]
        if not item["stock"]:
            return page(rest, *told, notice("Sold out."), menu=MENU)
        sizes = [choice("Size", "size", item["sizes"])] if item.get("sizes") else []
        field = number_field("Number", "count", 1)
        bought = paragraph(*sizes, field, button("Add to basket"))
        return page(rest, *told, form(f"/item/{rest}", bought), menu=MENU)

    def _add(self, request: Request, rest: str) -> Response:
        item = self._known(rest)
        added = whole(request.form.get("count", ""), "The number", 1, MOST)
        line = rest
        if item.get("sizes"):
            size = filled(request, "size", "The size")
            if size not in item["sizes"]:
                raise Refused("There is no such size.")
            line = f"{rest}, {size}"
        count = self._basket.get(line, 0) + added
        self._check(line, count)
        self._basket[line] = count
        return see_other("/basket")

    def _check(self, line: str, count: int) -> None:
        """Refused when the shop does not have so many."""
        stock = self._known(line.partition(",")[0])["stock"]
        if count > min(stock, MOST):
            raise Refused(f"There are only {stock} of {line} left.")

    def _known(self, name: str) -> Mapping[str, Any]:
        if name not in self._items:
            raise Refused("We do not sell this.", 404)
        found: Mapping[str, Any] = self._items[name]
        return found

    def _show_basket(self, request: Request, rest: str) -> Response:
        if not self._basket:
            return page("Basket", heading("Basket"), notice("It is empty."), menu=MENU)
        rows = [
            (
                line,
                number_field("Number", f"count {line}", count),
                button("Remove", "remove", line),
            )
            for line, count in self._basket.items()
        ]
        total = paragraph(f"Sum: {_coins(self._sum())}", button("Save"))
        used = self._coupon and notice(f"Coupon {self._coupon} is used.")
        coupon = form("/coupon", paragraph(text_field("Coupon", "code"), button("Use")))
        return page(
            "Basket",
            heading("Basket"),
            form("/basket", total, table(rows)),
            *([coupon] if self._coupons and not used else []),
            *([used] if used else []),
            paragraph(link("Check out", "/checkout")),
            menu=MENU,
        )

    def _change(self, request: Request, rest: str) -> Response:
        if "remove" in request.form:
            if self._basket.pop(request.form["remove"], None) is None:
                raise Refused("This is not in the basket.")
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
            raise Refused("There is no such coupon.")
        self._coupon = code
        return see_other("/basket")

    def _sum(self) -> int:
        full: int = sum(
            self._known(line.partition(",")[0])["price"] * count
            for line, count in self._basket.items()
        )
        return full - full * self._coupons.get(self._coupon, 0) // 100

    def _form(self, request: Request, rest: str) -> Response:
        if not self._basket:
            raise Refused("The basket is empty.")
        paid = (radio(way, "payment", way, way == PAYMENTS[0]) for way in PAYMENTS)
        fields = (
            paragraph(text_field("Name", "name")),
            paragraph(text_field("Address", "address")),
            paragraph("Payment:", *paid),
            paragraph(button("Order")),
        )
        total = paragraph(f"Sum: {_coins(self._sum())}")
        return page("Check out", heading("Check out"), total, form("/checkout", *fields), menu=MENU)

    def _buy(self, request: Request, rest: str) -> Response:
        if not self._basket:
            raise Refused("The basket is empty.")
        payment = filled(request, "payment", "The payment")
        if payment not in PAYMENTS:
            raise Refused("You cannot pay in this way.")
        number = str(max(map(int, self._orders), default=FIRST_ORDER) + 1)
        order = {
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

    def _list_orders(self, request: Request, rest: str) -> Response:
        rows = [
            (link(f"Order {number}", f"/order/{number}"), order["status"], _coins(order["sum"]))
            for number, order in self._orders.items()
        ]
        shown = table(rows) if rows else notice("You have ordered nothing.")
        return page("Orders", heading("Orders"), shown, menu=MENU)

    def _ordered(self, number: str) -> dict[str, Any]:
        if number not in self._orders:
            raise Refused("There is no such order.", 404)
        found: dict[str, Any] = self._orders[number]
        return found

    def _show_order(self, request: Request, rest: str) -> Response:
        order = self._ordered(rest)
        items = bullets([(f"{count} {line}",) for line, count in order["items"].items()])
        told = paragraph(f"To {order['name']}, {order['address']}. Paid by {order['payment']}.")
        status = paragraph(f"{_coins(order['sum'])}, {order['status']}")
        undo: tuple[Html, ...] = ()
        if order["status"] == "open":
            undo = (form(f"/order/{rest}", paragraph(button("Cancel order", "do", "cancel"))),)
        if order["status"] == "delivered":
            why = choice("Reason", "reason", REASONS)
            undo = (form(f"/order/{rest}", paragraph(why, button("Return", "do", "return"))),)
        return page(
            f"Order {rest}", heading(f"Order {rest}"), items, told, status, *undo, menu=MENU
        )

    def _undo(self, request: Request, rest: str) -> Response:
        order = self._ordered(rest)
        change = (request.form.get("do"), order["status"])
        if change == ("cancel", "open"):
            order["status"] = "cancelled"
        elif change == ("return", "delivered"):
            reason = filled(request, "reason", "The reason")
            if reason not in REASONS:
                raise Refused("There is no such reason.")
            order |= {"status": "returned", "reason": reason}
        else:
            raise Refused(f"This cannot be done: the order is {order['status']}.")
        return see_other(f"/order/{rest}")


def _search_form(query: str = "") -> Html:
    fields = paragraph(text_field("Search", "q", query), button("Search"))
    return form("/search", fields, method="get")


def _coins(price: int) -> str:
    return f"{price} coins"
