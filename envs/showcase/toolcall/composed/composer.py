"""Draws the parts of a task in an office: arguments, what hides them, what refuses, and rules.

Results of calls are those of the tools themselves. Later parts use what earlier parts made
wherever that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.phrasing import Choices
from clawrl_gym.envs.showcase.toolcall.composed.actions import ACTIONS
from clawrl_gym.envs.showcase.toolcall.composed.cast import DRAWN, Cast, records, values
from clawrl_gym.envs.showcase.toolcall.composed.lookups import LOOKUPS, QUESTIONS
from clawrl_gym.envs.showcase.toolcall.composed.obstacles import MISSPELT, OBSTACLES, call_of
from clawrl_gym.envs.showcase.toolcall.composed.plan import Part, Plan, Verdict, played, succeeds
from clawrl_gym.envs.showcase.toolcall.composed.refs import DECOYED, Refs
from clawrl_gym.envs.showcase.toolcall.composed.rules import RULES, Mode, Rule
from clawrl_gym.envs.showcase.toolcall.composed.skill import (
    Found,
    Kind,
    NotApplicable,
    Question,
    Ref,
    Skill,
)
from clawrl_gym.envs.showcase.toolcall.families.family import CallSpec
from clawrl_gym.envs.showcase.toolcall.office.world import Office
from clawrl_gym.envs.task_ids import composition_split

_TRIES = 12
"""Tries for one part before the whole task is given up."""
_LOOKED_UP = frozenset(lookup.to for lookup in LOOKUPS.values())
_UNHIDDEN = frozenset({"open_ticket", "book_meeting"})
"""Skills with so many arguments that none is hidden."""
_LEADS: Choices = {
    "train": ("tell me", "let me know", "say", "find out"),
    "heldout": ("report back", "answer me this:"),
}
_NEW: Mapping[Kind, Choices] = {
    Kind.TICKET: {"train": ("the new ticket {n}",), "heldout": ("the freshly opened ticket {n}",)},
    Kind.MEETING: {
        "train": ("the new meeting {n}",), "heldout": ("the freshly booked meeting {n}",)
    },
    Kind.ORDER: {
        "train": ("the new order for {n}",), "heldout": ("the freshly placed order for {n}",)
    },
}  # fmt: skip
"""A record that the request wants made, by what it is made with."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Additions to a part beside its skill."""

    hops: int = 0
    """Lookups to one of its arguments."""
    lookup: str = ""
    """The last of them; empty: any."""
    makes: bool = False
    """It makes a new record."""
    decoy: bool = False
    """A record with the same name as one of its arguments exists."""
    obstacle: str = ""
    """Obstacle: a name of `OBSTACLES`, or a name that is misspelt."""
    last: bool = False
    """It ends a composition that has to belong to the split."""


_PLAIN = Variant()


