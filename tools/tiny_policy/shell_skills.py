"""Demonstrations of single skills in the terminal. Nothing is run: what is shown follows from the
model of the folder."""

from __future__ import annotations

import random
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from clawrl_gym.core.types import Message, Split
from clawrl_gym.envs.draw import WORDS, Draw
from clawrl_gym.envs.sandbox.interface import ExecResult
from clawrl_gym.envs.showcase.terminal.composed.families import PLAIN_FAMILIES
from clawrl_gym.envs.showcase.terminal.composed.generated import compose, make_task, plain_tasks
from clawrl_gym.envs.showcase.terminal.composed.plan import Part, Plan, played
from clawrl_gym.envs.showcase.terminal.composed.wording import SIDE_EFFECTS, clauses, framed
from clawrl_gym.envs.showcase.terminal.composed.world import World
from clawrl_gym.envs.task_ids import parse_id
from clawrl_gym.envs.terminal.agent import TerminalAgent, reply_text
from clawrl_gym.envs.terminal.env import observation_of
from clawrl_gym.envs.terminal.task import BUDGET, SUBMIT
from tools.tiny_policy.conversations import Conversation
from tools.tiny_policy.skill_words import NODS
from tools.tiny_policy.skills import SkillDemonstrations

BUDGETS = (4, 5)
"""Replies that a request says there are: those of one and of two skills."""
_NOTES = "/tmp/notes"


@dataclass(frozen=True, slots=True)
class Style:
    """Style of a demonstration of one skill."""

    looks: bool = False
    """Looks at the folder, or at what the skill works on, before it."""
    submits_at_once: bool = False
    """Submits in the reply of the last command."""
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
    """Conversation and actions so far."""

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
class ShellSkills(SkillDemonstrations):
    """Plain tasks of the terminal."""

    of_words: bool = False
    """Only requests with one thing to do that name a word of the files."""

    def is_shown(self, task_id: str) -> bool:
        return not self.of_words or _names_a_word(task_id)

    def ids(self, family: str, split: Split) -> Sequence[str]:
        return plain_tasks([family]).ids(split)

    def request(self, task_id: str) -> str:
        return make_task(task_id).instruction

    def clauses(self, draw: Draw, task_id: str) -> tuple[str, str]:
        first, second = clauses(draw, "train", _plan(task_id).parts)
        return first, second

    def surrounded(self, draw: Draw, body: str) -> str:
        return framed(draw, "train", body)

    def show_alone(self, task_id: str, chance: random.Random) -> Conversation:
        plan, request = _plan(task_id), self.request(task_id)
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

    def show_one_of_two(
        self, task_id: str, request: str, is_first: bool, chance: random.Random
    ) -> Conversation:
        plan = _plan(task_id)
        between = played(plan.start, [plan.parts[0].action()])
        part = plan.parts[0 if is_first else 1]
        start, end = (plan.start, between) if is_first else (between, plan.end)
        session = _session(request, chance.choice(BUDGETS))
        return Conversation(self._to_the_end(session, part, start, end, chance), part.skill.name)

    def show_both(
        self, task_id: str, request: str, word: str, chance: random.Random
    ) -> Conversation:
        plan = _plan(task_id)
        first, second = plan.parts
        middle = played(plan.start, [first.action()])
        session = _session(request, chance.choice(BUDGETS))
        style = _style(BEFORE_MORE, chance)
        _work(session, first, plan.start, style, chance)
        session.say(word)
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
    command = part.action().command
    return in_two(command) if chance.random() < 0.5 else [command]


def _look_after(part: Part, end: World) -> tuple[str, str]:
    """Command and output that show what was made."""
    target = part.args.get("b", "")
    if target in end.files and not target.endswith(".tar"):
        return f"cat {shlex.quote(target)}", end.files[target].content.decode()
    return "ls", _listing(end)


def _listing(world: World) -> str:
    return "\n".join(sorted({path.partition("/")[0] for path in (*world.files, *world.folders)}))


def _plan(task_id: str) -> Plan:
    parsed = parse_id(task_id, PLAIN_FAMILIES)
    return compose(parsed.family, parsed.split, parsed.number).plan


def _names_a_word(task_id: str) -> bool:
    (part,) = _plan(task_id).parts
    return any(word in WORDS for arg in part.args.values() for word in arg.split())


def _session(request: str, budget: int) -> Session:
    return Session([f"{request}\n\n{BUDGET.format(n=budget)}"])


def _style(shares: Mapping[Style, float], chance: random.Random) -> Style:
    (style,) = chance.choices([*shares], [*shares.values()])
    return style
