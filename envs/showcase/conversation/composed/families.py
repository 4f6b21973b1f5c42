"""The families of composed conversations, by name; each draws a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.conversation.composed.composer import Composer, NotApplicable
from clawrl_gym.envs.showcase.conversation.composed.facts import CORRECTED
from clawrl_gym.envs.showcase.conversation.composed.plan import Plan
from clawrl_gym.envs.showcase.conversation.composed.speech import is_sound
from clawrl_gym.envs.task_ids import composition_split, split_of_content

MOST = 8
"""The most that difficulty can be."""


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of composed conversations."""

    name: str
    build: Callable[[Composer, Draw], None]
    """Makes the messages. Raises NotApplicable."""
    heldout_only: bool = False
    alone: bool = False
    """True for one message, so that a question belongs to one split, as others' compositions do."""

    def draw(self, draw: Draw, split: Split) -> Plan | None:
        """One conversation; None where these draws come to none."""
        composer = Composer(draw, split)
        try:
            self.build(composer, draw)
        except NotApplicable:
            return None
        plan = composer.plan()
        if plan.difficulty > MOST or not is_sound(plan):
            return None
        if self.alone:
            return plan if split_of_content(plan.steps[0].text) == split else None
        is_ours = self.heldout_only or composition_split(plan.names) == split
        return plan if is_ours else None


def _any_ask(composer: Composer, draw: Draw) -> None:
    """A question of some kind."""
    kind = draw.below(6)
    if kind == 0:
        composer.problem()
    elif kind == 1:
        composer.pick()
    else:
        composer.ask()


def _back(composer: Composer, draw: Draw) -> None:
    """A question that needs what was said before."""
    known = [kind for kind in composer.known if kind != "diet"]
    if draw.below(8) == 0:
        composer.first_answer()
    elif known and draw.below(3) == 0:
        composer.recall(draw.pick(known))
    elif "diet" in composer.facts and draw.below(3) == 0:
        composer.pick()
    elif known:
        _after(composer, draw, draw.pick(known))
    else:
        composer.pick()


def _begin(composer: Composer, draw: Draw, *kinds: str) -> None:
    """The first message: some facts, these among them, and mostly a question."""
    more = draw.some([kind for kind in (*CORRECTED, "ahead", "diet") if kind not in kinds], 2)
    for kind in draw.some([*kinds, *more[: draw.between(0 if kinds else 1, 2)]], len(kinds) or 1):
        composer.tell(kind)
    for kind in kinds:
        if kind not in composer.facts:
            composer.tell(kind)
    if draw.below(3):
        composer.ask() if draw.below(2) else composer.problem()


def _single(composer: Composer, draw: Draw) -> None:
    _any_ask(composer, draw)
    composer.say()


def _turns(composer: Composer, draw: Draw) -> None:
    for _ in range(draw.between(2, 6)):
        _any_ask(composer, draw)
        composer.say()


def _recall(composer: Composer, draw: Draw) -> None:
    _begin(composer, draw, *draw.some((*CORRECTED, "diet"), draw.between(2, 3)))
    composer.say()
    for at in range(draw.between(1, 4)):
        _back(composer, draw)
        if at and draw.below(4) == 0:
            _back(composer, draw)
        composer.say()


def _wish(composer: Composer, draw: Draw) -> None:
    count, at = draw.between(2, 6), draw.below(2)
    composer.wish(told=draw.below(3) > 0)
    if draw.below(3) == 0:
        composer.wish(told=True)
    for n in range(count):
        if n == at and draw.below(2):
            composer.tell(draw.pick([kind for kind in CORRECTED if kind not in composer.facts]))
        _any_ask(composer, draw)
        composer.say()


def _correct(composer: Composer, draw: Draw) -> None:
    kind = draw.pick(CORRECTED)
    _begin(composer, draw, kind)
    composer.say()
    for _ in range(draw.below(2)):
        _any_ask(composer, draw)
        composer.say()
    kinds = [kind, *draw.some(composer.correctable, len(composer.correctable))]
    for wrong in dict.fromkeys(kinds[: draw.between(1, 2)]):
        composer.correct(wrong)
    _any_ask(composer, draw) if draw.below(2) else _after(composer, draw, kind)
    composer.say()
    for n in range(draw.between(1, 3)):
        _after(composer, draw, kind) if n == 0 else _back(composer, draw)
        composer.say()


