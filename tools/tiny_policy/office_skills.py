"""Demonstrations of single skills with the tools of an office, whose results are true."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from clawrl_gym.agents.tool_calls import Call, Reply, message_of
from clawrl_gym.core.types import Message, Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.phrasing import with_budget
from clawrl_gym.envs.showcase.toolcall.composed.families import PLAIN_FAMILIES, Composed
from clawrl_gym.envs.showcase.toolcall.composed.generated import (
    PREFIX,
    compose,
    plain_tasks,
    task_of,
)
from clawrl_gym.envs.showcase.toolcall.composed.plan import Part, played
from clawrl_gym.envs.showcase.toolcall.composed.wording import clauses, surrounded
from clawrl_gym.envs.showcase.toolcall.families.family import CallSpec
from clawrl_gym.envs.showcase.toolcall.office.toolset import OfficeTools
from clawrl_gym.envs.task_ids import parse_id
from clawrl_gym.envs.toolcall.agent import ToolCallAgent
from clawrl_gym.envs.toolcall.schema import name_of
from clawrl_gym.envs.toolcall.toolbox import Toolbox
from tools.tiny_policy.conversations import Conversation
from tools.tiny_policy.skills import SessionSkills

LOOKS: Mapping[str, str] = MappingProxyType(
    {"P": "person", "T": "ticket", "M": "meeting", "I": "item", "O": "order"}
)
"""Noun of a record, by the letter of its id."""
TIMEOUT_S = 1.0


@dataclass(slots=True)
class OfficeSession:
    """Conversation and actions so far."""

    tools: Toolbox
    messages: list[Message]
    calls: int = 0

    @property
    def offered(self) -> list[str]:
        """Names of the tools."""
        return [name_of(schema) for schema in self.tools.schemas]

    def run(self, call: CallSpec) -> None:
        """One call, and its result."""
        name, arguments = call
        self.calls += 1
        one = Call(f"call-{self.calls}", name, json.dumps(arguments))
        (executed,) = self.tools.carry_out((one,), TIMEOUT_S)
        self.messages += [
            message_of(Reply("", (one,))),
            {"role": "tool", "tool_call_id": one.id, "content": executed.result},
        ]

    def say(self, text: str) -> None:
        """A person's word behind the last result."""
        self.messages.append({"role": "user", "content": text})

    def shown(self, skill: str) -> Conversation:
        """All of it, with the last reply."""
        self.messages.append({"role": "assistant", "content": "Done."})
        return Conversation(self.messages, skill, self.tools.schemas)


@dataclass(frozen=True, slots=True)
class OfficeSkills(SessionSkills[Part, OfficeSession]):
    """Plain tool-call tasks."""

    looks: float = 0.25
    """Share of cases in which a named record is looked at first."""

    def ids(self, family: str, split: Split) -> Sequence[str]:
        return plain_tasks([family]).ids(split)

    def request(self, task_id: str) -> str:
        return _composed(task_id).instruction

    def clauses(self, draw: Draw, task_id: str) -> tuple[str, str]:
        first, second = clauses(draw, "train", _composed(task_id).plan.parts)
        return first, second

    def surrounded(self, draw: Draw, body: str) -> str:
        return surrounded(draw, "train", body)

    def parts(self, task_id: str) -> Sequence[Part]:
        return _composed(task_id).plan.parts

    def session(
        self, task_id: str, request: str, budget: int, finished: Sequence[Part]
    ) -> OfficeSession:
        composed = _composed(task_id)
        done = [call for part in finished for call in part.calls]
        offered = task_of(task_id, composed).tools
        toolbox = Toolbox({"office": OfficeTools(played(composed.plan.start, done))}, offered)
        asked = ToolCallAgent().messages([with_budget(request, budget)], [])
        return OfficeSession(toolbox, asked)

    def work(self, session: OfficeSession, part: Part, chance: random.Random) -> None:
        """Do a part, with a look before it or without."""
        (call,) = part.calls
        looks = [look for look in looks_at(call) if look[0] in session.offered]
        if looks and chance.random() < self.looks:
            session.run(chance.choice(looks))
        session.run(call)

    def show_bare(self, task_id: str, part: Part) -> Conversation:
        ((name, arguments),) = part.calls
        call = Call("call-1", name, json.dumps(arguments))
        request: Message = {"role": "user", "content": self.request(task_id)}
        return Conversation([request, message_of(Reply("", (call,)))], part.skill)


def looks_at(call: CallSpec) -> list[CallSpec]:
    """Calls that show a record which this one names."""
    ids = [value for value in call[1].values() if isinstance(value, str) and value[1:].isdigit()]
    return [(f"get_{LOOKS[value[0]]}", {LOOKS[value[0]]: value}) for value in ids]


@lru_cache(maxsize=16)
def _composed(task_id: str) -> Composed:
    parsed = parse_id(task_id, PLAIN_FAMILIES, PREFIX)
    return compose(parsed.family, parsed.split, parsed.number)
