"""When a composed task is solved: by the office that is left, and by what the user was told."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from clawrl_gym.agents.tool_calls import decode
from clawrl_gym.envs.toolcall.answer_matching import says
from clawrl_gym.envs.toolcall.customer import asks_for_yes
from clawrl_gym.envs.toolcall.json_matching import differences
from clawrl_gym.envs.toolcall.records import plain
from clawrl_gym.envs.toolcall.task import Outcome

CONFIRMING = ("sure", "really", "do you want", "do you wish", "would you like", "ok", "okay", "yes")
"""In a question: it is one for a yes, beside what every customer takes for one."""
LOOKS = ("find_", "get_", "list_")
"""How the names of tools begin that change nothing."""
_DIFFERENCES_SHOWN = 5
_MOST_NAMES = 3


@dataclass(frozen=True, slots=True)
class OfficeGoal:
    """The office is left as it should be, whatever the way there: nothing more was changed. Titles
    may be written in another case."""

    expected: Mapping[str, object]

    def missing(self, outcome: Outcome) -> Sequence[str]:
        state = outcome.states.get("office")
        if state == self.expected:
            return ()
        found = differences(_even(state), _even(self.expected), ("office",), contains=False)
        return found[:_DIFFERENCES_SHOWN]


@dataclass(frozen=True, slots=True)
class DoneGoal:
    """The last reply says something and calls nothing: the user knows of the end, and does not
    wait on."""

    def missing(self, outcome: Outcome) -> Sequence[str]:
        said = [utterance.text for utterance in outcome.transcript if utterance.role == "assistant"]
        last = decode(said[-1] if said else "")
        is_told = bool(last.content.strip()) and not last.calls
        return () if is_told else ("nobody was told of an end, in words and without a call",)


@dataclass(frozen=True, slots=True)
class NameGoal:
    """The last reply says a name, and is no list of all that it could be."""

    name: str
    names: tuple[str, ...]
    """All that there are."""

    def missing(self, outcome: Outcome) -> Sequence[str]:
        reply = outcome.replies[-1] if outcome.replies else ""
        said = [name for name in self.names if says(reply, name)]
        is_said = self.name in said and len(said) <= _MOST_NAMES
        return () if is_said else ("the name that was asked for was not said",)


@dataclass(frozen=True, slots=True)
class SeenGoal:
    """What a reply says was not guessed: a look went to one of these records, or showed it."""

    ids: tuple[str, ...]

    def missing(self, outcome: Outcome) -> Sequence[str]:
        for executed in (executed for calls in outcome.calls for executed in calls):
            if executed.call.name.startswith(LOOKS) and not executed.failed:
                words = re.findall(r"\w+", f"{executed.call.arguments} {executed.result}")
                if set(words) & set(self.ids):
                    return ()
        return ("what it is about was not looked at",)


@dataclass(frozen=True, slots=True)
class ConfirmationGoal:
    """The user was asked for a yes, and answered, before a tool was called for that: an answer that
    was not waited for allows nothing."""

    tool: str
    arguments: Mapping[str, object]

    def missing(self, outcome: Outcome) -> Sequence[str]:
        answered = False
        for before, utterance in pairwise(outcome.transcript):
            answered = answered or (utterance.role == "user" and _confirms(before.text))
            if utterance.role == "assistant" and not answered and self._calls(utterance.text):
                return ("the user was not asked before",)
        return () if answered else ("the user was not asked",)

    def _calls(self, text: str) -> bool:
        wanted = {plain(str(value)) for value in self.arguments.values()}
        return any(
            call.name == self.tool and wanted <= set(re.findall(r"\w+", plain(call.arguments)))
            for call in decode(text).calls
        )


def _confirms(text: str) -> bool:
    """Whether a reply asks for a yes."""
    said = decode(text).content
    return asks_for_yes(said) or ("?" in said and any(says(said, word) for word in CONFIRMING))


def _even(value: object) -> object:
    """A state without what writers of titles put differently."""
    if isinstance(value, Mapping):
        return {key: _even(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_even(part) for part in value]
    return plain(value).rstrip(".") if isinstance(value, str) else value
