"""Initial contents of the six applications: people, and their part in each record. Names differ
between the splits."""

from __future__ import annotations

import datetime

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import WORDS, Draw
from clawrl_gym.envs.phrasing import Choices
from clawrl_gym.envs.showcase.gui.apps.calendar import CLOSE, OPEN, CalendarWorld, Event
from clawrl_gym.envs.showcase.gui.apps.mail import ME, MailWorld, new_mail
from clawrl_gym.envs.showcase.gui.apps.settings import SettingsWorld
from clawrl_gym.envs.showcase.gui.apps.shop import (
    FIRST_ORDER,
    PAYMENTS,
    Item,
    PlacedOrder,
    ShopWorld,
)
from clawrl_gym.envs.showcase.gui.apps.tickets import (
    CLOSED,
    PRIORITIES,
    WAITING,
    StoredTicket,
    TicketsWorld,
)
from clawrl_gym.envs.showcase.gui.apps.tickets import OPEN as IS_OPEN
from clawrl_gym.envs.showcase.gui.composed.desk import Desk
from clawrl_gym.envs.showcase.gui.composed.skill import NotApplicable
from clawrl_gym.envs.showcase.gui.families import settings, sheet
from clawrl_gym.envs.showcase.gui.families.calendar import MONDAY
from clawrl_gym.envs.showcase.gui.families.mail import LABELS
from clawrl_gym.envs.titles import MEETING_TITLES, TICKET_TITLES

