"""Draws the parts of a task: skills with their arguments, what hides them, what is in the way.

Later parts use what earlier parts made wherever that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.phrasing import Choices
from clawrl_gym.envs.showcase.gui.composed.cast import Cast
from clawrl_gym.envs.showcase.gui.composed.desk import Desk, known_numbers, settled
from clawrl_gym.envs.showcase.gui.composed.library import SKILLS
from clawrl_gym.envs.showcase.gui.composed.lookups import LOOKUPS
from clawrl_gym.envs.showcase.gui.composed.obstacles import (
    OBSTACLES,
    Obstacle,
    action_of,
    blocked,
    hedged,
)
from clawrl_gym.envs.showcase.gui.composed.open_page import draw_page
from clawrl_gym.envs.showcase.gui.composed.plan import Action, Part, Plan, Said, do, played
from clawrl_gym.envs.showcase.gui.composed.refs import REACHED, Refs, leads_to
from clawrl_gym.envs.showcase.gui.composed.skill import (
    Args,
    Found,
    Kind,
    Lookup,
    NotApplicable,
    Ref,
    Skill,
    Value,
)
from clawrl_gym.envs.showcase.gui.composed.skills.settings import OFF, ON
from clawrl_gym.envs.showcase.gui.composed.values import DOUBLED, RECORDS, name_of, shown, values
from clawrl_gym.envs.task_ids import composition_split

_TRIES = 20
"""Tries for one part before the whole task is given up."""
_UNHIDDEN = frozenset({"add_row", "write_mail", "check_out", "plan_event", "open_ticket"})
"""Skills with so many arguments that none is hidden."""
_LEADS: Choices = {
    "train": ("tell me", "let me know", "answer with", "say"),
    "heldout": ("report", "reply with"),
}
_FORMS: Mapping[Kind, str] = {
    Kind.NUMBER: ", just the number", Kind.PERSON: ", just the name", Kind.WORD: ", just the word",
    Kind.TIME: ", in the form 9:00", Kind.ITEM: ", just its name",
}  # fmt: skip
"""Words for the form of an answer."""
_UNLESS: Choices = {
    "train": (", unless that is so already", " if that is not so yet", ", should it not be so yet"),
    "heldout": (", provided it is not so by now", ", except where that is so already"),
}
_NEW: Mapping[Kind, Choices] = {
    Kind.TICKET: {"train": ("the new ticket {n}",), "heldout": ("the freshly opened ticket {n}",)},
    Kind.EVENT: {"train": ("the new event {n}",), "heldout": ("the freshly planned event {n}",)},
}
"""A record that the request wants made."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Additions to a part beside its skill."""

    hosts: tuple[str, ...] = ()
    """Applications in which it may be done; none: all."""
    hops: int = 0
    """Lookups to one of its arguments."""
    lookup: str = ""
    """The last of them; empty: any."""
    decoy: bool = False
    """A record with the same name as one of its arguments exists."""
    obstacle: str = ""
    """Obstacle: a name of `OBSTACLES`."""
    hedge: bool = False
    """The request says what to do about an obstacle, and there is none."""
    holds: bool | None = None
    """Whether the wanted state holds already, if the request says "unless"; None: it does not."""
    last: bool = False
    """It ends a composition that has to belong to the split."""


_PLAIN = Variant()


