"""Skills: one thing to do in the office, one thing to find out, or one question to answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum, auto

from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.toolcall.families.family import CallSpec
from clawrl_gym.envs.showcase.toolcall.office.world import Office

Value = str | int
"""An id, a name or a number, as a call takes it."""


class NotApplicable(Exception):
    """These draws come to no task; others may."""


class Kind(StrEnum):
    """Kind of an argument. Up to `ORDER`: a record of the office."""

    PERSON = auto()
    TICKET = auto()
    MEETING = auto()
    ROOM = auto()
    ITEM = auto()
    ORDER = auto()
    TEAM = auto()
    PRIORITY = auto()
    RESOLUTION = auto()
    TAG = auto()
    DAY = auto()
    HOUR = auto()
    QUANTITY = auto()
    FLOOR = auto()
    SORT = auto()
    """A kind of items."""
    TITLE = auto()


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
    looks: tuple[CallSpec, ...] = ()
    """Calls whose results say it."""
    guess: Value = ""
    """Value taken by an agent that reads the request alone and looks up only the names in it."""
    chain: tuple[Found, ...] = ()
    """The lookups on the way."""
    decoys: int = 0
    """Number of records with the same name that are not meant."""


@dataclass(frozen=True, slots=True)
class Skill:
    """One thing to do: a call of the tool of this name."""

    name: str
    takes: Mapping[str, Kind]
    """Kinds by argument, in the order of the phrasings' fields."""
    phrasings: Phrasings
    """Fields are the arguments."""
    makes: Kind | None = None
    """Kind of the record that is new."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """One thing to find out: from a record or a value to another one."""

    name: str
    of: Kind
    to: Kind
    phrasings: Phrasings
    """Noun phrases; `{x}` is what it is looked up of."""
    looks: Callable[[Value], tuple[CallSpec, ...]]
    value: Callable[[Office, Value], Value | None]
    """Returns the value; None where there is none, or more than one."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question to be answered at the end."""

    name: str
    takes: Kind
    phrasings: Phrasings
    """Clauses after "tell me"; `{x}` is what is asked about."""
    looks: Callable[[Office, Value], tuple[CallSpec, ...]]
    answer: Callable[[Office, Value], Value]
