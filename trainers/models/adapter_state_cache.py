"""A user's adapter and optimizer, put away by the learner while it is another user's turn.

It lies in the machine's memory, wherever the learner computes, and takes three times the adapter's
size. Only a limited number stay; the others are read from their checkpoints again.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from clawrl_gym.core.ownership import OWNER

_MOST_IN_MEMORY = 64


@dataclass(frozen=True, slots=True)
class AdapterState:
    """All state of one user that training changes."""

    trained: list[Tensor]
    """Trained tensors, in the order of the parameters."""
    optimizer: dict[str, Any]
    updates: int
    skipped: int
    rng: Tensor
    average: list[Tensor] | None
    """The moving average of the weights, where it is the teacher."""


class AdapterStateCache:
    """States in memory; the run's own always stays, because users begin as it is."""

    def __init__(self, most: int = _MOST_IN_MEMORY) -> None:
        self._most = most
        self._states: OrderedDict[str, AdapterState] = OrderedDict()

    def put(self, user: str, state: AdapterState) -> None:
        self._states[user] = state
        self._states.move_to_end(user)
        users = [one for one in self._states if one != OWNER]
        if len(users) > self._most:
            del self._states[users[0]]

    def take(self, user: str) -> AdapterState | None:
        """Remove and return a state; None where it is not in memory."""
        return self._states.pop(user, None)

    def own(self) -> AdapterState:
        """The run's own state; only while it is another user's turn."""
        return self._states[OWNER]


def in_memory(state: Any) -> Any:
    """A copy of a state in the machine's memory, which training never changes."""
    if isinstance(state, Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, dict):
        return {key: in_memory(value) for key, value in state.items()}
    if isinstance(state, list):
        return [in_memory(value) for value in state]
    return state
