"""The page that a plain task begins on: what stands on it, and what can be done there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.gui.apps import calendar, mail, settings, shop
from clawrl_gym.envs.showcase.gui.composed.desk import Desk
from clawrl_gym.envs.showcase.gui.composed.skill import Kind, Ref, Value
from clawrl_gym.envs.showcase.gui.composed.values import spoken


@dataclass(frozen=True, slots=True)
class OpenPage:
    """One page of one application."""

    host: str
    path: str
    skills: tuple[str, ...]
    """Skills whose last step is taken here, and which come back here."""
    record: Ref | None = None
    """The record that the page is about, if it is about one."""
    shown: frozenset[Value] | None = None
    """Settings that stand here; None: what is drawn of a kind need not stand here."""

    @property
    def url(self) -> str:
        return f"http://{self.host}/{self.path}"

    def has(self, kind: Kind, value: Value) -> bool:
        """Whether an argument of this kind can be this, on this page."""
        return self.shown is None or kind not in _SETTINGS or value in self.shown


_SETTINGS = frozenset({Kind.TOGGLE, Kind.CHOICE, Kind.DIAL, Kind.FIELD})


def draw_page(draw: Draw, desk: Desk) -> OpenPage:
    """One of the pages of a desk."""
    return draw.pick(_PAGES)(draw, desk)


def _section(draw: Draw, desk: Desk) -> OpenPage:
    section = draw.pick(desk.settings["sections"])
    return OpenPage(
        settings.HOST,
        section["name"].lower(),
        ("switch_setting", "choose_setting", "dial_setting", "word_setting"),
        shown=frozenset(setting["name"] for setting in section["settings"]),
    )


def _mail(draw: Draw, desk: Desk) -> OpenPage:
    mails = desk.mail["mails"]
    number = draw.pick([number for number, one in mails.items() if one["folder"] == "inbox"])
    skills = ("star_mail", "unstar_mail", "label_mail")
    return OpenPage(mail.HOST, f"mail/{number}", skills, _named(draw, desk, Kind.MAIL, number))


def _event(draw: Draw, desk: Desk) -> OpenPage:
    number = draw.pick(list(desk.calendar["events"]))
    skills = ("rename_event", "shift_event", "postpone_event", "invite_guest")
    record = _named(draw, desk, Kind.EVENT, number)
    return OpenPage(calendar.HOST, f"event/{number}", skills, record)


def _basket(draw: Draw, desk: Desk) -> OpenPage:
    return OpenPage(shop.HOST, "basket", ("set_count", "empty_line", "use_coupon"))


def _named(draw: Draw, desk: Desk, kind: Kind, number: str) -> Ref:
    return Ref(kind, number, spoken(draw, "train", desk, kind, number), number)


_PAGES: tuple[Callable[[Draw, Desk], OpenPage], ...] = (_section, _mail, _event, _basket)
