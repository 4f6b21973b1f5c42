"""Who is told what happens in the gateway. None of these may block or raise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from clawrl_gym.core.types import Turn, Verdict


def _nobody(_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Hooks:
    """What is told is on disk already."""

    on_turn: Callable[[Turn], None] = _nobody
    """A turn was recorded."""
    on_next_state: Callable[[Turn], None] = _nobody
    """A main turn of a live session got its next state."""
    on_verdict: Callable[[Verdict], None] = _nobody
    """A person gave feedback."""
    on_end: Callable[[str], None] = _nobody
    """A live session ended, explicitly or because it was idle."""
    on_delete: Callable[[str], None] = _nobody
    """A session is about to be deleted with all its data."""
