"""Skills: one thing to do in an application, and one thing to find out in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum, auto

from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.gui.composed.desk import Desk
from clawrl_gym.envs.showcase.gui.families.family import Turns

Value = str | int
"""A number of a record in digits, a name, a word, minutes of the day, or how many."""
Args = Mapping[str, Value]


class NotApplicable(Exception):
    """These draws come to no task; others may."""


class Refused(Exception):
    """The application does not do this, and nothing has changed."""


class Kind(StrEnum):
    """Kind of an argument."""

    EVENT = auto()
    MAIL = auto()
    TICKET = auto()
    ORDER = auto()
    ITEM = auto()
    """An item of the shop."""
    LINE = auto()
    """An item in the basket."""
    SORT = auto()
    """A kind of items."""
    COUPON = auto()
    ROW = auto()
    """A row of a sheet: SHEET/ITEM."""
    CELL = auto()
    """SHEET/ITEM/COLUMN."""
    SHEET = auto()
    COLUMN = auto()
    DIRECTION = auto()
    """Direction in which rows are sorted."""
    TOGGLE = auto()
    SWITCH = auto()
    """State of a switch: on or off."""
    CHOICE = auto()
    OPTION = auto()
    """An option of the choice among the arguments."""
    DIAL = auto()
    """A setting that is a number."""
    FIELD = auto()
    """A setting that is a text."""
    SECTION = auto()
    DANGER = auto()
    """An action that cannot be undone."""
    PERSON = auto()
    WORKER = auto()
    """A person who can own a ticket: not everybody can."""
    DAY = auto()
    """ISO."""
    TIME = auto()
    """Minutes of the day."""
    COUNT = auto()
    NUMBER = auto()
    WORD = auto()
    TEXT = auto()
    TITLE = auto()
    """Title of a new event."""
    TROUBLE = auto()
    """Trouble of a new ticket."""
    SUBJECT = auto()
    """Subject of a new mail."""
    LABEL = auto()
    """Label of a mail."""
    PRIORITY = auto()
    REASON = auto()
    """Why a ticket is closed."""
    FAULT = auto()
    """Why an order goes back."""
    PAYMENT = auto()
    ADDRESS = auto()


@dataclass(frozen=True, slots=True)
class Found:
    """One lookup: its name, its subject, and its result."""

    lookup: str
    of: Value
    value: Value


@dataclass(frozen=True, slots=True)
class Ref:
    """One argument: what it is, how the request says it, and how it is found out."""

    kind: Kind
    value: Value
    words: str
    guess: Value = ""
    """Value taken by an agent that looks nothing up and takes the first of namesakes."""
    chain: tuple[Found, ...] = ()
    """The lookups on the way."""
    decoys: int = 0
    """Number of records with the same name that are not meant."""


@dataclass(frozen=True, slots=True)
class Skill:
    """One thing to do."""

    name: str
    host: str
    takes: Mapping[str, Kind]
    """Kinds by argument, in the order in which they are drawn."""
    phrasings: Phrasings
    """Fields are the arguments."""
    does: Callable[[Desk, Args], None]
    """Effect of the skill. Raises Refused."""
    steps: Callable[[Desk, Args], Turns]
    """The oracle's way from anywhere; its last turn alone changes something."""
    makes: Kind | None = None
    """Kind of the record that is new."""
    settles: bool = False
    """It asks for a state, which may be there already."""
    blind: Callable[[Desk, Args], Turns] | None = None
    """Turns of an agent that does not look whether the wanted state holds already."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """One thing to find out: from a record to another one, or to something it says."""

    name: str
    host: str
    of: Kind
    to: Kind
    phrasings: Phrasings
    """Noun phrases; `{x}` is what it is looked up of."""
    looks: Callable[[Desk, Value], Turns]
    value: Callable[[Desk, Value], Value | None]
    """Returns the value; None where there is none, or more than one."""
    asked: bool = True
    """It can be asked for at the end."""