class Composer:
    """One plan while it is made."""

    def __init__(self, draw: Draw, split: Split, *, plain: bool = False) -> None:
        """`plain`: ids are given, and no part needs what another one has made."""
        self._draw, self._split, self._plain = draw, split, plain
        cast = Cast(draw)
        self.refs = Refs(draw, split, cast, cast.office, cast.office.copy(), by_id=plain)
        self._parts: list[Part] = []
        self._made: list[Ref] = []
        self._rules: list[tuple[Rule, str]] = []
        """Rules with their words."""

    def add(self, variant: Variant = _PLAIN) -> None:
        """A part more: mostly with what was made before. Raises NotApplicable where none comes
        about."""
        if variant.hops:
            variant = self._with_lookup(variant)
        usable = [skill for skill in ACTIONS.values() if _lends_itself(skill, variant)]
        before = self._parts[-1].skill if self._parts else ""
        made = {ref.kind for ref in self._made}
        going_on = [skill for skill in usable if made & set(skill.takes.values())]
        for _ in range(_TRIES):
            skill = self._draw.pick(going_on if going_on and self._draw.below(4) else usable)
            if skill.name != before and self._try(partial(self._part, skill, variant)):
                return
        raise NotApplicable

    def add_ruled(self, verdict: Verdict, *, last: bool) -> None:
        """A part that one of the rules is about. Raises NotApplicable where none comes about."""
        draw = self._draw
        mode: Mode = "forbids" if verdict == "forbidden" else "asks"
        if verdict == "allowed":
            mode = draw.pick(("forbids", "forbids", "asks"))
        rule = draw.pick(list(RULES.values()))
        self._rules.append((rule, rule.text(mode, draw.below(100), self._split)))
        for _ in range(4 * _TRIES):
            if self._try(partial(self._ruled, rule, verdict, Variant(last=last))):
                return
        raise NotApplicable

    def add_rules(self, count: int) -> None:
        """Rules more, which concern nothing that is asked for. Raises NotApplicable where one
        would."""
        known = {rule.skill for rule, _ in self._rules}
        left = [rule for rule in RULES.values() if rule.skill not in known]
        for rule in self._draw.some(left, count):
            mode: Mode = self._draw.pick(("forbids", "asks"))
            self._rules.append((rule, rule.text(mode, self._draw.below(100), self._split)))
        concerned = sum(
            rule.skill == name and rule.applies(self.refs.now, arguments)
            for part in self._parts
            for name, arguments in part.calls
            for rule, _ in self._rules
        )
        meant = sum(not part.is_free for part in self._parts)
        if concerned != meant:
            raise NotApplicable

    def ask(self, hops: int) -> None:
        """A question about what there is in the end, as the last part. Raises NotApplicable where
        none comes about."""
        for _ in range(_TRIES):
            question = self._draw.pick(list(QUESTIONS.values()))
            if self._try(partial(self._question, question, hops)):
                return
        raise NotApplicable

    def add_part(self, part: Part) -> None:
        """A part that was made elsewhere, of calls that are all carried out. Raises
        NotApplicable."""
        if not all(succeeds(self.refs.now, part.calls)) or not self._try(lambda: part):
            raise NotApplicable

    def plan(self) -> Plan:
        """The whole. Raises NotApplicable where a near solution or leaving something out would
        pass."""
        rules = tuple(text for _, text in self._rules)
        order = self._draw.some(rules, len(rules))
        plan = Plan(tuple(self._parts), self.refs.start, self.refs.now, tuple(order))
        if not plan.is_sound:
            raise NotApplicable
        shown = [part for part in plan.parts if part.answer is None and part.is_free]
        near = (turns for part in shown for turns in plan.near_in(part))
        if any(played(plan.start, turns) == plan.end for turns in near):
            raise NotApplicable
        return plan

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
        """Whether the part changes something, unless it is not to, and slips show."""
        before = self.refs.now
        after = played(before, part.calls)
        if part.answer is not None:
            self._parts.append(part)
            return True
        slips = [played(before, slip) for slip in (part.near, part.guessed) if slip]
        if after == before or (part.is_free and after in slips):
            return False
        changes = after.changed_since(before)
        self._parts.append(replace(part, changes=changes if part.is_done else frozenset()))
        if part.is_done:
            self.refs.now = after
            self._know_what_was_made(part)
        return True

    def _with_lookup(self, variant: Variant) -> Variant:
        """The twist with its last lookup chosen, so that all lookups are equally frequent."""
        at_root = variant.decoy and variant.hops == 1
        ways = [way for way in LOOKUPS.values() if not at_root or way.of in DECOYED]
        lookup = self._draw.pick(ways)
        hops = variant.hops if lookup.of in _LOOKED_UP else 1
        return replace(variant, lookup=lookup.name, hops=hops)

    def _part(self, skill: Skill, variant: Variant, rule: Rule | None = None) -> Part | None:
        args, obstacle = self._args(skill, variant), variant.obstacle
        if args is None:
            return None
        found = tuple(step for ref in args.values() for step in ref.chain)
        if variant.last and not self._belongs(found, skill.name):
            return None
        calls: tuple[CallSpec, ...] = (call_of(skill, args),)
        if obstacle and obstacle != MISSPELT:
            put = OBSTACLES[obstacle][0](self.refs, skill, args)
            if put is None:
                return None
            args, calls = put
        if not _is_as_meant(self.refs.now, calls, refused=obstacle not in ("", MISSPELT)):
            return None
        near = self._near(skill, args, calls)
        if near is None:
            return None
        guess = (skill.name, {name: ref.guess for name, ref in args.items()})
        looks = tuple(look for ref in args.values() for look in ref.looks)
        ruled = () if rule is None else rule.looks(self.refs.now, calls[-1][1])
        return Part(
            skill=skill.name,
            phrasings=skill.phrasings,
            words={name: ref.words for name, ref in args.items()},
            looks=(*looks, *ruled),
            calls=calls,
            near=near,
            guessed=() if (guess,) == calls else (guess,),
            found=found,
            uses=frozenset(ref.value for ref in args.values()),
            obstacles=int(bool(obstacle)),
            decoys=sum(ref.decoys for ref in args.values()),
            seen=self._known(ruled),
        )

    def _args(self, skill: Skill, variant: Variant) -> dict[str, Ref] | None:
        """One for each argument of the skill, no two the same."""
        draw, kinds = self._draw, skill.takes
        hidden = [name for name, kind in kinds.items() if variant.hops and _leads_to(variant, kind)]
        doubled = [name for name, kind in kinds.items() if kind in DECOYED]
        people = [name for name, kind in kinds.items() if kind is Kind.PERSON]
        deep = draw.pick(hidden) if hidden else ""
        twin = (deep or draw.pick(doubled)) if variant.decoy else ""
        wrong = draw.pick(people) if variant.obstacle == MISSPELT else ""
        args: dict[str, Ref] = {}
        for name, kind in kinds.items():
            ref = None
            if kind is Kind.TITLE:
                ref = self._title(skill)
            elif name not in (deep, twin) and not variant.obstacle:
                ref = self._made_before(kind)
            ref = ref or self.refs.draw_ref(
                kind,
                variant.hops * (name == deep),
                LOOKUPS.get(variant.lookup),
                decoy=name == twin,
                misspelt=name == wrong,
            )
            if ref is None or ref.value in (known.value for known in args.values()):
                return None
            args[name] = ref
        return args

    def _title(self, skill: Skill) -> Ref:
        """Title of a new record."""
        title = self.refs.cast.title(skill.makes or Kind.TICKET)
        return Ref(Kind.TITLE, title, f'"{title}"', guess=title)

    def _belongs(self, found: Sequence[Found], skill: str) -> bool:
        """Whether the composition that ends with these is one of the split."""
        before = (name for part in self._parts for name in part.names)
        names = [*before, *(step.lookup for step in found), skill]
        return composition_split(names) == self._split

    def _made_before(self, kind: Kind) -> Ref | None:
        """A record that an earlier part makes; None for another one."""
        made = [ref for ref in self._made if ref.kind == kind]
        return self._draw.pick(made) if made and self._draw.below(4) else None

    def _near(
        self, skill: Skill, args: Mapping[str, Ref], calls: Sequence[CallSpec]
    ) -> tuple[CallSpec, ...] | None:
        """The calls with another last one: one argument is something else of its kind."""
        names = list(skill.takes)
        after = played(self.refs.now, calls)
        for name in self._draw.some(names, len(names)):
            if skill.takes[name] is Kind.TITLE:
                continue
            others = [v for v in values(self.refs.now, skill.takes[name]) if v != args[name].value]
            for other in self._draw.some(others, min(3, len(others))):
                near = (*calls[:-1], (calls[-1][0], {**calls[-1][1], name: other}))
                end = played(self.refs.now, near)
                if end not in (after, self.refs.now):
                    return near
        return None

    def _ruled(self, rule: Rule, verdict: Verdict, variant: Variant) -> Part | None:
        part = self._part(ACTIONS[rule.skill], variant, rule)
        if part is None or rule.applies(self.refs.now, part.calls[-1][1]) is (verdict == "allowed"):
            return None
        if verdict == "allowed":
            return replace(part, verdict=verdict)
        return replace(part, near=part.calls, verdict=verdict)

    def _question(self, question: Question, hops: int) -> Part | None:
        hops = max(hops, 1) if question.name == "name" else hops
        ref = None if hops else self._made_before(question.takes)
        if hops and question.takes not in _LOOKED_UP:
            return None
        ref = ref or self.refs.draw_ref(question.takes, hops)
        if ref is None or not self._belongs(ref.chain, question.name):
            return None
        now = self.refs.now
        answer, guess = (question.answer(now, value) for value in (ref.value, ref.guess))
        others = {question.answer(now, value) for value in values(now, question.takes)} - {answer}
        if not others:
            return None
        near = self._draw.pick(sorted(others, key=str))
        lead = self._draw.pick(_LEADS[self._split])
        return Part(
            skill=question.name,
            phrasings=question.phrasings,
            words={"x": ref.words, "lead": lead},
            looks=ref.looks,
            calls=question.looks(now, ref.value),
            near=(f"The answer is {near}.",),
            guessed=() if guess == answer else (f"The answer is {guess}.",),
            found=ref.chain,
            uses=frozenset({ref.value}),
            answer=answer,
            seen=self._known(((question.name, {"x": ref.value}),)),
        )

    def _known(self, looks: Sequence[CallSpec]) -> frozenset[str]:
        """Records that these look at, if the office begins with them."""
        ids = {str(value) for _, arguments in looks for value in arguments.values()}
        return frozenset(ids & {key for kind in DRAWN for key in records(self.refs.start, kind)})

    def _know_what_was_made(self, part: Part) -> None:
        skill = ACTIONS.get(part.skill)
        if self._plain or skill is None or skill.makes is None:
            return
        words = part.words.get("title") or part.words["item"]
        said = self._draw.pick(_NEW[skill.makes][self._split]).format(n=words)
        made = self._parts[-1].changes
        letter = {Kind.TICKET: "T", Kind.MEETING: "M", Kind.ORDER: "O"}[skill.makes]
        new = next(record_id for record_id in made if record_id.startswith(letter))
        self._made.append(Ref(skill.makes, new, said, guess=new))


def _lends_itself(skill: Skill, variant: Variant) -> bool:
    """Whether a skill can be asked for with this hidden, doubled, or in the way."""
    kinds = set(skill.takes.values())
    if variant.obstacle == MISSPELT:
        return Kind.PERSON in kinds
    if variant.obstacle:
        return skill.name in OBSTACLES[variant.obstacle][1]
    if variant.hops:
        led_to = any(_leads_to(variant, kind) for kind in kinds)
        return led_to and skill.name not in _UNHIDDEN
    if variant.makes:
        return skill.makes is not None
    return not variant.decoy or bool(kinds & set(DECOYED))


def _leads_to(variant: Variant, kind: Kind) -> bool:
    """Whether what is looked up is of this kind."""
    return LOOKUPS[variant.lookup].to == kind if variant.lookup else kind in _LOOKED_UP


def _is_as_meant(office: Office, calls: Sequence[CallSpec], *, refused: bool) -> bool:
    """Whether the last call is carried out, and the first only where nothing is in the way."""
    done = succeeds(office, calls)
    return done[-1] and done[0] is not refused
