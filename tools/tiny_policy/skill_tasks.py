"""Demonstrations of single skills in the terminal, without a slip. Nothing is run: what is shown
follows from the model of the folder.

No reply of a demonstration does two things of one request by itself. Where a request has two, the
other one is somebody else's (`show_other_is_not_asked`), or a person answers when the first is done
(`show_led`); or the second is asked for when the first is done (`show_one_after_the_other`).
"""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from clawrl_gym.core.types import Message, Split
from clawrl_gym.envs.draw import WORDS, Draw
from clawrl_gym.envs.phrasing import Place, numbered, sentence, upper
from clawrl_gym.envs.sandbox.interface import ExecResult
from clawrl_gym.envs.terminal.agent import TerminalAgent, reply_text
from clawrl_gym.envs.terminal.composed.generated import compose, make_task, plain_tasks
from clawrl_gym.envs.terminal.composed.plan import Part, Plan, played
from clawrl_gym.envs.terminal.composed.wording import SIDE_EFFECTS, clauses, framed
from clawrl_gym.envs.terminal.composed.world import World
from clawrl_gym.envs.terminal.env import observation_of
from clawrl_gym.envs.terminal.task import BUDGET, SUBMIT
from tools.tiny_policy.conversations import Conversation, drawn
from tools.tiny_policy.skill_words import (
    DONE,
    HAS_BEEN_DONE,
    NODS,
    NOT_ASKED,
    ORDERS,
    PEOPLE,
    WILL_BE_DONE,
)

BUDGETS = (4, 5)
"""Replies that a request says there are: those of one and of two skills."""
_NOTES = "/tmp/notes"


@dataclass(frozen=True, slots=True)
class Style:
    """How the work on one skill is shown."""

    looks: bool = False
    """At the folder, or at what the skill works on, before it."""
    submits_at_once: bool = False
    """In the reply of the last command."""
    checks: bool = False
    """Looks at what was made, before it submits."""


ALONE: Mapping[Style, float] = MappingProxyType({
    Style(submits_at_once=True): 0.3,
    Style(looks=True, submits_at_once=True): 0.2,
    Style(): 0.2,
    Style(checks=True): 0.15,
    Style(looks=True): 0.15,
})  # fmt: skip
"""Shares of the styles in which a request is served to its end."""
BEFORE_MORE: Mapping[Style, float] = MappingProxyType({Style(): 0.7, Style(looks=True): 0.3})
"""The same before somebody says more."""


@dataclass(slots=True)
class Session:
    """What was said and done so far."""

    observations: list[str]
    commands: list[str] = field(default_factory=list)

    def run(self, command: str, output: str = "") -> None:
        self.commands.append(command)
        self.observations.append(observation_of(ExecResult(output=output, exit_code=0)))

    def say(self, text: str) -> None:
        """A person's word behind the last output."""
        self.observations[-1] += f"\n\n{text}"

    def ended(self, command: str) -> list[Message]:
        """All messages, with the last reply."""
        replies: list[Message] = [
            {"role": "assistant", "content": reply_text(one)} for one in (*self.commands, command)
        ]
        return [*TerminalAgent().messages(self.observations, replies[:-1]), replies[-1]]