class Composer:
    """One plan while it is made."""

    def __init__(self, draw: Draw, split: Split, *, plain: bool = False) -> None:
        """`plain`: all is done on the page that is open, and names and words are training's."""
        self._draw, self._split = draw, split
        words: Split = "train" if plain else split
        cast = Cast(draw, words)
        self.refs = Refs(draw, words, cast, cast.desk, cast.desk.copy())
        self._page = draw_page(draw, cast.desk) if plain else None
        self._parts: list[Part] = []
        self._made: list[Ref] = []

    def add(self, variant: Variant = _PLAIN) -> None:
        """A part more: mostly with what was made before. Raises NotApplicable where none comes
        about."""
        if variant.hops:
            variant = self._with_lookup(variant)
        known = SKILLS if self._page is None else {name: SKILLS[name] for name in self._page.skills}
        usable = [skill for skill in known.values() if _lends_itself(skill, variant)]
        before = self._parts[-1].skill if self._parts else ""
        made = {ref.kind for ref in self._made}
        going_on = [skill for skill in usable if made & set(skill.takes.values())]
        if variant.holds:  # mostly what goes wrong when it is done once more
            going_on = [skill for skill in usable if skill.blind is not None]
        for _ in range(_TRIES if usable else 0):
            skill = self._draw.pick(going_on if going_on and self._draw.below(3) else usable)
            if skill.name != before and self._try(partial(self._part, skill, variant)):
                return
        raise NotApplicable

    def ask(self, hops: int) -> None:
        """A question about what there is in the end, as the last part. Raises NotApplicable where
        none comes about."""
        asked = [lookup for lookup in LOOKUPS.values() if lookup.asked]
        for _ in range(_TRIES):
            if self._try(partial(self._question, self._draw.pick(asked), hops)):
                return
        raise NotApplicable

    def add_part(self, part: Part) -> None:
        """Add a part that was made elsewhere, of actions that are carried out. Raises
        NotApplicable."""
        if not self._is_as_meant(part.actions, refused=False) or not self._try(lambda: part):
            raise NotApplicable

    def plan(self) -> Plan:
        """The whole. Raises NotApplicable where a near solution or leaving something out would
        pass."""
        plan = Plan(tuple(self._parts), self.refs.start, self.refs.now, self._page)
        if not plan.is_sound:
            raise NotApplicable
        return plan

    @property
    def last_hosts(self) -> frozenset[str]:
        """Hosts of the applications that the last part is about."""
        return self._parts[-1].hosts if self._parts else frozenset()

    def _try(self, make: Callable[[], Part | None]) -> bool:
        """Add the part that is made; False where it did not come about."""
        mark, made = self.refs.mark(), len(self._made)
        part = make()
        if part is not None and self._carry_out(part):
            return True
        self.refs.rewind(mark)
        del self._made[made:]
        return False

    def _carry_out(self, part: Part) -> bool:
        """Carry out a part; whether it changes something, or holds already, and slips show."""
        if part.said is None:
            before = self._settled(())
            after = self._settled(part.actions)
            is_changed = after != before
            if is_changed is part.holds or self._settled(part.near) == after:
                return False
            if part.misled and self._settled(part.spoils or part.blind) == after:
                return False
            self.refs.now = played(self.refs.now, part.actions)
        self._parts.append(part)
        self._know_what_was_made(part)
        return True

    def _settled(self, actions: tuple[Action, ...]) -> dict[str, object]:
        """Relevant state after these actions."""
        known = known_numbers(self.refs.start)
        return settled(played(self.refs.now, actions).stored(), known)

    def _with_lookup(self, variant: Variant) -> Variant:
        """The twist with its last lookup chosen, so that all lookups are equally frequent."""
        at_root = variant.decoy and variant.hops == 1
        ways = [way for way in LOOKUPS.values() if not at_root or way.of in DOUBLED]
        lookup = self._draw.pick(ways)
        hops = variant.hops if lookup.of in REACHED else 1
        return replace(variant, lookup=lookup.name, hops=hops)

    def _part(self, skill: Skill, variant: Variant) -> Part | None:
        args = self._args(skill, variant)
        if args is None:
            return None
        found = tuple(step for ref in args.values() for step in ref.chain)
        if variant.last and not self._belongs(found, skill.name):
            return None
        actions: tuple[Action, ...] = (action_of(skill, args),)
        tail = ""
        if variant.obstacle:
            put = blocked(self.refs, OBSTACLES[variant.obstacle], skill, args)
            if put is None:
                return None
            args, actions, tail = put
        elif variant.hedge:
            tail = hedged(self.refs, _obstacle_of(skill), args)
        elif variant.holds is not None:
            tail = self._draw.pick(_UNLESS[self._split])
        if not self._is_as_meant(actions, refused=variant.obstacle not in ("", "closed")):
            return None
        near = self._near(skill, args, actions)
        if near is None and self._page is not None:
            near = ()  # of a star there is nothing near: it is left out
        if near is None:
            return None
        blind = _blind(skill, args, actions, variant.obstacle)
        spoils = _once_more(skill, args) if variant.holds else ()
        records = {name for name, kind in skill.takes.items() if kind in RECORDS}
        return Part(
            skill=skill.name,
            phrasings=skill.phrasings,
            words={name: ref.words for name, ref in args.items()},
            actions=actions,
            near=near,
            blind=blind,
            spoils=spoils,
            misled=bool(spoils) or blind != actions,
            found=found,
            uses=frozenset(f"{_kind(skill, name)} {args[name].value}" for name in records),
            tail=tail,
            obstacles=int(bool(variant.obstacle)),
            decoys=sum(ref.decoys for ref in args.values()),
            holds=bool(variant.holds),
        )

    def _args(self, skill: Skill, variant: Variant) -> dict[str, Ref] | None:
        """One for each argument of the skill, no two of a kind the same."""
        draw, kinds = self._draw, skill.takes
        lookup = LOOKUPS.get(variant.lookup)
        hidden = [name for name, kind in kinds.items() if lookup and leads_to(lookup, kind)]
        doubled = [name for name, kind in kinds.items() if kind in DOUBLED]
        deep = draw.pick(hidden) if hidden else ""
        twin = (deep or draw.pick(doubled)) if variant.decoy else ""
        args: dict[str, Ref] = {}
        for name, kind in kinds.items():
            given = {known: ref.value for known, ref in args.items()}
            ref = None
            if name not in (deep, twin) and not variant.obstacle:
                ref = self._on_page(kind) or self._made_before(kind)
            ref = ref or self.refs.draw_ref(
                kind, given, lookup if name == deep else None, variant.hops * (name == deep),
                decoy=name == twin, fits=partial(self._stands_here, kind),
            )  # fmt: skip
            if ref is None or (kind, ref.value) in [(r.kind, r.value) for r in args.values()]:
                return None
            args[name] = ref
        meant = {(ref.kind, ref.value) for ref in args.values()}
        steps = (step for ref in args.values() for step in ref.chain)
        of_itself = any((LOOKUPS[step.lookup].of, step.of) in meant for step in steps)
        return None if of_itself else args

    def _belongs(self, found: tuple[Found, ...], skill: str) -> bool:
        """Whether the composition that ends with these is one of the split."""
        before = (name for part in self._parts for name in part.names)
        names = [*before, *(step.lookup for step in found), skill]
        return composition_split(names) == self._split

    def _on_page(self, kind: Kind) -> Ref | None:
        """The record that the open page is about."""
        record = None if self._page is None else self._page.record
        return record if record is not None and record.kind is kind else None

    def _stands_here(self, kind: Kind, value: Value) -> bool:
        return self._page is None or self._page.has(kind, value)

    def _made_before(self, kind: Kind) -> Ref | None:
        """A record that an earlier part makes; None for another one."""
        made = [ref for ref in self._made if ref.kind is kind]
        made = [ref for ref in made if ref.value in values(self.refs.now, kind, {})]
        return self._draw.pick(made) if made and self._draw.below(4) else None

    def _is_as_meant(self, actions: tuple[Action, ...], *, refused: bool) -> bool:
        """Whether the last action is carried out, and the first only where nothing is in the
        way."""
        desk = self.refs.now.copy()
        carried_out = [do(desk, action) for action in actions]
        return carried_out[-1] and carried_out[0] is not refused

    def _near(
        self, skill: Skill, args: Mapping[str, Ref], actions: tuple[Action, ...]
    ) -> tuple[Action, ...] | None:
        """The actions with another last one: one argument is something else of its kind."""
        names = list(skill.takes)
        after, before = self._settled(actions), self._settled(())
        last = dict(actions[-1][1])
        for name in self._draw.some(names, len(names)):
            others = self._others(skill.takes[name], last, name)
            for other in self._draw.some(others, min(3, len(others))):
                near = (*actions[:-1], (skill.name, {**last, name: other}))
                if self._settled(near) not in (after, before):
                    return near
        return None

    def _others(self, kind: Kind, args: Args, name: str) -> list[Value]:
        if self._on_page(kind) is not None:
            return []  # there is no other one here
        known = [one for one in values(self.refs.now, kind, args) if self._stands_here(kind, one)]
        return [value for value in known if value not in (args[name], *args.values())]

    def _question(self, lookup: Lookup, hops: int) -> Part | None:
        hops = hops if lookup.of in REACHED else 0
        way = self._draw.pick([None, *(w for w in LOOKUPS.values() if w.to is lookup.of)])
        ref = None if hops and way else self._made_before(lookup.of)
        ref = ref or self.refs.draw_ref(lookup.of, {}, way, hops if way else 0)
        if ref is None or not self._belongs(ref.chain, lookup.name):
            return None
        desk = self.refs.now
        right = lookup.value(desk, ref.value)
        known = {lookup.value(desk, value) for value in values(desk, lookup.of, {})}
        others = known - {right, None}
        if right is None or not others:
            return None
        wrong = self._draw.pick(sorted((one for one in others if one is not None), key=str))
        blind = right if ref.guess == ref.value else lookup.value(desk, ref.guess)
        lead = self._draw.pick(_LEADS[self._split])
        return Part(
            skill=lookup.name,
            phrasings=lookup.phrasings,
            words={"x": ref.words, "lead": lead},
            actions=(),
            misled=blind != right,
            found=ref.chain,
            looks=((lookup.name, ref.value),),
            glances=((lookup.name, ref.guess),),
            uses=frozenset({f"{lookup.of} {ref.value}"}),
            tail=_FORMS[lookup.to],
            said=Said(
                shown(lookup.to, right),
                shown(lookup.to, wrong),
                shown(lookup.to, wrong if blind is None else blind),
                lookup.host,
                "" if lookup.of in (Kind.SORT, Kind.SHEET) else _about(desk, lookup, ref.value),
            ),
        )

    def _know_what_was_made(self, part: Part) -> None:
        skill = SKILLS.get(part.skill)
        if skill is None or skill.makes is None or part.said is not None:
            return
        kind = skill.makes
        desk = self.refs.now
        new = max(values(desk, kind, {}), key=lambda number: int(number))
        said = self._draw.pick(_NEW[kind][self._split]).format(n=part.words["title"])
        self._made.append(Ref(kind, new, said, new))
        self._parts[-1] = replace(part, makes=frozenset({f"{kind} {new}"}))


