"""Output of `--help`: a command's docstring, the groups, and every key of the run at hand.

The values are those of the configuration that the arguments compose, so `--help env=gui` lists the
keys of web pages with what a run on web pages would use.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from clawrl_gym.config.compose import groups_of
from clawrl_gym.core.redact import hidden

_NAME_COLUMNS = 34
_VALUE_COLUMNS = 12
_LONGEST_VALUE = 60


def help_text(command: str, doc: str, config: BaseModel) -> str:
    """Everything that `python -m clawrl_gym.COMMAND --help` says about this configuration."""
    lines = [doc.strip(), ""]
    groups = groups_of(command, getattr(config, "searchpath", ()))
    if groups:
        lines.append("Groups (GROUP=OPTION, or for most package.module:Name of your own):")
        lines += [f"  {group:<12} {' | '.join(options)}" for group, options in groups.items()]
        lines.append("")
    lines.append("Keys (KEY=VALUE), with the values that the arguments given with --help compose:")
    lines += _key_lines(config)
    lines += [
        "",
        f"python -m clawrl_gym.{command} dry_run=true checks all that a run needs, says what it "
        "would start, and starts nothing.",
    ]
    return "\n".join(lines) + "\n"


def keys_of(part: BaseModel, prefix: str = "") -> Iterator[tuple[str, object, str]]:
    """Every key below a part, its value, and what the configuration says of it."""
    for name, field in type(part).model_fields.items():
        key, value = prefix + name, getattr(part, name)
        description = " ".join((field.description or "").split())
        if isinstance(value, BaseModel):
            yield from keys_of(value, f"{key}.")
        elif name.endswith("options") and isinstance(value, Mapping) and value:
            for option, chosen in value.items():
                yield f"{key}.{option}", chosen, description
        else:
            yield key, value, description


def _key_lines(config: BaseModel) -> list[str]:
    lines = []
    for key, value, description in keys_of(config):
        shown = short(hidden(value, key))
        lines.append(f"  {key:<{_NAME_COLUMNS}} {shown:<{_VALUE_COLUMNS}} {description}".rstrip())
    return lines


def short(value: Any) -> str:
    """A value in one line, nearly as the command line takes it; of rules only their names."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return _cut("{" + ", ".join(map(str, value)) + "}")
    if isinstance(value, list | tuple):
        return _cut("[" + ", ".join(map(_entry, value)) + "]")
    if isinstance(value, str):
        return _cut(value) if value and "\n" not in value else _cut(json.dumps(value))
    return str(value)


def _entry(value: object) -> str:
    """An entry of a list: rules by their names, all else as it is."""
    return str(getattr(value, "name", value))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."
