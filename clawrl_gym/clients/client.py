"""A client: the files that hold its settings, and what is set there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

LEAST_CONTEXT = 65_536
"""Clients with long prompts of their own shorten the history at every turn if told of less."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """The gateway that a client is pointed at."""

    url: str
    """Without `/v1` and without a slash at its end."""
    key: str
    model: str = "policy"
    context: int | None = None
    """Tokens of prompt and reply together, where known."""

    @property
    def v1(self) -> str:
        """The base URL of clients that speak OpenAI's APIs."""
        return f"{self.url}/v1"

    @property
    def told_context(self) -> int | None:
        """The context that a coding agent is told; None where it is unknown or too short."""
        return self.context if self.context and self.context >= LEAST_CONTEXT else None


@dataclass(frozen=True, slots=True)
class Home:
    """Where a person's settings are."""

    folder: Path
    variables: Mapping[str, str]
    """The environment, in which clients are told of other folders."""

    def path(self, variable: str, default: str, *below: str) -> Path:
        """The folder that a variable names, or the default one below home; and a path in it."""
        named = self.variables.get(variable)
        return (Path(named) if named else self.folder / default).joinpath(*below)


class Settings(Protocol):
    """What is set in one file. Both raise ConfigError for a text that they cannot read."""

    def add_to(self, text: str) -> str:
        """The text with our settings."""

    def remove_from(self, text: str, written: str, before: str) -> str:
        """`text` without ours; it was `written` once they had been added to `before`."""


@dataclass(frozen=True, slots=True)
class SettingsFile:
    path: Path
    settings: Settings


@dataclass(frozen=True, slots=True)
class Client:
    """One that can be connected."""

    title: str
    program: str
    """Name of its command; what is found on PATH is installed."""
    files: Callable[[Home, Gateway], tuple[SettingsFile, ...]]
    start: str
    """How to start it; `{files}` stands for the paths of its files."""
