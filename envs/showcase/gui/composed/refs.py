"""Arguments in words: by name, by what tells a record from its namesakes, or by what they are to
others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.gui.apps.mail import ME, new_mail
from clawrl_gym.envs.showcase.gui.composed.cast import DAYS, HOURS, TEXTS, Cast, draw_address
from clawrl_gym.envs.showcase.gui.composed.desk import Desk
from clawrl_gym.envs.showcase.gui.composed.lookups import LOOKUPS
from clawrl_gym.envs.showcase.gui.composed.skill import (
    Args,
    Found,
    Kind,
    Lookup,
    Ref,
    Refused,
    Value,
)
from clawrl_gym.envs.showcase.gui.composed.skills.calendar import overlapping
from clawrl_gym.envs.showcase.gui.composed.values import (
    DOUBLED,
    RECORDS,
    name_of,
    spoken,
    told_apart,
    told_by,
    values,
)

Fits = Callable[[Value], bool]
"""Whether a value can be meant."""
REACHED = frozenset(lookup.to for lookup in LOOKUPS.values())
"""Kinds that can be looked up."""
_THERE_AND_BACK = frozenset(
    {
        ("event_of", "guest_of"), ("mail_of", "sender_of"), ("ticket_of", "owner_of"),
        ("order_of", "buyer_of"), ("order_with", "item_of"), ("first_on", "day_of"),
        ("guest_of", "event_of"), ("sender_of", "mail_of"), ("owner_of", "ticket_of"),
        ("buyer_of", "order_of"), ("item_of", "order_with"),
    }
)  # fmt: skip
"""Pairs of lookups that lead back, one after the other."""
_TOLD = frozenset({"day_of", "sender_of", "owner_of"})
"""Lookups whose result is already in the words that tell a record from its namesakes."""


_WIDER = {Kind.WORKER: Kind.PERSON, Kind.LINE: Kind.ITEM}
"""Wider kind that a kind belongs to."""


def leads_to(lookup: Lookup, kind: Kind) -> bool:
    """Whether what is looked up can be an argument of this kind."""
    return lookup.to is _WIDER.get(kind, kind)


@dataclass(slots=True)
class Refs:
    """References of one task's arguments, while it is made."""

    draw: Draw
    split: Split
    cast: Cast
    start: Desk
    now: Desk
    spoken: list[Ref] = field(default_factory=list)
    """Records that were meant before."""

    def mark(self) -> tuple[Desk, Desk, int]:
        """State that `rewind` returns to."""
        return self.start.copy(), self.now.copy(), len(self.spoken)

    def rewind(self, mark: tuple[Desk, Desk, int]) -> None:
        self.start, self.now = mark[0], mark[1]
        del self.spoken[mark[2] :]

    def draw_ref(
        self, kind: Kind, args: Args, lookup: Lookup | None = None, hops: int = 0, *,
        decoy: bool = False, fits: Fits = lambda value: True,
    ) -> Ref | None:  # fmt: skip
        """A reference of this kind, `hops` lookups away, of which `lookup` is the last; None
        where there is none."""
        if hops and lookup is not None:
            return self._looked_up(lookup, kind, hops, decoy, fits)
        if kind in RECORDS:
            return self._with_namesake(kind, fits) if decoy else self._record(kind, fits)
        value = None if decoy else self._plain(kind, args, fits)
        if value is None:
            return None
        words = spoken(self.draw, self.split, self.start, kind, value)
        return Ref(kind, value, words, guess=value)

    def _plain(self, kind: Kind, args: Args, fits: Fits) -> Value | None:
        draw, cast = self.draw, self.cast
        match kind:
            case Kind.TITLE:
                return cast.taken(cast.titles)
            case Kind.TROUBLE:
                return cast.taken(cast.troubles)
            case Kind.SUBJECT:
                return cast.taken(cast.subjects)
            case Kind.WORD:
                return cast.taken(cast.words)
            case Kind.TEXT:
                return draw.pick(TEXTS[self.split])
            case Kind.ADDRESS:
                return draw_address(draw)
        both = set(values(self.start, kind, args))
        known = [v for v in values(self.now, kind, args) if v in both and fits(v)]
        return draw.pick(known) if known else None

    def _looked_up(
        self, lookup: Lookup, kind: Kind, hops: int, decoy: bool, fits: Fits
    ) -> Ref | None:
        def comes_to(source: Value) -> Value | None:
            try:
                return lookup.value(self.now, source)
            except (Refused, LookupError):
                return None

        def leads(source: Value) -> bool:
            value = comes_to(source)
            if value is None or not fits(value):
                return False
            return kind not in _WIDER or value in values(self.now, kind, {})

        before = self._way_to(lookup.of) if hops > 1 else None
        source = self.draw_ref(
            lookup.of, {}, before, hops - 1 if before else 0, decoy=decoy, fits=leads
        )
        value = None if source is None else comes_to(source.value)
        if source is None or value is None:
            return None
        if source.chain and (source.chain[-1].lookup, lookup.name) in _THERE_AND_BACK:
            return None
        if source.decoys and not source.chain and lookup.name in _TOLD:
            return None
        guess = self._other(kind, value)
        if guess is None:
            return None
        words = self.draw.pick(lookup.phrasings.of(self.split)).format(x=source.words)
        found = (*source.chain, Found(lookup.name, source.value, value))
        return Ref(kind, value, words, guess, found, source.decoys)

    def _way_to(self, kind: Kind) -> Lookup | None:
        ways = [lookup for lookup in LOOKUPS.values() if lookup.to is kind]
        return self.draw.pick(ways) if ways else None

    def _other(self, kind: Kind, value: Value) -> Value | None:
        """A wrong guess without looking; None where there is only one value."""
        known = self.cast.words if kind is Kind.WORD else values(self.now, kind, {})
        others = [other for other in known if other != value]
        return self.draw.pick(others) if others else None

    def _record(self, kind: Kind, fits: Fits) -> Ref | None:
        again = [
            ref for ref in self.spoken
            if ref.kind is kind and fits(ref.value) and self.is_as_said(kind, ref.value)
        ]  # fmt: skip
        if again and self.draw.below(2):
            return replace(self.draw.pick(again), decoys=0)
        known = [value for value in self._unspoken(kind) if fits(value)]
        if not known:
            return None
        value = self.draw.pick(known)
        ref = Ref(kind, value, spoken(self.draw, self.split, self.now, kind, value), value)
        self.spoken.append(ref)
        return ref

    def _unspoken(self, kind: Kind) -> list[Value]:
        """Records of the first state that are not mentioned yet, and whose name is unique."""
        meant = {ref.value for ref in self.spoken if ref.kind is kind}
        names = [name_of(self.now, kind, value) for value in values(self.now, kind, {})]
        return [
            value for value in values(self.start, kind, {})
            if value not in meant and self.is_as_said(kind, value)
            and names.count(name_of(self.now, kind, value)) == 1
        ]  # fmt: skip

    def is_as_said(self, kind: Kind, value: Value) -> bool:
        """Whether its name, and what tells it from others, are what they were."""
        if value not in values(self.start, kind, {}) or value not in values(self.now, kind, {}):
            return False
        return all(
            say(self.start, kind, value) == say(self.now, kind, value) for say in (name_of, told_by)
        )

    def _with_namesake(self, kind: Kind, fits: Fits) -> Ref | None:
        """One of two records with the same name, of which the request says what only it has."""
        known = [value for value in self._unspoken(kind) if fits(value)]
        if kind not in DOUBLED or not known:
            return None
        value = self.draw.pick(known)
        twin = self._twin(kind, str(value))
        if twin is None:
            return None
        words = told_apart(self.draw, self.split, self.now, kind, value)
        ref = Ref(kind, value, words, self._first(kind, str(value), twin), decoys=1)
        self.spoken.append(ref)
        return ref

    def _first(self, kind: Kind, one: str, other: str) -> str:
        """The one of two that stands first in a list."""
        if kind is Kind.EVENT:
            events = self.now.calendar["events"]
            return min(one, other, key=lambda n: (events[n]["day"], events[n]["start"]))
        return (max if kind is Kind.MAIL else min)(one, other, key=int)

    def _twin(self, kind: Kind, number: str) -> str | None:
        """Put a namesake on the desk; returns its number, or None where there is no room."""
        if kind is Kind.EVENT:
            return self._event_twin(number)
        if kind is Kind.MAIL:
            return self._mail_twin(number)
        return self._ticket_twin(number)

    def _event_twin(self, number: str) -> str | None:
        title = self.now.calendar["events"][number]["title"]
        days = [day for day in DAYS if day != self.now.calendar["events"][number]["day"]]
        day, start, new = (
            self.draw.pick(days),
            60 * self.draw.pick(HOURS[:-1]),
            str(int(number) - 1),
        )
        for desk in (self.start, self.now):
            if new in desk.calendar["events"] or overlapping(desk, day, start, start + 60):
                return None
            desk.calendar["events"][new] = {
                "title": title, "day": day, "start": start, "end": start + 60, "guests": []
            }  # fmt: skip
        return new

    def _mail_twin(self, number: str) -> str | None:
        mail = self.now.mail["mails"][number]
        senders = [person for person in self.cast.people if person != mail["from"]]
        sender, text = self.draw.pick(senders), self.draw.pick(TEXTS[self.split])
        new = str(int(number) + self.draw.pick((-1, 1)))
        for desk in (self.start, self.now):
            if new in desk.mail["mails"] or int(new) > max(map(int, self.start.mail["mails"])):
                return None
            twin = new_mail(mail["folder"], sender, ME, mail["subject"], f"{text}.")
            desk.mail["mails"][new] = twin
        return new

    def _ticket_twin(self, number: str) -> str | None:
        ticket = self.now.tickets["tickets"][number]
        owners = [one for one in self.now.tickets["people"] if one != ticket["owner"]]
        numbers = [*map(int, self.start.tickets["tickets"])]
        free = [n for n in range(10, max(numbers)) if n not in numbers]
        new, owner = str(self.draw.pick(free)), self.draw.pick(owners)
        for desk in (self.start, self.now):
            twin = ticket.copy()
            twin["owner"], twin["comments"] = owner, []
            rows = [*desk.tickets["tickets"].items(), (new, twin)]
            desk.tickets["tickets"] = dict(sorted(rows, key=lambda row: int(row[0])))
        return new
