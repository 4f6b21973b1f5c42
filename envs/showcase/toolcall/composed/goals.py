"""When a composed task is solved: by the office that is left, and by what the user was told."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from clawrl_gym.agents.tool_calls import decode
from clawrl_gym.envs.toolcall.answer_matching import says
from clawrl_gym.envs.toolcall.customer import asks_for_yes, has, heard
from clawrl_gym.envs.toolcall.json_matching import differences
from clawrl_gym.envs.toolcall.records import plain
from clawrl_gym.envs.toolcall.task import ExecutedCall, Outcome

YES_WORDS = (
    "sure", "certain", "really", "do you want", "do you wish", "would you like", "would you still",
    "still want", "what you want", "fine", "alright", "ok", "okay", "yes", "object", "objections",
)  # fmt: skip
"""Words in a question for a yes, beside those that every customer knows."""
LOOKS = ("find_", "get_", "list_")
"""Prefixes of tools that change nothing."""
_DIFFERENCES_SHOWN = 5
_MOST_NAMES = 3
_MARKS = re.compile(r"[*_`|]+")
"""Marks of Markdown, around words or between first and last name."""
_UNSEEN = re.compile(r"<[^<>]*>|[\u115f\u1160\u2800\u3164\uffa0]")
"""Markup, and letters that show nothing."""
_REFUSES = re.compile(
    r"\b(?:(?:\w*n['\u2019]?t|not|never) (?:been )?(?:allow|permi|let|authori[sz]|suppos)\w*"
    r"|must not|mustn['\u2019]?t|won['\u2019]?t|will not|(?:i|we) may not|may not be|no permission"
    r"|forb[ia]d\w*|prohibit\w*|disallow\w*|restrict\w*|refrain|ban(?:s|ned)?|off.limits"
    r"|(?:i|we)(?: have| had)?(?: to)? (?:declined?|refused?)|rules? (?:prevent|exclude|bar)s?"
    r"|(?:against|violates?|breaks?|due to|because of)(?: \w+){0,3} (?:rules?|polic(?:y|ies)))\b",
    re.IGNORECASE,
)
_CANNOT = re.compile(
    r"\b(?:cannot|can not|can['\u2019]?t|could not|couldn['\u2019]?t|unable|not able|not possible"
    r"|impossible|not (?:been )?(?:done|carried out))\b",
    re.IGNORECASE,
)


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
        # Symbols are words of a kind: some say a tick.
        shown = (unicodedata.category(c) for c in _UNSEEN.sub("", last.content))
        is_told = any(kind[0] in "LN" or kind == "So" for kind in shown) and not last.calls
        return () if is_told else ("nobody was told of an end, in words and without a call",)


@dataclass(frozen=True, slots=True)
class NameGoal:
    """The last reply says a name, and is no list of all that it could be."""

    name: str
    names: tuple[str, ...]
    """All that there are."""

    def missing(self, outcome: Outcome) -> Sequence[str]:
        reply = _MARKS.sub(" ", outcome.replies[-1] if outcome.replies else "")
        said = [name for name in self.names if says(reply, name) or says(reply, _listed(name))]
        is_said = self.name in said and len(said) <= _MOST_NAMES
        return () if is_said else ("the name that was asked for was not said",)


@dataclass(frozen=True, slots=True)
class SeenGoal:
    """The reply was not guessed: a look went to one of these records, or showed it."""

    ids: tuple[str, ...]

    def missing(self, outcome: Outcome) -> Sequence[str]:
        ids = {plain(record_id) for record_id in self.ids}
        for executed in _carried_out(outcome):
            if executed.call.name.startswith(LOOKS):
                seen = (*map(str, executed.arguments.values()), executed.result)
                if ids & set(re.findall(r"\w+", plain(" ".join(seen)))):
                    return ()
        return ("what it is about was not looked at",)


@dataclass(frozen=True, slots=True)
class RefusalGoal:
    """The user was told that the rules are against it; a refusal without a reason only counts in
    the last reply."""

    def missing(self, outcome: Outcome) -> Sequence[str]:
        last = outcome.replies[-1] if outcome.replies else ""
        if _CANNOT.search(last) or any(_REFUSES.search(reply) for reply in outcome.replies):
            return ()
        return ("the user was not told that this cannot be done",)


@dataclass(frozen=True, slots=True)
class UndoneGoal:
    """A call was not carried out, not even for a while."""

    tool: str
    arguments: Mapping[str, object]

    def missing(self, outcome: Outcome) -> Sequence[str]:
        wanted = {plain(str(value)) for value in self.arguments.values()}
        for executed in _carried_out(outcome):
            values = {plain(str(value)) for value in executed.arguments.values()}
            if executed.call.name == self.tool and wanted <= values:
                return ("what was not to be done was done",)
        return ()


@dataclass(frozen=True, slots=True)
class ConfirmationGoal:
    """The user was asked for a yes to this, and answered, before a tool was called for it: an
    answer that was not waited for allows nothing."""

    tool: str
    arguments: Mapping[str, object]
    yes_to: tuple[str, ...]
    """Words of which the question has one: as the user's script has them."""

    def missing(self, outcome: Outcome) -> Sequence[str]:
        answered = False
        for before, utterance in pairwise(outcome.transcript):
            answered = answered or (utterance.role == "user" and self._is_asked_in(before.text))
            if utterance.role == "assistant" and not answered and self._calls(utterance.text):
                return ("the user was not asked before",)
        return () if answered else ("the user was not asked",)

    def _calls(self, text: str) -> bool:
        wanted = {plain(str(value)) for value in self.arguments.values()}
        return any(
            call.name == self.tool
            and wanted <= set(re.findall(r"\w+", plain(_read(call.arguments))))
            for call in decode(text).calls
        )

    def _is_asked_in(self, text: str) -> bool:
        """Whether the user's script takes it for a question for this yes."""
        said = heard(decode(text).content)
        return asks_for_yes(said, YES_WORDS) and has(said, self.yes_to)


def _carried_out(outcome: Outcome) -> Iterator[ExecutedCall]:
    return (executed for calls in outcome.calls for executed in calls if not executed.failed)


def _read(arguments: str) -> str:
    """Arguments as a tool reads them: however they were escaped."""
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except ValueError:
        return arguments


def _listed(name: str) -> str:
    """The last name first."""
    first, _, last = name.rpartition(" ")
    return f"{last}, {first}"


def _even(value: object) -> object:
    """A state without what writers of titles put differently."""
    if isinstance(value, Mapping):
        return {key: _even(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_even(part) for part in value]
    return plain(value).rstrip(".") if isinstance(value, str) else value