def _blind(
    skill: Skill, args: Mapping[str, Ref], actions: tuple[Action, ...], obstacle: str
) -> tuple[Action, ...]:
    """Deeds of an agent that looks at nothing and reads no refusal."""
    if obstacle:
        return actions[1:] if obstacle == "closed" else actions[:1]
    return ((skill.name, {name: ref.guess for name, ref in args.items()}),)


def _once_more(skill: Skill, args: Mapping[str, Ref]) -> tuple[Action, ...]:
    """Deeds that do harm where the wanted state holds already; empty: no harm."""
    if skill.name == "switch_setting":
        return (action_of(skill, args, switch=OFF if args["switch"].value == ON else ON),)
    if skill.name == "set_count":
        return (action_of(skill, args, count=2 * int(args["count"].value)),)
    return ()


def _kind(skill: Skill, name: str) -> Kind:
    """Kind of a record: one in the basket is an item."""
    kind = skill.takes[name]
    return Kind.ITEM if kind is Kind.LINE else kind


def _about(desk: Desk, lookup: Lookup, of: Value) -> str:
    """Text on a page that tells of it."""
    name = name_of(desk, lookup.of, of)
    return name.split("/")[1] if lookup.of is Kind.CELL else name


def _obstacle_of(skill: Skill) -> Obstacle:
    """Obstacle that a skill can have."""
    return next(one for one in OBSTACLES.values() if skill.name in one.skills)


def _lends_itself(skill: Skill, variant: Variant) -> bool:
    """Whether a skill can be asked for with this hidden, doubled, or in the way."""
    kinds = set(skill.takes.values())
    if variant.hosts and skill.host not in variant.hosts:
        return False
    if variant.obstacle:
        return skill.name in OBSTACLES[variant.obstacle].skills
    if variant.hedge:
        return any(skill.name in one.skills for one in OBSTACLES.values())
    if variant.holds is not None:
        return skill.settles
    if variant.hops:
        lookup = LOOKUPS[variant.lookup]
        return skill.name not in _UNHIDDEN and any(leads_to(lookup, kind) for kind in kinds)
    return not variant.decoy or bool(kinds & DOUBLED)