def _after(composer: Composer, draw: Draw, kind: str) -> None:
    """A question that takes just this fact."""
    composer.recall(kind) if kind == "keeper" or draw.below(3) == 0 else composer.ask(kind)


def _except(composer: Composer, draw: Draw) -> None:
    held = composer.wish()
    _any_ask(composer, draw)
    composer.say()
    for _ in range(draw.below(2)):
        _any_ask(composer, draw)
        composer.say()
    composer.except_once(held)
    composer.ask()
    composer.say()
    for _ in range(draw.between(1, 3)):
        _any_ask(composer, draw)
        composer.say()


def _distract(composer: Composer, draw: Draw) -> None:
    kind = draw.pick(CORRECTED)
    _begin(composer, draw, kind)
    composer.say()
    for n in range(draw.between(2, 4)):
        if n < 2 and (n == 0 or draw.below(2)):
            composer.distract(
                kind
                if n == 0
                else draw.pick([kind for kind in CORRECTED if kind in composer.facts])
            )
        _after(composer, draw, kind) if n == draw.below(2) else _back(composer, draw)
        composer.say()


def _files(composer: Composer, draw: Draw) -> None:
    _begin(composer, draw, *draw.some(CORRECTED, draw.between(1, 2)))
    composer.say()
    reads = draw.below(3) > 0
    if reads:
        composer.read_price()
        composer.say()
    for _ in range(draw.below(3)):
        _back(composer, draw)
        composer.say()
    if reads:
        composer.listed_cost()
        composer.say()
    if not reads or draw.below(2):
        composer.write([draw.pick(composer.known)])
        composer.say()
    for _ in range(draw.below(2)):
        _back(composer, draw)
        composer.say()


def _juggle(composer: Composer, draw: Draw) -> None:
    """Several of all these."""
    kind = draw.pick(CORRECTED)
    moves = draw.some(
        ("correct", "except", "distract", "read", "write", "back"), draw.between(2, 4)
    )
    held = composer.wish(told="except" in moves or draw.below(4) > 0)
    _begin(composer, draw, kind)
    composer.say()
    for move in moves:
        if move == "correct":
            composer.correct(kind)
            _any_ask(composer, draw)
        elif move == "except":
            composer.except_once(held)
            composer.ask()
        elif move == "distract":
            composer.distract(kind)
            _any_ask(composer, draw)
        elif move == "read":
            composer.read_price()
        elif move == "write":
            composer.write([draw.pick(composer.known)])
        else:
            _back(composer, draw)
        composer.say()
    if "read" in moves and draw.below(2):
        composer.listed_cost()
    else:
        _after(composer, draw, kind)
    composer.say()


def _minutes(composer: Composer, draw: Draw) -> None:
    """Minutes: at the end all that matters is written down, as it is by then."""
    kinds = draw.some(CORRECTED, draw.between(2, 3))
    _begin(composer, draw, *kinds)
    composer.say()
    moves = draw.some(("correct", "distract", "ask"), draw.between(1, 3))
    for move in moves:
        if move == "correct":
            composer.correct(kinds[0])
        elif move == "distract":
            composer.distract(kinds[-1])
        _any_ask(composer, draw)
        composer.say()
    composer.write(draw.some(kinds, len(kinds)))
    composer.say()


def _undo(composer: Composer, draw: Draw) -> None:
    """A correction that is taken back."""
    kind = draw.pick(CORRECTED)
    _begin(composer, draw, kind)
    composer.say()
    composer.correct(kind)
    _any_ask(composer, draw)
    composer.say()
    for _ in range(draw.below(2)):
        _any_ask(composer, draw)
        composer.say()
    composer.undo(kind)
    _any_ask(composer, draw)
    composer.say()
    _after(composer, draw, kind)
    composer.say()


_ALL = (
    Family("correct", _correct),
    Family("distract", _distract),
    Family("except", _except),
    Family("files", _files),
    Family("juggle", _juggle),
    Family("minutes", _minutes, heldout_only=True),
    Family("recall", _recall),
    Family("single", _single, alone=True),
    Family("turns", _turns),
    Family("undo", _undo, heldout_only=True),
    Family("wish", _wish),
)

FAMILIES: Mapping[str, Family] = MappingProxyType({family.name: family for family in _ALL})
"""Sorted by name."""
