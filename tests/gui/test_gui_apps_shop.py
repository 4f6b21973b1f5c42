"""The shop: what it sells, counts, orders and refuses."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from clawrl_gym.envs.gui.site import Request, Response
from clawrl_gym.envs.showcase.gui.apps.shop import Shop, ShopWorld
from tests.support.gui_sites import state_of

ORDERED: Any = {"name": "Mia", "address": "1 apple", "payment": "cash", "sum": 12}
WORLD: ShopWorld = {
    "items": {
        "kettle": {"price": 12, "stock": 5, "kind": "cups"},
        "lemon": {"price": 3, "stock": 90, "kind": "nuts", "sizes": ["small", "large"]},
        "queen": {"price": 40, "stock": 0, "kind": "cups"},
    },
    "coupons": {"amber": 25},
    "basket": {"kettle": 2},
    "orders": {
        "300": ORDERED | {"items": {"lemon, small": 4}, "status": "open"},
        "301": ORDERED | {"items": {"kettle": 1}, "status": "delivered"},
        "302": ORDERED | {"items": {"kettle": 1}, "status": "sent"},
    },
}
BUYER = {"name": "Tom", "address": "7 river", "payment": "bill"}


@pytest.fixture
def shop() -> Shop:
    return Shop(copy.deepcopy(WORLD))


def get(shop: Shop, path: str, **query: str) -> str:
    response = shop.handle(Request("GET", path, query))
    assert response.status == 200
    return str(response.body)


def post(shop: Shop, path: str, **form: str) -> Response:
    return shop.handle(Request("POST", path, form=form))


def test_a_thing_is_added_to_what_is_there(shop: Shop) -> None:
    answer = post(shop, "/item/kettle", count="3")
    assert (answer.status, answer.headers["location"]) == (303, "/basket")
    assert state_of(shop)["basket"] == {"kettle": 5}
    assert "60 coins" in get(shop, "/basket")


def test_a_size_is_a_line_of_its_own(shop: Shop) -> None:
    post(shop, "/item/lemon", count="1", size="large")
    post(shop, "/item/lemon", count="2", size="small")
    assert state_of(shop)["basket"] == {"kettle": 2, "lemon, large": 1, "lemon, small": 2}


def test_looking_changes_nothing(shop: Shop) -> None:
    for path in ("/", "/kind/cups", "/search", "/item/kettle", "/item/queen", "/basket",
                 "/checkout", "/orders", "/order/300", "/order/301"):  # fmt: skip
        get(shop, path)
    assert shop.handle(Request("HEAD", "/basket")).status == 200
    assert shop.state() == Shop(copy.deepcopy(WORLD)).state()


def test_the_search_finds_parts_of_names_and_nothing_for_nothing(shop: Shop) -> None:
    assert "/item/kettle" in get(shop, "/search", q=" KETT ")
    assert "Nothing was found" in get(shop, "/search", q="zebra")
    assert "Nothing was found" in get(shop, "/search", q=" ")


def test_a_long_list_has_pages() -> None:
    items: Any = {f"a{n}": {"price": n, "stock": 1, "kind": "cups"} for n in range(12)}
    shop = Shop({"items": items})
    assert "More" in get(shop, "/")
    last = get(shop, "/", page="3")
    assert "/item/a10" in last
    assert "More" not in last
    assert "q=a&amp;page=2" in get(shop, "/search", q="a")


def test_counts_of_the_basket_are_saved_at_once_and_zero_takes_out(shop: Shop) -> None:
    post(shop, "/item/lemon", count="4", size="small")
    post(shop, "/basket", **{"count kettle": "0", "count lemon, small": "7"})
    assert state_of(shop)["basket"] == {"lemon, small": 7}


def test_an_order_takes_the_basket_and_the_coupon(shop: Shop) -> None:
    post(shop, "/coupon", code="AMBER")
    assert post(shop, "/checkout", **BUYER).headers["location"] == "/order/303"
    state = state_of(shop)
    assert (state["basket"], state["coupon"]) == ({}, "")
    expected = {**BUYER, "items": {"kettle": 2}, "sum": 18, "status": "open"}
    assert state["orders"]["303"] == expected


def test_orders_are_cancelled_before_they_are_sent_and_returned_after_they_came(
    shop: Shop,
) -> None:
    assert post(shop, "/order/300", do="cancel").status == 303
    assert post(shop, "/order/301", do="return", reason="broken").status == 303
    orders = state_of(shop)["orders"]
    assert orders["300"]["status"] == "cancelled"
    assert (orders["301"]["status"], orders["301"]["reason"]) == ("returned", "broken")


@pytest.mark.parametrize(
    ("path", "form", "status"),
    [
        ("/", {}, 405),
        ("/nothing", {}, 404),
        ("/item/tiger", {"count": "1"}, 404),
        ("/item/kettle", {}, 400),
        ("/item/kettle", {"count": "4"}, 400),
        ("/item/kettle", {"count": "0"}, 400),
        ("/item/kettle", {"count": "-1"}, 400),
        ("/item/kettle", {"count": "9" * 400}, 400),
        ("/item/queen", {"count": "1"}, 400),
        ("/item/lemon", {"count": "1"}, 400),
        ("/item/lemon", {"count": "1", "size": "huge"}, 400),
        ("/basket", {"count kettle": "6"}, 400),
        ("/basket", {"count kettle": "x"}, 400),
        ("/basket", {"remove": "lemon"}, 400),
        ("/coupon", {"code": "ruby"}, 400),
        ("/coupon", {}, 400),
        ("/checkout", {"name": "Tom", "address": "7 river"}, 400),
        ("/checkout", {"name": "Tom", "address": " ", "payment": "bill"}, 400),
        ("/checkout", {"name": "Tom", "address": "7 river", "payment": "gold"}, 400),
        ("/order/300", {}, 400),
        ("/order/300", {"do": "return", "reason": "broken"}, 400),
        ("/order/301", {"do": "cancel"}, 400),
        ("/order/301", {"do": "return", "reason": "<b>"}, 400),
        ("/order/302", {"do": "cancel"}, 400),
        ("/order/9", {"do": "cancel"}, 404),
    ],
)
def test_what_is_refused_changes_nothing(
    shop: Shop, path: str, form: dict[str, str], status: int
) -> None:
    answer = post(shop, path, **form)
    assert answer.status == status
    assert "Sorry" in str(answer.body)
    assert shop.state() == Shop(copy.deepcopy(WORLD)).state()


@pytest.mark.parametrize("path", ["/item/<script>", "/kind/'", "/order/", "/../etc", "/x\0y"])
def test_a_path_that_leads_nowhere_is_not_found(shop: Shop, path: str) -> None:
    answer = shop.handle(Request("GET", path))
    assert answer.status == 404
    assert "<script>" not in str(answer.body)


@pytest.mark.parametrize("page", ["0", "2", "-1", "x", "9" * 99])
def test_a_page_of_a_list_that_is_not_there_is_refused(shop: Shop, page: str) -> None:
    assert shop.handle(Request("GET", "/kind/cups", {"page": page})).status == 400


def test_an_empty_basket_cannot_be_ordered(shop: Shop) -> None:
    post(shop, "/basket", remove="kettle")
    assert "It is empty" in get(shop, "/basket")
    assert shop.handle(Request("GET", "/checkout")).status == 400
    assert post(shop, "/checkout", **BUYER).status == 400
    assert set(state_of(shop)["orders"]) == set(WORLD["orders"])


def test_what_a_buyer_typed_is_shown_as_text(shop: Shop) -> None:
    answer = post(shop, "/checkout", **BUYER | {"name": "<b>\"Tom'</b>"})
    page_html = get(shop, answer.headers["location"])
    assert "<b>" not in page_html
    assert "&lt;b&gt;&#34;Tom&#39;" in page_html
