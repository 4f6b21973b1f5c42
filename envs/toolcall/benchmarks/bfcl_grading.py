"""When calls are right by BFCL: what the checker of its package `bfcl-eval` takes, taken here too.

Its rules, not better ones, so that a score means what BFCL's means (`bench/bfcl_agreement.py`
compares both): a value has its parameter's declared type or the type of the first listed answer,
whatever the schema says beside; an int may stand for a float, never the other way; texts count
without case, spaces and marks, but deep inside of lists and objects as they are written; parallel
calls in any order, each given to the first answer that it fits. What its checker fails on is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clawrl_gym.envs.toolcall.task import ExecutedCall, Outcome

_MARKS = re.compile(r"[ ,./\-_*^]")
_TYPES: Mapping[str, type] = {
    "string": str, "integer": int, "float": float, "boolean": bool, "array": list, "tuple": list,
    "dict": dict, "any": str,
}  # fmt: skip
_LISTS = ("array", "tuple")
MAY_BE_LEFT_OUT = ""
"""Value that says among those listed for an argument that it may be left out."""
MALFORMED = (TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError)
"""Errors of comparisons with a value or a listed answer of an unforeseen form."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A call that counts as right."""

    name: str
    """Name under which the function is offered."""
    allowed: Mapping[str, Any]
    """Allowed values by argument; an object among them holds such lists by key."""
    parameters: Mapping[str, Any]
    """The function's own, in BFCL's words: `properties` and `required`."""

    def problem(self, name: str, arguments: Mapping[str, object]) -> str | None:
        """Why a call is not this one, in words that do not give the answer away; None if it is."""
        if name != self.name:
            return "another function was needed"
        try:
            return self._problem_of(arguments)
        except MALFORMED:
            return "an argument has a form that cannot be compared"

    def _problem_of(self, arguments: Mapping[str, object]) -> str | None:
        properties = self.parameters["properties"]
        for name in self.parameters["required"]:
            if name not in arguments:
                return f"the argument {name!r} is missing"
        for name, value in arguments.items():
            if name not in properties or name not in self.allowed:
                return f"the argument {name[:80]!r} should not be there"
            if not is_allowed(value, self.allowed[name], properties[name]):
                return f"the argument {name!r} is wrong"
        for name, values in self.allowed.items():
            if name not in arguments and MAY_BE_LEFT_OUT not in values:
                return f"the argument {name!r} is missing"
        return None


@dataclass(frozen=True, slots=True)
class BfclCallsGoal:
    """These calls were made and no other, in any order, whatever the tools made of them."""

    answers: tuple[Answer, ...]

    def missing(self, outcome: Outcome) -> Sequence[str]:
        executed = [call for reply in outcome.calls for call in reply]
        if len(executed) != len(self.answers):
            few = len(executed) < len(self.answers)
            return ["calls that were needed were not made" if few else
                    "calls were made that were not needed"]  # fmt: skip
        made = [arguments_of(call) for call in executed]
        left = list(range(len(executed)))
        for answer in self.answers:
            problem: str | None = None
            for at in left:
                arguments = made[at]
                if arguments is None:
                    return ["the arguments of a call are no JSON object"]
                problem = answer.problem(executed[at].call.name, arguments)
                if problem is None:
                    left.remove(at)
                    break
            if problem is not None:
                return [problem]
        return []


@dataclass(frozen=True, slots=True)
class AnyCallGoal:
    """Some function was called, with arguments that are a JSON object: BFCL looks no closer."""

    def missing(self, outcome: Outcome) -> Sequence[str]:
        executed = [call for reply in outcome.calls for call in reply]
        called = bool(executed) and all(arguments_of(call) is not None for call in executed)
        return () if called else ("no function was called",)


def arguments_of(executed: ExecutedCall) -> Mapping[str, object] | None:
    """Arguments of a call as written; for one that is given twice, the last."""
    try:
        arguments = json.loads(executed.call.arguments)
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None


def is_allowed(value: Any, allowed: Sequence[Any], declared: Mapping[str, Any]) -> bool:
    """Whether a value is one of those listed for a parameter. Raises what `MALFORMED` names."""
    kind = _TYPES[declared["type"]]
    inner = _TYPES[declared["items"]["type"]] if declared["type"] in _LISTS else None
    if kind is float and type(value) is int:
        value = float(value)
    listed = _type_listed(allowed)
    if type(value) is kind:
        if inner is not None and not any(_holds(value, inner, option) for option in allowed):
            return False
        by_kind = listed in (None, kind)
    else:  # the name of a variable, say, or null
        by_kind = False
        if listed is None or type(value) is not listed:
            return False
    if not by_kind:
        return value in allowed
    if isinstance(value, dict):
        return any(_is_object(value, option) for option in allowed if option != MAY_BE_LEFT_OUT)
    if inner is dict:
        return any(_are_objects(value, option) for option in allowed)
    if isinstance(value, list):
        return _evened(value) in [_evened(option) for option in allowed]
    if isinstance(value, str):
        return _even(value) in [_even(option) for option in allowed if type(option) is str]
    return value in allowed


def _type_listed(allowed: Sequence[Any]) -> type | None:
    """Type of the first answer that is not "may be left out"."""
    return next((type(option) for option in allowed if option != MAY_BE_LEFT_OUT), None)


def _holds(values: Any, inner: type, option: object) -> bool:
    """Whether the parts of a list have the type that its parts should have."""
    if not isinstance(option, list):
        return True
    listed = _type_listed(option)
    return all(type(value) is inner or type(value) is listed for value in values)


def _is_object(value: Any, option: Any) -> bool:
    for key, part in value.items():
        if key not in option or _evened_part(part) not in _evened(option[key]):
            return False
    return all(key in value or MAY_BE_LEFT_OUT in parts for key, parts in option.items())


def _are_objects(values: Any, options: Any) -> bool:
    """Whether the objects fit, in their order."""
    return len(values) == len(options) and all(
        option != MAY_BE_LEFT_OUT and _is_object(value, option)
        for value, option in zip(values, options, strict=True)
    )


def _evened(values: Sequence[object]) -> list[object]:
    return [_evened_part(values[at]) for at in range(len(values))]


def _evened_part(value: object) -> object:
    return _even(value) if isinstance(value, str) else value


def _even(text: str) -> str:
    """A text without what writers put differently."""
    return _MARKS.sub("", text).lower().replace("'", '"')