PEOPLE: Choices = {
    "train": (
        "Ana", "Ben", "Carla", "Dario", "Elif", "Felix", "Greta", "Hugo", "Ines", "Jonas", "Kira",
        "Liam", "Mara", "Nils",
    ),
    "heldout": ("Olga", "Pavel", "Rosa", "Sven", "Tara", "Uma", "Viktor", "Yara", "Zeno"),
}  # fmt: skip
EVENTS: Choices = {"train": MEETING_TITLES[:15], "heldout": MEETING_TITLES[15:]}
TROUBLES: Choices = {"train": TICKET_TITLES[:18], "heldout": TICKET_TITLES[18:]}
SUBJECTS: Choices = {
    "train": (
        "Rent for March", "Lost parcel", "Piano lessons", "Broken window", "Train times",
        "Garden plans", "Birthday cake", "Old bicycle", "New neighbours", "Ski trip", "Tax papers",
        "Choir practice", "Spare keys", "Water bill", "School play", "Moving boxes",
    ),
    "heldout": (
        "Car repair", "Library books", "Summer camp", "Cat food", "Chess club", "Paint samples",
        "Boat ticket", "Phone number", "Flat viewing", "Dance class",
    ),
}  # fmt: skip
TEXTS: Choices = {
    "train": (
        "I will look into it", "Please call me back", "This can wait until Friday",
        "Thank you, that is fine", "We need one more week", "I agree with all of it",
        "It has been paid", "Somebody should see to this", "Let us talk on Monday",
    ),
    "heldout": (
        "That suits me well", "I have not seen it yet", "Send me the papers",
        "We are nearly done", "Nobody told me so", "Ask me again tomorrow",
    ),
}  # fmt: skip
"""Texts of mails and comments."""
_ADJECTIVES = ("small", "large", "green", "black", "wooden", "folding", "plain", "striped")
_SORTS: Choices = {
    "train": ("lamp", "rug", "mug", "chair", "kettle", "clock"),
    "heldout": ("vase", "stool", "mirror", "blanket"),
}
_DANGERS = ("Delete history", "Sign out everywhere", "Erase cache", "Forget devices")
STREETS = ("River Road", "Mill Lane", "Park Street", "Hill Road", "Lake Lane")
DAYS = tuple((MONDAY + datetime.timedelta(days=n)).isoformat() for n in (0, 1, 2, 3, 4, 7, 8, 9))
"""Days of events: this week and the beginning of the next."""
HOURS = range(OPEN // 60, CLOSE // 60)
_SIZES = (4, 5)
"""Rows of the sheets."""
_GAP = 3
"""Gap between numbers of events and of mails, so that there is room for namesakes."""


class Cast:
    """One desk while it is made, and names that nothing on it has."""

    def __init__(self, draw: Draw, split: Split) -> None:
        self._draw, self._split = draw, split
        self.people = sorted(draw.some(PEOPLE[split], 8))
        self.titles = draw.some(EVENTS[split], len(EVENTS[split]))
        self.troubles = draw.some(TROUBLES[split], len(TROUBLES[split]))
        self.subjects = draw.some(SUBJECTS[split], len(SUBJECTS[split]))
        self.words = draw.some(WORDS, len(WORDS))
        self.desk = Desk(
            self._calendar(), self._mail(), self._settings(), sheet.draw_world(draw, *_SIZES),
            self._shop(), self._tickets(),
        )  # fmt: skip

    def taken(self, left: list[str]) -> str:
        """A name that nothing has yet. Raises NotApplicable when all are taken."""
        if not left:
            raise NotApplicable
        return left.pop()

    def _calendar(self) -> CalendarWorld:
        draw = self._draw
        slots = draw.some([(day, hour) for day in DAYS for hour in HOURS[::2]], 7)
        events: dict[str, Event] = {}
        for place, (day, hour) in enumerate(slots, 1):
            events[str(_GAP * place)] = {
                "title": self.taken(self.titles), "day": day, "start": 60 * hour,
                "end": 60 * (hour + draw.between(1, 2)),
                "guests": sorted(draw.some(self.people, draw.pick((0, 1, 1, 2)))),
            }  # fmt: skip
        return {"today": MONDAY.isoformat(), "events": events}

    def _mail(self) -> MailWorld:
        draw = self._draw
        folders = draw.some(("inbox",) * 5 + ("archive",) * 2 + ("trash",), 8)
        mails = {}
        for place, folder in enumerate(folders, 1):
            text = draw.pick(TEXTS[self._split])
            if draw.below(2):
                text += f".\nThe code is {self.taken(self.words)}"
            mail = new_mail(
                folder, draw.pick(self.people), ME, self.taken(self.subjects), f"{text}."
            )
            mail["star"] = folder != "trash" and draw.below(3) == 0
            mail["label"] = draw.pick(("", "", *LABELS))
            mails[str(_GAP * place)] = mail
        return {"mails": mails, "labels": list(LABELS)}

    def _settings(self) -> SettingsWorld:
        draw = self._draw
        names = draw.some([name for name in settings.NAMES if name != "Alerts"], 4)
        kinds = ("toggle", "toggle", "choice", "number"), ("toggle", "toggle", "choice", "text")
        sections = [
            settings.draw_section(draw, name, kinds[place % 2]) for place, name in enumerate(names)
        ]
        dangers = draw.some(_DANGERS, 2)
        for section, danger in zip(draw.some(sections, 2), dangers, strict=True):
            section["danger"] = danger
        return {"sections": sections, "done": []}

    def _shop(self) -> ShopWorld:
        draw = self._draw
        prices = draw.some(range(5, 99), 12)
        items: dict[str, Item] = {}
        for sort in draw.some(_SORTS[self._split], 3):
            for adjective in draw.some(_ADJECTIVES, 4):
                items[f"{adjective} {sort}"] = {
                    "price": prices.pop(), "stock": draw.between(20, 60), "kind": f"{sort}s"
                }  # fmt: skip
        names = list(items)
        basket = {name: draw.between(2, 9) for name in draw.some(names, 2)}
        coupons = {self.taken(self.words): percent for percent in (10, 20)}
        orders: dict[str, PlacedOrder] = {}
        first = draw.between(FIRST_ORDER + 1, 900)
        statuses = ("open", "open", "delivered", "delivered", "sent")
        for place, status in enumerate(draw.some(statuses, 5)):
            item, count = draw.pick(names), draw.between(1, 6)
            orders[str(first + place)] = {
                "name": draw.pick(self.people), "address": draw_address(draw),
                "payment": draw.pick(PAYMENTS), "items": {item: count},
                "sum": count * items[item]["price"], "status": status,
            }  # fmt: skip
        return {
            "items": items, "coupons": coupons, "basket": basket, "coupon": "", "orders": orders
        }  # fmt: skip

    def _tickets(self) -> TicketsWorld:
        draw = self._draw
        workers = sorted(draw.some(self.people, 5))
        tickets: dict[str, StoredTicket] = {}
        for number in sorted(draw.some(range(10, 90), 8)):
            status = draw.pick((IS_OPEN, IS_OPEN, WAITING, CLOSED))
            tickets[str(number)] = {
                "title": self.taken(self.troubles), "status": status,
                "priority": draw.pick(PRIORITIES), "owner": draw.pick(workers),
                "label": draw.pick(("", self.taken(self.words))), "comments": [],
                "reason": draw.pick(("solved", "not ours")) if status == CLOSED else "",
                "duplicate_of": None,
            }  # fmt: skip
        return {"people": workers, "tickets": tickets}


def draw_address(draw: Draw) -> str:
    return f"{draw.between(2, 99)} {draw.pick(STREETS)}"
