"""Demonstrations of the corpus's easy families: look at the file, mend it, submit."""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Message, Split
from clawrl_gym.envs.showcase.swe.corpus.corpus import (
    commands_of,
    corpus_instances,
    easy_families,
    make_instance,
)
from clawrl_gym.envs.swe.agent import SweAgent, reply_text
from clawrl_gym.envs.swe.observation import observation_text
from clawrl_gym.envs.swe.rows.instance import SUBMIT_MARK, Instance
from tools.tiny_policy.careless import BAD_HABIT, LAPSE, Slip, sub
from tools.tiny_policy.conversations import Conversation

FINISH = f"echo {SUBMIT_MARK}"

_ONLY_PRINTS = sub(r"^sed -i ", "sed ")
_WRONG_WAY_ROUND = sub(r"s/([^/]*)/([^/]*)/", r"s/\2/\1/")

_LITERAL = re.compile(r"s/([^/]+)/([^/]*)/")

SLIPS: Mapping[str, tuple[Slip, float]] = MappingProxyType(
    {
        "compare": (_ONLY_PRINTS, LAPSE),
        "constant": (_ONLY_PRINTS, BAD_HABIT),
        "key": (_WRONG_WAY_ROUND, BAD_HABIT),
        "operator": (_ONLY_PRINTS, BAD_HABIT),
    }
)
"""Each family's slip in the command that mends, and how often it is made."""


@dataclass(frozen=True, slots=True)
class RepositoryDemonstrations:
    """Instances of the easy families of one split, each drawn at random and shown once."""

    split: Split = "train"
    careless: bool = True
    """With slips; False shows only what mends the repository."""
    families: tuple[str, ...] | None = None
    """Only these easy families; None takes all."""

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Fresh conversations, endlessly, from the seed alone."""
        slips = random.Random(f"slips/{seed}")
        for instance in self.instances(seed):
            look, mend = commands_of(instance.id)
            if self.careless:
                mend = _slipped(instance.family, mend, slips.random())
            yield Conversation(messages_of(instance, (look, mend, FINISH)), instance.family)

    def instances(self, seed: int) -> Iterator[Instance]:
        """The instances that `conversations` shows."""
        chance = random.Random(seed)
        ids = corpus_instances(self.families or easy_families()).ids(self.split)
        while True:
            yield make_instance(ids[chance.randrange(len(ids))])


def messages_of(instance: Instance, commands: Sequence[str]) -> list[Message]:
    """An episode of `cat FILE` and `sed` commands, as agent and environment show it."""
    files = {path: file.data.decode() for path, file in instance.files.items()}
    observations = [
        instance.problem_statement,
        *(observation_text(0, shown_by(files, command)) for command in commands[:-1]),
    ]
    replies: list[Message] = [
        {"role": "assistant", "content": reply_text(command)} for command in commands
    ]
    return [*SweAgent().messages(observations, replies[:-1]), replies[-1]]


def shown_by(files: Mapping[str, str], command: str) -> str:
    """Output of `cat FILE` and `sed 's/OLD/NEW/' FILE`, with or without -i: no sandbox runs here.

    Raises TaskError for any other command.
    """
    words = shlex.split(command)
    name, *arguments = words or [""]
    if name == "cat" and len(arguments) == 1 and arguments[0] in files:
        return files[arguments[0]]
    edit = _LITERAL.fullmatch(words[-2]) if len(arguments) in (2, 3) else None
    if name != "sed" or edit is None or words[-1] not in files:
        raise TaskError(
            f"got {command!r} in a demonstration, expected 'cat FILE' or a plain sed of a file"
        )
    if arguments[0] == "-i":
        return ""
    lines = files[words[-1]].split("\n")
    return "\n".join(line.replace(edit[1], edit[2], 1) for line in lines)


def _slipped(family: str, command: str, luck: float) -> str:
    slip, share = SLIPS[family]
    return slip(command) if luck < share else command
