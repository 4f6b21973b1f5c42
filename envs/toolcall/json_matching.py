"""JSON values compared: a state with what it should be, an argument with what is allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_MARKS = re.compile(r"[ ,./\-_*^]")
OPTIONAL = ""
"""Among the allowed values of an argument: it may be left out."""


def same(one: Any, other: Any) -> bool:
    """Equality as JSON: 1 and 1.0 are equal, 1 and true are not."""
    return not differences(one, other, (), False)


def differences(value: Any, wanted: Any, place: tuple[str, ...], contains: bool) -> list[str]:
    """Where a value is not what is wanted, in words that do not say what is wanted."""
    if isinstance(wanted, Mapping) and isinstance(value, Mapping):
        return _in_objects(value, wanted, place, contains)
    if _is_list(wanted) and _is_list(value) and len(value) == len(wanted):
        pairs = enumerate(zip(value, wanted, strict=True))
        return [
            found
            for at, (one, other) in pairs
            for found in differences(one, other, (*place, str(at)), contains)
        ]
    if _is_list(wanted) or _is_list(value) or not _same_leaf(value, wanted):
        return [f"{_name(place)} is not as it should be"]
    return []


def fits(arguments: Mapping[str, Any], allowed: Mapping[str, Any]) -> bool:
    """Whether an object has only allowed values, and all that may not be left out."""
    if not set(arguments) <= set(allowed):
        return False
    return all(
        any(_allows(option, arguments[name]) for option in _options(values))
        if name in arguments
        else _is_list(values) and OPTIONAL in values
        for name, values in allowed.items()
    )


def _in_objects(
    value: Mapping[str, Any], wanted: Mapping[str, Any], place: tuple[str, ...], contains: bool
) -> list[str]:
    found = []
    for key, part in wanted.items():
        if key in value:
            found += differences(value[key], part, (*place, str(key)), contains)
        else:
            found.append(f"{_name((*place, str(key)))} is missing")
    if not contains:
        spare = [key for key in value if key not in wanted]
        found += [f"{_name((*place, str(key)))} should not be there" for key in spare]
    return found


def _options(values: Any) -> Sequence[Any]:
    return values if _is_list(values) else [values]


def _allows(option: Any, value: Any) -> bool:
    if isinstance(option, Mapping):
        return isinstance(value, Mapping) and fits(value, option)
    if _is_list(option):
        return (
            _is_list(value)
            and len(option) == len(value)
            and all(_allows(one, other) for one, other in zip(option, value, strict=True))
        )
    if isinstance(option, str) and isinstance(value, str):
        return _even(option) == _even(value)
    return _same_leaf(value, option)


def _same_leaf(value: Any, wanted: Any) -> bool:
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    return bool(value == wanted)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _even(text: str) -> str:
    """A text without what writers put differently: case, spaces and marks."""
    return _MARKS.sub("", text).lower().replace("'", '"')


def _name(place: tuple[str, ...]) -> str:
    toolset, *keys = place or ("the value",)
    return f"{toolset}: {' > '.join(keys)}" if keys else toolset
