"""The oracle's ways: from any page to the page of a record, by what the pages say."""

from __future__ import annotations

import datetime

from clawrl_gym.envs.gui.task import Step
from clawrl_gym.envs.showcase.gui.apps.calendar import weekday_and_day
from clawrl_gym.envs.showcase.gui.apps.shop import PAGE_SIZE as SHOP_PAGE
from clawrl_gym.envs.showcase.gui.apps.tickets import PAGE_SIZE as TICKETS_PAGE
from clawrl_gym.envs.showcase.gui.composed.desk import Desk
from clawrl_gym.envs.showcase.gui.composed.skill import Value
from clawrl_gym.envs.showcase.gui.families.calendar import MONDAY
from clawrl_gym.envs.showcase.gui.families.family import Turns, link, press, write


def to(host: str) -> Turns:
    """The first page of an application."""
    return ((Step("goto", text=f"http://{host}/"),),)


def to_week(day: str) -> Turns:
    """The week of a day: this one or the next."""
    is_next = datetime.date.fromisoformat(day) >= MONDAY + datetime.timedelta(weeks=1)
    return (*to("calendar"), *(((link("Later"),),) if is_next else ()))


def to_event(desk: Desk, number: Value) -> Turns:
    event = desk.calendar["events"][str(number)]
    return (*to_week(event["day"]), (link(event["title"], near=weekday_and_day(event["day"])),))


def to_mail(desk: Desk, number: Value) -> Turns:
    mail = desk.mail["mails"][str(number)]
    subject = mail["subject"]
    return (*found("mail", subject), (link(subject, near=mail["from"]),))


def to_ticket(desk: Desk, number: Value) -> Turns:
    numbers = list(desk.tickets["tickets"])
    title = desk.tickets["tickets"][str(number)]["title"]
    pages = numbers.index(str(number)) // TICKETS_PAGE
    return (*to("tickets"), *(((link("More"),),) * pages), (link(title, near=str(number)),))


def to_orders() -> Turns:
    return (*to("shop"), (link("Orders"),))


def to_order(number: Value) -> Turns:
    return (*to_orders(), (link(f"Order {number}"),))


def to_basket() -> Turns:
    return (*to("shop"), (link("Basket"),))


def to_item(name: Value) -> Turns:
    return (*found("shop", str(name)), (link(str(name)),))


def through_sort(desk: Desk, sort: Value) -> Turns:
    """All pages of the items of a sort."""
    count = sum(item["kind"] == sort for item in desk.shop["items"].values())
    more = (((link("More"),),)) * (-(-count // SHOP_PAGE) - 1)
    return (*to("shop"), (link(str(sort)),), *more)


def to_sheet(name: str) -> Turns:
    return (*to("sheet"), (link(name),))


def to_setting(name: Value) -> Turns:
    return (*found("settings", str(name)), (link(str(name)),))


def found(host: str, text: str) -> Turns:
    """Turns that search an application."""
    return (*to(host), (write("Search", text), press("Search")))
