"""Lookups: who or what a record is related to, and what a page says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.gui.apps import calendar, mail, settings, sheet, shop, tickets
from clawrl_gym.envs.showcase.gui.composed.desk import Desk
from clawrl_gym.envs.showcase.gui.composed.skill import Kind, Lookup, Value
from clawrl_gym.envs.showcase.gui.composed.skills.settings import setting
from clawrl_gym.envs.showcase.gui.composed.skills.sheet import place, sheet_of
from clawrl_gym.envs.showcase.gui.composed.ways import (
    through_sort,
    to,
    to_event,
    to_item,
    to_mail,
    to_order,
    to_orders,
    to_setting,
    to_sheet,
    to_week,
)
from clawrl_gym.envs.showcase.gui.families.family import Turns, link

CODE = "The code is "


def _only(values: Iterable[Value]) -> Value | None:
    """The one there is; None for none or several."""
    known = list(values)
    return known[0] if len(known) == 1 else None


def _code(desk: Desk, number: Value) -> Value | None:
    text = desk.mail["mails"][str(number)]["text"]
    return text.partition(CODE)[2].removesuffix(".") or None


def _events_of(desk: Desk, person: Value) -> Value | None:
    events = desk.calendar["events"].items()
    return _only(number for number, event in events if person in event["guests"])


def _mail_of(desk: Desk, person: Value) -> Value | None:
    mails = desk.mail["mails"].items()
    return _only(
        number for number, one in mails if one["folder"] == "inbox" and one["from"] == person
    )


def _ticket_of(desk: Desk, person: Value) -> Value | None:
    known = desk.tickets["tickets"].items()
    return _only(
        number for number, one in known
        if one["owner"] == person and one["status"] != tickets.CLOSED
    )  # fmt: skip


def _orders(desk: Desk) -> Mapping[str, shop.PlacedOrder]:
    return desk.shop.get("orders", {})


def _order_of(desk: Desk, person: Value) -> Value | None:
    return _only(number for number, one in _orders(desk).items() if one["name"] == person)


def _order_with(desk: Desk, item: Value) -> Value | None:
    return _only(number for number, one in _orders(desk).items() if item in one["items"])


def _by_price(desk: Desk, sort: Value, choose: Callable[..., str]) -> Value:
    prices = {n: item["price"] for n, item in desk.shop["items"].items() if item["kind"] == sort}
    return choose(prices, key=prices.__getitem__)


def _through_orders(desk: Desk) -> Turns:
    """The list, and each order of it: what is in one stands on its own page."""
    turns: Turns = to_orders()
    for number in _orders(desk):
        turns = (*turns, (link(f"Order {number}"),), (link("Orders"),))
    return turns[:-1]


def _through_events(desk: Desk) -> Turns:
    """Guests stand on the page of each event."""
    turns: Turns = ()
    for number in desk.calendar["events"]:
        turns = (*turns, *to_event(desk, number))
    return turns


def _inbox(desk: Desk) -> Turns:
    """All its pages have senders."""
    count = sum(one["folder"] == "inbox" for one in desk.mail["mails"].values())
    return (*to("mail"), *(((link("More"),),) * ((count - 1) // mail.PAGE_SIZE)))


def _of_owner(desk: Desk) -> Turns:
    """The list of tickets has owners."""
    pages = (len(desk.tickets["tickets"]) - 1) // tickets.PAGE_SIZE
    return (*to("tickets"), *(((link("More"),),) * pages))


def _owner(desk: Desk, number: Value) -> Value:
    return desk.tickets["tickets"][str(number)]["owner"]


def _cell(desk: Desk, cell: Value) -> Value:
    of, row, column = place(desk, cell)
    return of["rows"][row][column]


def _first_on(desk: Desk, day: Value) -> Value | None:
    events = desk.calendar["events"]
    there = [number for number, event in events.items() if event["day"] == day]
    return min(there, key=lambda number: events[number]["start"]) if len(there) > 1 else None


def _largest(desk: Desk, name: Value) -> Value | None:
    """The largest by the first column of numbers."""
    _, *rows = sheet_of(desk, name)["rows"]
    numbers = [float(row[1]) for row in rows]
    best = [row[0] for row in rows if float(row[1]) == max(numbers)]
    return best[0] if len(best) == 1 else None


_CALENDAR = (
    Lookup(
        "day_of",
        calendar.HOST,
        Kind.EVENT,
        Kind.DAY,
        Phrasings(("the day of {x}", "the date of {x}"), ("the day set for {x}",)),
        to_event,
        lambda desk, x: desk.calendar["events"][str(x)]["day"],
        asked=False,
    ),
    Lookup(
        "start_of",
        calendar.HOST,
        Kind.EVENT,
        Kind.TIME,
        Phrasings(
            ("the start of {x}", "the starting time of {x}"), ("the hour of the beginning of {x}",)
        ),
        to_event,
        lambda desk, x: desk.calendar["events"][str(x)]["start"],
    ),
    Lookup(
        "end_of",
        calendar.HOST,
        Kind.EVENT,
        Kind.TIME,
        Phrasings(("the end of {x}", "the ending time of {x}"), ("the hour of the close of {x}",)),
        to_event,
        lambda desk, x: desk.calendar["events"][str(x)]["end"],
    ),
    Lookup(
        "guest_of",
        calendar.HOST,
        Kind.EVENT,
        Kind.PERSON,
        Phrasings(("the only guest of {x}", "the one guest of {x}"), ("the lone guest of {x}",)),
        to_event,
        lambda desk, x: _only(desk.calendar["events"][str(x)]["guests"]),
    ),
    Lookup(
        "event_of",
        calendar.HOST,
        Kind.PERSON,
        Kind.EVENT,
        Phrasings(
            (
                "the only event with an invitation for {x}",
                "the only event among whose guests is {x}",
            ),
            ("the single event whose guests include {x}",),
        ),
        lambda desk, x: _through_events(desk),
        _events_of,
        asked=False,
    ),
    Lookup(
        "first_on",
        calendar.HOST,
        Kind.DAY,
        Kind.EVENT,
        Phrasings(
            ("the first event of {x}", "the earliest event on {x}"), ("the event that opens {x}",)
        ),
        lambda desk, x: to_week(str(x)),
        _first_on,
        asked=False,
    ),
)
_MAIL = (
    Lookup(
        "sender_of",
        mail.HOST,
        Kind.MAIL,
        Kind.PERSON,
        Phrasings(("the sender of {x}", "the person who sent {x}"), ("the author of {x}",)),
        to_mail,
        lambda desk, x: desk.mail["mails"][str(x)]["from"],
    ),
    Lookup(
        "code_in",
        mail.HOST,
        Kind.MAIL,
        Kind.WORD,
        Phrasings(("the code in {x}", "the code word of {x}"), ("the code given in {x}",)),
        to_mail,
        _code,
    ),
    Lookup(
        "mail_of",
        mail.HOST,
        Kind.PERSON,
        Kind.MAIL,
        Phrasings(
            (
                "the only inbox mail from {x}",
                "the only mail in the inbox that is from {x}",
            ),
            ("the single mail in the inbox by {x}",),
        ),
        lambda desk, x: _inbox(desk),
        _mail_of,
        asked=False,
    ),
)
_SHOP = (
    Lookup(
        "cheapest_of",
        shop.HOST,
        Kind.SORT,
        Kind.ITEM,
        Phrasings(
            (
                "the cheapest of the shop's {x}",
                "what costs least among the shop's {x}",
            ),
            ("the least expensive of the {x} on sale",),
        ),
        through_sort,
        lambda desk, x: _by_price(desk, x, min),
    ),
    Lookup(
        "dearest_of",
        shop.HOST,
        Kind.SORT,
        Kind.ITEM,
        Phrasings(
            (
                "the dearest of the shop's {x}",
                "what costs most among the shop's {x}",
            ),
            ("the most expensive of the {x} on sale",),
        ),
        through_sort,
        lambda desk, x: _by_price(desk, x, max),
    ),
    Lookup(
        "price_of",
        shop.HOST,
        Kind.ITEM,
        Kind.NUMBER,
        Phrasings(
            ("the price of {x}", "the number of coins that {x} costs"),
            ("the price that is asked for {x}",),
        ),
        lambda desk, x: to_item(x),
        lambda desk, x: desk.shop["items"][str(x)]["price"],
    ),
    Lookup(
        "stock_of",
        shop.HOST,
        Kind.ITEM,
        Kind.NUMBER,
        Phrasings(
            (
                "the number of pieces left of {x}",
                "the stock of {x}",
            ),
            ("the number of pieces that the shop still has of {x}",),
        ),
        lambda desk, x: to_item(x),
        lambda desk, x: desk.shop["items"][str(x)]["stock"],
    ),
    Lookup(
        "item_of",
        shop.HOST,
        Kind.ORDER,
        Kind.ITEM,
        Phrasings(("the item in {x}", "what was bought with {x}"), ("the article in {x}",)),
        lambda desk, x: to_order(x),
        lambda desk, x: _only(_orders(desk)[str(x)]["items"]),
    ),
    Lookup(
        "sum_of",
        shop.HOST,
        Kind.ORDER,
        Kind.NUMBER,
        Phrasings(("the sum of {x}", "the number of coins that {x} cost"), ("the total of {x}",)),
        lambda desk, x: to_order(x),
        lambda desk, x: _orders(desk)[str(x)]["sum"],
    ),
    Lookup(
        "buyer_of",
        shop.HOST,
        Kind.ORDER,
        Kind.PERSON,
        Phrasings(("the person named on {x}", "the name on {x}"), ("the recipient of {x}",)),
        lambda desk, x: to_order(x),
        lambda desk, x: _orders(desk)[str(x)]["name"],
    ),
    Lookup(
        "order_with",
        shop.HOST,
        Kind.ITEM,
        Kind.ORDER,
        Phrasings(
            (
                "the only order for {x}",
                "the only order that contains {x}",
            ),
            ("the single order that holds {x}",),
        ),
        lambda desk, x: _through_orders(desk),
        _order_with,
        asked=False,
    ),
    Lookup(
        "order_of",
        shop.HOST,
        Kind.PERSON,
        Kind.ORDER,
        Phrasings(
            ("the only order in the name of {x}", "the only order that goes to {x}"),
            ("the single order of {x}",),
        ),
        lambda desk, x: _through_orders(desk),
        _order_of,
        asked=False,
    ),
)
_OTHERS = (
    Lookup(
        "owner_of", tickets.HOST, Kind.TICKET, Kind.PERSON,
        Phrasings(("the owner of {x}", "the person who owns {x}"), ("whoever owns {x}",)),
        lambda desk, x: _of_owner(desk), _owner,
    ),
    Lookup(
        "ticket_of", tickets.HOST, Kind.PERSON, Kind.TICKET,
        Phrasings(
            (
                "the only unclosed ticket of {x}",
                "the only one, of the tickets that are not closed, of {x}",
            ),
            ("the single unclosed ticket owned by {x}",),
        ),
        lambda desk, x: _of_owner(desk), _ticket_of, asked=False,
    ),
    Lookup(
        "cell_of", sheet.HOST, Kind.CELL, Kind.NUMBER,
        Phrasings(
            ("the number that stands as {x}", "the value of {x}"),
            ("the figure given as {x}",),
        ),
        lambda desk, x: to_sheet(str(x).split("/")[0]), _cell,
    ),
    Lookup(
        "largest_in", sheet.HOST, Kind.SHEET, Kind.WORD,
        Phrasings(
            (
                "the item with the largest number in column B of {x}",
                "the item whose number in column B of {x} is the largest",
            ),
            ("the item that has the highest number under B in {x}",),
        ),
        lambda desk, x: to_sheet(str(x)), _largest,
    ),
    Lookup(
        "dial_of", settings.HOST, Kind.DIAL, Kind.NUMBER,
        Phrasings(
            (
                "the number set for {x}",
                "the present value of {x}",
            ),
            ("the figure given for {x}",),
        ),
        lambda desk, x: to_setting(x), lambda desk, x: int(setting(desk, x)["value"]),
    ),
    Lookup(
        "field_of", settings.HOST, Kind.FIELD, Kind.WORD,
        Phrasings(
            (
                "the word set for {x}",
                "the text of {x}",
            ),
            ("the text entered for {x}",),
        ),
        lambda desk, x: to_setting(x), lambda desk, x: str(setting(desk, x)["value"]),
    ),
)  # fmt: skip

LOOKUPS: Mapping[str, Lookup] = MappingProxyType(
    {lookup.name: lookup for lookup in (*_CALENDAR, *_MAIL, *_SHOP, *_OTHERS)}
)
"""Lookups by name."""
