"""An environment of one's own, outside the package: say the word that is asked for."""

from typing import Any

import gymnasium
from gymnasium import spaces

WORDS = ["red", "blue", "green", "black"]


class SayEnv(gymnasium.Env[str, str]):  # type: ignore[misc]
    """Reward 1 when the reply contains the word; one step long."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012
    observation_space = spaces.Text(200)
    action_space = spaces.Text(2000)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.word = WORDS[int(self.np_random.integers(len(WORDS)))]
        return f"Say {self.word}.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "done", float(self.word[0] in action), True, False, {}


class TellEnv(gymnasium.Env[str, str]):  # type: ignore[misc]
    """Reward for short replies, two turns long."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012
    observation_space = spaces.Text(200)
    action_space = spaces.Text(2000)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.told: list[str] = []
        word = WORDS[int(self.np_random.integers(len(WORDS)))]
        return f"Name 12 things that are {word}.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.told.append(action)
        length = sum(map(len, self.told))
        is_over = len(self.told) == 2
        return "  And 3 more?", 1 / (1 + length) if is_over else 0.0, is_over, False, {}
