"""Tells whoever runs `serve` that clients sample in a way that no learner can use.

Nothing fails by it: conversations continue, and nothing is learned from them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from clawrl_gym.core.types import Turn
from clawrl_gym.inference.generation import LEAST_TEMPERATURE

_LOOKED_AT = 100
"""Newest main turns of which the share is taken."""
_MANY = _LOOKED_AT // 2
_FEW = _LOOKED_AT // 4
"""Number below which many are worth another message."""


class UntrainableTurns:
    """Says each setting once, and when half of the newest turns are lost."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._told: set[str] = set()
        self._newest: deque[list[str]] = deque(maxlen=_LOOKED_AT)
        """The settings of each main turn; none where it can be trained on."""
        self._are_many = False

    def add(self, turn: Turn) -> None:
        """A turn was recorded."""
        if turn.kind != "main" or not turn.sampled_ids_T:
            return
        settings = turn.untrainable.split()
        self._newest.append(settings)
        if new := [name for name in settings if name not in self._told]:
            self._told.update(new)
            self._tell(f"got a turn sampled with {_listed(new)}: {_what_to_do(new)}")
        lost = [names for names in self._newest if names]
        if len(lost) < _FEW:
            self._are_many = False
        if len(self._newest) == _LOOKED_AT and len(lost) >= _MANY and not self._are_many:
            self._are_many = True
            names = [
                name for name, _ in Counter(name for one in lost for name in one).most_common()
            ]
            self._tell(
                f"{len(lost)} of the last {_LOOKED_AT} main turns were sampled with "
                f"{_listed(names)}: {_what_to_do(names)}"
            )


def _what_to_do(names: list[str]) -> str:
    """Why such turns teach nothing, and the remedy."""
    out = [name for name in names if name != "temperature"]
    cures = [f"leave {_listed(out)} out of requests"] if out else []
    if "temperature" in names:
        cures.append(f"send a temperature of at least {LEAST_TEMPERATURE}")
    return (
        "such turns are stored and not trained on, because the learner computes the softmax of all "
        f"logits; in the client's settings, {' and '.join(cures)}"
    )


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
