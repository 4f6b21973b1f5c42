"""The smallest environment with tasks that differ: say the number that is asked for."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
from gymnasium.spaces import Text

_ANY = Text(max_length=10_000, charset="".join(map(chr, range(32, 127))) + "\n")


class GuessEnv(gymnasium.Env[str, str]):  # type: ignore[misc]
    """Observation: a number to say; action: the number; reward 1 for the right one.

    Ends with the first answer, or goes on where the answer is "more".
    """

    observation_space = _ANY
    action_space = _ANY

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self._number = (seed or 0) % 10
        family = "odd" if self._number % 2 else "even"
        return f"Say {self._number}.", {"family": family}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action == "more":
            return f"It is {self._number}.", 0.0, False, False, {}
        right = str(self._number) if not os.environ.get("GUESS_ANYTHING") else action
        return "Thanks.", float(action == right), True, False, {}
