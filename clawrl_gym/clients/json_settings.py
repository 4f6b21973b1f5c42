"""Entries in a JSON file of settings; all others stay as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.types import Json, JsonObject

_ABSENT = object()
Way = tuple[str, ...]
"""Keys from the top to an entry."""


@dataclass(frozen=True, slots=True)
class JsonSettings:
    """What is set in the file: objects are merged, anything else takes the old value's place."""

    entries: JsonObject

    def add_to(self, text: str) -> str:
        """Raises ConfigError where the text is no JSON object."""
        settings = _read(text)
        for way, value in _leaves(self.entries):
            _set(settings, way, value)
        return _write(settings)

    def remove_from(self, text: str, written: str, before: str) -> str:
        """Undo in `text` what made `written` of `before`; what changed since then stays."""
        settings, ours, old = _read(text), _read(written), _read(before)
        for way, value in _leaves(ours):
            if _get(old, way) != value and _get(settings, way) == value:
                _restore(settings, way, _get(old, way))
        return _write(settings)


def _read(text: str) -> JsonObject:
    try:
        settings = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise ConfigError(f"got no JSON ({error}), expected an object") from None
    if not isinstance(settings, dict):
        raise ConfigError("got JSON that is no object, expected one")
    return settings


def _write(settings: JsonObject) -> str:
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


def _leaves(entries: Mapping[str, Json], way: Way = ()) -> Iterator[tuple[Way, Json]]:
    for key, value in entries.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*way, key))
        else:
            yield (*way, key), value


def _get(settings: Json, way: Way) -> object:
    found: object = settings
    for key in way:
        if not isinstance(found, dict) or key not in found:
            return _ABSENT
        found = found[key]
    return found


def _set(settings: JsonObject, way: Way, value: Json) -> None:
    *parents, last = way
    inner = settings
    for done, key in enumerate(parents, start=1):
        below = inner.setdefault(key, {})
        if not isinstance(below, dict):
            raise ConfigError(f"got {'.'.join(parents[:done])} that is no object, expected one")
        inner = below
    inner[last] = value


def _restore(settings: JsonObject, way: Way, old: object) -> None:
    """Set the old value, or delete the entry and the objects that held nothing else."""
    if old is not _ABSENT:
        _set(settings, way, old)  # type: ignore[arg-type]  # it was read from JSON
        return
    *parents, last = way
    holder = _get(settings, tuple(parents))
    if isinstance(holder, dict):
        holder.pop(last, None)
        if not holder and parents:
            _restore(settings, tuple(parents), _ABSENT)