@dataclass(frozen=True, slots=True)
class SkillDemonstrations:
    """Plain tasks of one split, each drawn at random and shown once. Of two skills, only training
    compositions are drawn, whatever the split."""

    split: Split = "train"
    alone: float = 0.5
    """Share of requests with one thing to do; the others are shares too."""
    other_is_not_asked: float = 0.22
    one_after_the_other: float = 0.08
    led: float = 0.2
    orders: float = 0.5
    """How often who leads says that there is more to do; else they nod."""
    nods: float = 0.3
    """Share of the last commands that a person answers."""
    bare: bool = False
    """Only requests with one thing to do, without all that is always said, and the commands."""
    of_words: bool = False
    """bare: only requests that name a word of the files."""

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Fresh conversations, endlessly, from the seed alone; the family is the skill's name."""
        chance = random.Random(f"shown/{seed}")
        ones = drawn({"one": plain_tasks(["one"]).ids(self.split)}, {}, seed)
        twos = drawn({"two": plain_tasks(["two"]).ids("train")}, {}, seed + 1)
        of_two: tuple[Callable[[str, random.Random], Conversation], ...] = (
            self.show_other_is_not_asked, self.show_one_after_the_other, self.show_led,
        )  # fmt: skip
        shares = (self.other_is_not_asked, self.one_after_the_other, self.led)
        while True:
            if self.bare or chance.random() < self.alone:
                task_id = next(ones)
                if not self.of_words or _names_a_word(task_id):
                    yield self.show_alone(task_id, chance)
            else:
                (show,) = chance.choices(of_two, shares)
                yield show(next(twos), chance)

    def show_alone(self, task_id: str, chance: random.Random) -> Conversation:
        plan, request = _plan(task_id), make_task(task_id).instruction
        (part,) = plan.parts
        if self.bare:
            messages: list[Message] = [
                {"role": "user", "content": request.removesuffix(SIDE_EFFECTS).rstrip()},
                {"role": "assistant", "content": "\n".join(_commands(part, chance))},
            ]
            return Conversation(messages, part.skill.name)
        session = _session(request, BUDGETS[0])
        return Conversation(
            self._to_the_end(session, part, plan.start, plan.end, chance), part.skill.name
        )

    def show_other_is_not_asked(self, task_id: str, chance: random.Random) -> Conversation:
        """Of two things, one was done before, or somebody else will do it."""
        plan = _plan(task_id)
        between = played(plan.start, [plan.parts[0].deed()])
        draw = Draw(f"not asked/{task_id}")
        first, second = clauses(draw, "train", plan.parts)
        is_first = draw.below(2) == 0
        if draw.below(3) == 0:
            mark = draw.pick(NOT_ASKED if is_first else DONE)
            lines = [first, second + mark] if is_first else [first + mark, second]
            body = numbered(draw, "train", lines)
        elif is_first:
            other = draw.pick(WILL_BE_DONE).format(who=draw.pick(PEOPLE), do=second)
            body = f"{sentence(draw, 'train', 'first', first)} {upper(other)}"
        else:
            other = draw.pick(HAS_BEEN_DONE).format(who=draw.pick(PEOPLE), do=first)
            own = sentence(draw, "train", draw.pick(("next", "last")), second)
            body = f"{upper(other)} {own}"
        part = plan.parts[0 if is_first else 1]
        start, end = (plan.start, between) if is_first else (between, plan.end)
        session = _session(framed(draw, "train", body), chance.choice(BUDGETS))
        return Conversation(self._to_the_end(session, part, start, end, chance), part.skill.name)

    def show_one_after_the_other(self, task_id: str, chance: random.Random) -> Conversation:
        """The second thing is asked for when the first is done."""
        draw = Draw(f"one after the other/{task_id}")
        first, second = clauses(draw, "train", _plan(task_id).parts)
        request = framed(draw, "train", sentence(draw, "train", "first", first))
        place: Place = draw.pick(("next", "last"))
        return self._in_two(task_id, request, sentence(draw, "train", place, second), chance)

    def show_led(self, task_id: str, chance: random.Random) -> Conversation:
        """Two things are asked for, and a person answers when the first is done."""
        nod = chance.choice(ORDERS if chance.random() < self.orders else NODS)
        return self._in_two(task_id, make_task(task_id).instruction, nod, chance)

    def _in_two(
        self, task_id: str, request: str, between: str, chance: random.Random
    ) -> Conversation:
        plan = _plan(task_id)
        first, second = plan.parts
        middle = played(plan.start, [first.deed()])
        session = _session(request, chance.choice(BUDGETS))
        style = _style(BEFORE_MORE, chance)
        _work(session, first, plan.start, style, chance)
        session.say(between)
        return Conversation(
            self._to_the_end(session, second, middle, plan.end, chance), first.skill.name
        )

    def _to_the_end(
        self, session: Session, part: Part, start: World, end: World, chance: random.Random
    ) -> list[Message]:
        """One skill and the submission."""
        style = _style(ALONE, chance)
        last = _work(session, part, start, style, chance)
        if style.submits_at_once:
            return session.ended(f"{last}\n{SUBMIT}")
        if chance.random() < self.nods:
            session.say(chance.choice(NODS))
        if style.checks:
            session.run(*_look_after(part, end))
        return session.ended(SUBMIT)


def looks_at(start: World, part: Part) -> list[tuple[str, str]]:
    """Commands that show what a skill begins with, and what they print."""
    looks = [("ls", _listing(start))]
    source = part.args.get("a", "")
    if source in start.folders:
        looks.append((f"ls {shlex.quote(source)}", "\n".join(start.names(source))))
    elif source in start.files and not source.endswith(".tar"):
        looks.append((f"cat {shlex.quote(source)}", start.files[source].content.decode()))
    return looks


def in_two(command: str) -> list[str]:
    """A command in two, with a note between them where the second reads what the first prints."""
    if " && " in command and not command.startswith("("):
        return command.split(" && ")
    first, pipe, second = command.partition(" | ")
    reader, into, target = second.partition(" > ")
    if not pipe or not into or " | " in reader:
        return [command]
    return [f"{first} > {_NOTES}", f"{reader} < {_NOTES} > {target}"]


def _work(session: Session, part: Part, start: World, style: Style, chance: random.Random) -> str:
    """All of a skill: its last command, which has been run unless it goes with the submission."""
    if style.looks:
        session.run(*chance.choice(looks_at(start, part)))
    *earlier, last = _commands(part, chance)
    if earlier and chance.random() < 0.5:
        last = "\n".join([*earlier, last])
    else:
        for command in earlier:
            session.run(command)
    if not style.submits_at_once:
        session.run(last)
    return last


def _commands(part: Part, chance: random.Random) -> list[str]:
    """One, or two where that can be."""
    command = part.deed().command
    return in_two(command) if chance.random() < 0.5 else [command]


def _look_after(part: Part, end: World) -> tuple[str, str]:
    """What shows what was made."""
    target = part.args.get("b", "")
    if target in end.files and not target.endswith(".tar"):
        return f"cat {shlex.quote(target)}", end.files[target].content.decode()
    return "ls", _listing(end)


def _listing(world: World) -> str:
    return "\n".join(sorted({path.partition("/")[0] for path in (*world.files, *world.folders)}))


def _plan(task_id: str) -> Plan:
    family, split, number = task_id.split("-")
    return compose(family, "heldout" if split == "heldout" else "train", int(number)).plan


def _names_a_word(task_id: str) -> bool:
    (part,) = _plan(task_id).parts
    return any(word in WORDS for arg in part.args.values() for word in arg.split())


def _session(request: str, budget: int) -> Session:
    return Session([f"{request}\n\n{BUDGET.format(n=budget)}"])


def _style(shares: Mapping[Style, float], chance: random.Random) -> Style:
    (style,) = chance.choices([*shares], [*shares.values()])
    return style
