"""All six applications of one task: what is stored in them, and what of it counts."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from clawrl_gym.envs.gui.site import Site
from clawrl_gym.envs.showcase.gui.apps import calendar, mail, settings, sheet, shop, tickets
from clawrl_gym.envs.showcase.gui.families.family import Served

APPS: Mapping[str, Callable[[Any], Site]] = MappingProxyType(
    {
        calendar.HOST: calendar.Calendar,
        mail.HOST: mail.Mail,
        settings.HOST: settings.Settings,
        sheet.HOST: sheet.Sheets,
        shop.HOST: shop.Shop,
        tickets.HOST: tickets.Tickets,
    }
)
"""Applications by host, which is the name of the field of `Desk`."""
HOSTS = tuple(APPS)


@dataclass(slots=True)
class Desk:
    """Stored state of each application."""

    calendar: calendar.CalendarWorld
    mail: mail.MailWorld
    settings: settings.SettingsWorld
    sheet: sheet.SheetsWorld
    shop: shop.ShopWorld
    tickets: tickets.TicketsWorld

    def copy(self) -> Desk:
        """A copy with the same content. Worlds hold nothing but JSON, which pickle copies ten times
        as fast as `deepcopy`."""
        copied: Desk = pickle.loads(pickle.dumps(self))
        return copied

    def sites(self) -> dict[str, Callable[[], Site]]:
        """Makes each application afresh."""
        return {host: Served(app, getattr(self, host)) for host, app in APPS.items()}

    def states(self) -> dict[str, object]:
        """State of each application as a grade reads it."""
        return {host: app(getattr(self, host)).state() for host, app in APPS.items()}

    def stored(self) -> dict[str, object]:
        """The same without asking the applications: enough to tell two desks apart."""
        return {
            calendar.HOST: {"events": self.calendar["events"]},
            mail.HOST: {"mails": self.mail["mails"]},
            settings.HOST: {**self.settings},
            sheet.HOST: self.sheet["sheets"],
            shop.HOST: {"orders": {}, **self.shop},
            tickets.HOST: self.tickets["tickets"],
        }


Known = Mapping[str, Collection[str]]
"""Numbers of the entries of the beginning, by host, where people know them by their number."""


def known_numbers(desk: Desk) -> dict[str, tuple[str, ...]]:
    """Tickets and orders have numbers that are shown; events and mails are known by their words."""
    return {
        tickets.HOST: tuple(desk.tickets["tickets"]),
        shop.HOST: tuple(desk.shop.get("orders", {})),
    }


def settled(states: Mapping[str, object], known: Known) -> dict[str, object]:
    """States without what follows from the order of the work alone: which number is whose."""
    return {host: _settled(host, state, known.get(host, ())) for host, state in states.items()}


def _settled(host: str, state: object, known: Collection[str]) -> object:
    if not isinstance(state, dict):
        return state
    if host == tickets.HOST:
        return _unnumbered(state, known)
    tables = {calendar.HOST: "events", mail.HOST: "mails", shop.HOST: "orders"}
    if host in tables:
        name = tables[host]
        return {**state, name: _unnumbered(state[name], known)}
    return {**state, "done": sorted(state["done"])} if host == settings.HOST else state


def _unnumbered(table: Mapping[str, object], known: Collection[str]) -> dict[str, object]:
    """Entries that are known by their number, and the others in an order of their own."""
    others = [entry for number, entry in table.items() if number not in known]
    numbered = {number: table[number] for number in known if number in table}
    return {**numbered, "others": sorted(others, key=lambda entry: json.dumps(entry))}
