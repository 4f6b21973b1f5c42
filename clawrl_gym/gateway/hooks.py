"""Callbacks for what happens in the gateway. None of them may block or raise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from clawrl_gym.core.types import Turn, Verdict


def _ignore(_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Hooks:
    """Each is called when its record is on disk."""

    on_turn: Callable[[Turn], None] = _ignore
    """A turn was recorded."""
    on_next_state: Callable[[Turn], None] = _ignore
    """A main turn of a live session got its next state."""
    on_verdict: Callable[[Verdict], None] = _ignore
    """A person gave feedback."""
    on_end: Callable[[str], None] = _ignore
    """A live session ended, explicitly or because it was idle."""
    on_delete: Callable[[str], None] = _ignore
    """A session is about to be deleted with all its data."""
    on_deleted: Callable[[str], None] = _ignore
    """A session is gone; who read it meanwhile may have made something of it."""
