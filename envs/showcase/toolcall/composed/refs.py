"""Arguments in words: by id, by a name that has to be searched for, or by what they are to others.

A record that is meant by name may have a namesake (a decoy), and a name may be written wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.phrasing import Choices
from clawrl_gym.envs.showcase.toolcall.composed.cast import TEAMS, Cast, records, values
from clawrl_gym.envs.showcase.toolcall.composed.lookups import LOOKUPS
from clawrl_gym.envs.showcase.toolcall.composed.skill import Found, Kind, Lookup, Ref, Value
from clawrl_gym.envs.showcase.toolcall.office.toolset import OfficeTools
from clawrl_gym.envs.showcase.toolcall.office.world import DAYS, PRIORITIES, Office
from clawrl_gym.envs.toolcall.toolset import ToolFailure

Fits = Callable[[Value], bool]
"""Whether a value can be meant."""
DECOYED = (Kind.PERSON, Kind.TICKET, Kind.MEETING, Kind.ITEM)
"""Kinds that are searched for by a name, so that there can be a namesake."""
_TABLES: Mapping[Kind, tuple[str, str, str]] = MappingProxyType(
    {
        Kind.PERSON: ("people", "name", "P"),
        Kind.TICKET: ("tickets", "title", "T"),
        Kind.MEETING: ("meetings", "title", "M"),
        Kind.ITEM: ("items", "name", "I"),
    }
)
"""The table of a kind, its field with the name, and the letter of its ids."""
_BY_ID = MappingProxyType({Kind.PERSON: 6, Kind.TICKET: 2, Kind.MEETING: 2, Kind.ITEM: 4})
"""One record in this many is named by its id."""

_NAMED: Mapping[Kind, Choices] = MappingProxyType(
    {
        Kind.PERSON: {"train": ("{n}",), "heldout": ("{n}",)},
        Kind.TICKET: {
            "train": ('the ticket "{n}"', 'the ticket called "{n}"'),
            "heldout": ('the ticket with the title "{n}"',),
        },
        Kind.MEETING: {
            "train": ('the meeting "{n}"', 'the meeting called "{n}"'),
            "heldout": ('the meeting with the title "{n}"',),
        },
        Kind.ITEM: {"train": ("the {n}",), "heldout": ("the item {n}",)},
    }
)
_TOLD_APART: Mapping[Kind, Choices] = MappingProxyType(
    {
        Kind.PERSON: {"train": ("{n} of the team {d}",), "heldout": ("{n} who works in {d}",)},
        Kind.TICKET: {
            "train": ('the {d} ticket "{n}"', 'the ticket "{n}" that is {d}'),
            "heldout": ('the {d} one of the tickets titled "{n}"',),
        },
        Kind.MEETING: {
            "train": ('the meeting "{n}" that is on {d}', 'the "{n}" meeting of {d}'),
            "heldout": ('the {d} one of the meetings titled "{n}"',),
        },
        Kind.ITEM: {
            "train": ("the {n} that costs {d} coins", "the {n} priced at {d} coins"),
            "heldout": ("the item {n} at {d} coins a piece",),
        },
    }
)
"""`{n}` is the name of two records, `{d}` what only one of them has."""
_PLAIN: Mapping[Kind, str] = MappingProxyType(
    {
        Kind.ROOM: "the room {n}", Kind.ORDER: "the order {n}", Kind.TEAM: "the team {n}",
        Kind.FLOOR: "floor {n}",
    }
)  # fmt: skip
"""Words for records that are named directly, by kind."""


@dataclass(slots=True)
class Refs:
    """References of one task's arguments, while it is made."""

    draw: Draw
    split: Split
    cast: Cast
    start: Office
    now: Office
    by_id: bool = False
    """Records are always named by their ids, so that nothing has to be searched for."""
    spoken: list[Ref] = field(default_factory=list)
    """Records that were meant before."""

    def put(self, table: str, record_id: str, record: object) -> None:
        """A record of the office that the task begins with, changed or new. Ids stay in order."""
        for office in (self.start, self.now):
            rows = {**getattr(office, table), record_id: record}
            setattr(office, table, dict(sorted(rows.items())))

    def mark(self) -> tuple[Office, Office, int]:
        """State that `rewind` returns to."""
        return self.start.copy(), self.now.copy(), len(self.spoken)

    def rewind(self, mark: tuple[Office, Office, int]) -> None:
        for kept, office in zip(mark, (self.start, self.now), strict=False):
            for table in fields(office):
                setattr(office, table.name, dict(getattr(kept, table.name)))
        del self.spoken[mark[2] :]

    def draw_ref(
        self, kind: Kind, hops: int = 0, lookup: Lookup | None = None, *, decoy: bool = False,
        misspelt: bool = False, fits: Fits = lambda value: True,
    ) -> Ref | None:  # fmt: skip
        """A reference of this kind, `hops` lookups away, of which `lookup` is the last; None
        where there is none."""
        if hops:
            lookup = lookup or self._way_to(kind, hops, decoy)
            return None if lookup is None else self._looked_up(lookup, hops, decoy, fits)
        if kind in _TABLES:
            if misspelt:
                return self._misspelt(fits)
            return self._with_namesake(kind, fits) if decoy else self._record(kind, fits)
        known = [value for value in values(self.now, kind) if fits(value)]
        if decoy or misspelt or not known:
            return None
        value = self.draw.pick(known)
        return Ref(kind, value, _PLAIN.get(kind, "{n}").format(n=value), guess=value)

    def _way_to(self, kind: Kind, hops: int, decoy: bool) -> Lookup | None:
        ways = [
            lookup for lookup in LOOKUPS.values()
            if lookup.to == kind and (hops == 1 or lookup.of in _REACHED)
            and not (decoy and hops == 1 and lookup.of not in DECOYED)
        ]  # fmt: skip
        return self.draw.pick(ways) if ways else None

    def _looked_up(self, lookup: Lookup, hops: int, decoy: bool, fits: Fits) -> Ref | None:
        def leads(source: Value) -> bool:
            value = lookup.value(self.now, source)
            return value is not None and fits(value)

        source = self.draw_ref(lookup.of, hops - 1, decoy=decoy, fits=leads)
        value = None if source is None else lookup.value(self.now, source.value)
        if source is None or value is None:
            return None
        if source.chain and (source.chain[-1].lookup, lookup.name) in _THERE_AND_BACK:
            return None
        return Ref(
            lookup.to,
            value,
            self.draw.pick(lookup.phrasings.of(self.split)).format(x=source.words),
            (*source.looks, *lookup.looks(source.value)),
            self._guess(lookup, source, value),
            (*source.chain, Found(lookup.name, source.value, value)),
            source.decoys,
        )

    def _guess(self, lookup: Lookup, source: Ref, value: Value) -> Value:
        """Guess without the lookup: the record that it starts from, or anything."""
        if lookup.of == lookup.to and source.guess != value:
            return source.guess
        return self.draw.pick([other for other in values(self.now, lookup.to) if other != value])

    def _record(self, kind: Kind, fits: Fits) -> Ref | None:
        again = [
            ref for ref in self.spoken
            if ref.kind == kind and fits(ref.value) and self._is_as_said(ref)
        ]  # fmt: skip
        if again and self.draw.below(2):
            return replace(self.draw.pick(again), decoys=0)
        known = [key for key in self._unspoken(kind) if fits(key)]
        if not known:
            return None
        ref = self._by_id_or_name(kind, self.draw.pick(known))
        self.spoken.append(ref)
        return ref

    def _unspoken(self, kind: Kind) -> list[str]:
        """Records that are not mentioned yet, and that nothing has changed."""
        table, name, _ = _TABLES[kind]
        start, now = getattr(self.start, table), getattr(self.now, table)
        spoken = {ref.value for ref in self.spoken}
        names = [getattr(record, name) for record in now.values()]
        return [
            key for key in start
            if key not in spoken and start[key] == now[key]
            and names.count(getattr(start[key], name)) == 1 and not self._is_merged(key)
        ]  # fmt: skip

    def _is_as_said(self, ref: Ref) -> bool:
        """Whether the words for it still hold: what tells namesakes apart may have changed, and a
        merged ticket is another one now."""
        rows = _TABLES[ref.kind][0]
        is_same = getattr(self.start, rows)[ref.value] == getattr(self.now, rows)[ref.value]
        return not self._is_merged(ref.value) and (is_same or not ref.decoys)

    def _is_merged(self, record_id: Value) -> bool:
        """Whether it is a ticket that lives on as another one."""
        ticket = self.now.tickets.get(str(record_id))
        return ticket is not None and bool(ticket.merged_into)

    def _by_id_or_name(self, kind: Kind, record_id: str) -> Ref:
        if self.by_id or self.draw.below(_BY_ID[kind]) == 0:
            return Ref(kind, record_id, record_id, guess=record_id)
        table, name, _ = _TABLES[kind]
        called = getattr(getattr(self.now, table)[record_id], name)
        words = self.draw.pick(_NAMED[kind][self.split]).format(n=called)
        looks = ((f"find_{table}", {name: called}),)
        return Ref(kind, record_id, words, looks, record_id)

    def _with_namesake(self, kind: Kind, fits: Fits) -> Ref | None:
        """One of two records with the same name, of which the request says what only it has."""
        known = [key for key in self._unspoken(kind) if fits(key)]
        if kind not in DECOYED or not known:
            return None
        record_id = self.draw.pick(known)
        table, name, letter = _TABLES[kind]
        record = getattr(self.now, table)[record_id]
        differs, other = self._namesake(kind, record)
        self.put(table, self.cast.new_id(letter), replace(record, **other))
        rows = getattr(self.now, table)
        called = getattr(record, name)
        words = self.draw.pick(_TOLD_APART[kind][self.split]).format(
            n=called, d=getattr(record, differs)
        )
        first = next(key for key in rows if getattr(rows[key], name) == called)
        looks = ((f"find_{table}", {name: called}),)
        ref = Ref(kind, record_id, words, looks, first, decoys=1)
        self.spoken.append(ref)
        return ref

    def _namesake(self, kind: Kind, record: Any) -> tuple[str, dict[str, Any]]:
        """The field that tells a record's namesake from it, and what is other in that one."""
        draw = self.draw
        if kind is Kind.PERSON:
            return "team", {"team": draw.pick([team for team in TEAMS if team != record.team])}
        if kind is Kind.TICKET:
            closed = record.status == "open"
            return "status", {
                "status": "closed" if closed else "open",
                "resolution": "fixed" if closed else "",
                "priority": draw.pick(PRIORITIES),
                "links": (),
            }
        if kind is Kind.MEETING:
            return "day", {"day": draw.pick([day for day in DAYS if day != record.day]), "room": ""}
        return "price", {"price": record.price + draw.between(1, 4)}

    def _misspelt(self, fits: Fits) -> Ref | None:
        """A person whose name has a letter too few; the search says what is like it."""
        known = [key for key in self._unspoken(Kind.PERSON) if fits(key)]
        if not known:
            return None
        person = self.draw.pick(known)
        name = self.now.people[person].name
        first, _, last = name.partition(" ")
        place = self.draw.between(1, len(last) - 2)
        wrong = f"{first} {last[:place]}{last[place + 1 :]}"
        try:
            OfficeTools(self.now).find_people(wrong)
        except ToolFailure as why:
            if str(why).endswith(f"like it: {name}"):
                looks = (("find_people", {"name": wrong}), ("find_people", {"name": name}))
                ref = Ref(Kind.PERSON, person, wrong, looks, self._anybody(person))
                self.spoken.append(ref)
                return ref
        return None

    def _anybody(self, but: str) -> str:
        return self.draw.pick(
            [person for person in records(self.now, Kind.PERSON) if person != but]
        )


_REACHED = frozenset(lookup.to for lookup in LOOKUPS.values())
"""Kinds that can be looked up."""
_THERE_AND_BACK = frozenset({("meeting_of", "host"), ("ticket_of", "owner"), ("order_of", "buyer")})
"""Pairs of lookups that lead back, one after the other."""
