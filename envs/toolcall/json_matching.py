"""JSON values compared: a state with what it should be, an argument with what is allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeGuard

_MARKS = re.compile(r"[ ,./\-_*^]")
OPTIONAL = ""
"""Value that says among those allowed for an argument that it may be left out."""


def same(left: object, right: object) -> bool:
    """Equality as JSON: 1 and 1.0 are equal, 1 and true are not."""
    return not differences(left, right, (), False)


def differences(
    value: object, expected: object, place: tuple[str, ...], contains: bool
) -> list[str]:
    """Where a value is not what is wanted, in words that do not say what is wanted."""
    if isinstance(expected, Mapping) and isinstance(value, Mapping):
        return _in_objects(value, expected, place, contains)
    if _is_list(expected) and _is_list(value) and len(value) == len(expected):
        pairs = enumerate(zip(value, expected, strict=True))
        return [
            mismatch
            for at, (part, expected_part) in pairs
            for mismatch in differences(part, expected_part, (*place, str(at)), contains)
        ]
    if _is_list(expected) or _is_list(value) or not _same_leaf(value, expected):
        return [f"{_name(place)} is not as it should be"]
    return []


def fits(arguments: Mapping[str, object], allowed: Mapping[str, object]) -> bool:
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
    value: Mapping[str, object],
    expected: Mapping[str, object],
    place: tuple[str, ...],
    contains: bool,
) -> list[str]:
    mismatches = []
    for key, part in expected.items():
        if key in value:
            mismatches += differences(value[key], part, (*place, str(key)), contains)
        else:
            mismatches.append(f"{_name((*place, str(key)))} is missing")
    if not contains:
        spare = [key for key in value if key not in expected]
        mismatches += [f"{_name((*place, str(key)))} should not be there" for key in spare]
    return mismatches


def _options(values: object) -> Sequence[object]:
    return values if _is_list(values) else [values]


def _allows(option: object, value: object) -> bool:
    if isinstance(option, Mapping):
        return isinstance(value, Mapping) and fits(value, option)
    if _is_list(option):
        return (
            _is_list(value)
            and len(option) == len(value)
            and all(_allows(allowed, part) for allowed, part in zip(option, value, strict=True))
        )
    if isinstance(option, str) and isinstance(value, str):
        return _even(option) == _even(value)
    return _same_leaf(value, option)


def _same_leaf(value: object, expected: object) -> bool:
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    return bool(value == expected)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)


def _even(text: str) -> str:
    """A text without what writers put differently: case, spaces and marks."""
    return _MARKS.sub("", text).lower().replace("'", '"')


def _name(place: tuple[str, ...]) -> str:
    toolset, *keys = place or ("the value",)
    return f"{toolset}: {' > '.join(keys)}" if keys else toolset
