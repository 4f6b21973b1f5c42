"""One task, played by hand in the environment that agents act in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from clawrl_gym.core.errors import EnvError, TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.gui.observation import View

if TYPE_CHECKING:
    from clawrl_gym.envs.gui.task import GuiTask
    from clawrl_gym.envs.task_env import Info

_ALIKE = 5
_LOOKED_AT = 3000
"""Ids of a split among which similar ones are looked for: there may be millions."""


class Stepped(Protocol):
    """The part of `GuiEnv` that is needed."""

    filming: bool
    report: str

    @property
    def task(self) -> GuiTask: ...
    @property
    def view(self) -> View: ...
    def reset(
        self, *, seed: int | None = None, options: dict[str, str] | None = None
    ) -> tuple[str, Info]: ...
    def step(self, action: str) -> tuple[str, float, bool, bool, Info]: ...
    def shot(self) -> bytes: ...
    def oracle(self, turn: int) -> str: ...
    def film(self) -> bytes | None: ...
    def task_ids(self, split: Split) -> Sequence[str]: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """One reply, and what came back."""

    text: str
    observation: str


@dataclass
class Player:
    """Plays one task, again and again. Its calls come from one thread."""

    env: Stepped
    task_id: str
    turns: list[PlayedTurn] = field(default_factory=list)
    observation: str = ""
    """First observation: the instruction and the page."""
    picture: bytes | None = None
    """The page as it is now, or as it was last."""
    reward: float | None = None
    """Reward; None until the end."""
    error: str = ""
    """Internal failure; only a new episode helps."""
    pictures: int = 0
    """Number of pictures so far."""

    @property
    def is_over(self) -> bool:
        return self.reward is not None or bool(self.error)

    def begin(self) -> None:
        """Open the task afresh. Raises TaskError for an unknown one, with those like it."""
        self.turns, self.reward, self.error = [], None, ""
        self.env.filming = True
        try:
            self.observation, _ = self.env.reset(options={"task": self.task_id})
        except TaskError as error:
            alike = similar(self.task_id, self.env)
            hint = f"; similar ids: {', '.join(alike)}" if alike else ""
            raise TaskError(f"{error}{hint}") from error
        self._look()

    def act(self, text: str) -> None:
        """One reply, as an agent gives it; nothing happens when the episode is over."""
        if self.is_over:
            return
        try:
            back, reward, terminated, truncated, _ = self.env.step(text)
        except EnvError as error:
            self.error = str(error)
            return
        self.turns.append(PlayedTurn(text, back))
        if terminated or truncated:
            self.reward = reward
        else:
            self._look()

    def oracle(self) -> None:
        """The oracle's next reply. Raises TaskError when it has none that fits."""
        if not self.is_over:
            self.act(self.env.oracle(len(self.turns)))

    def _look(self) -> None:
        try:
            self.picture = self.env.shot()
            self.pictures += 1
        except EnvError as error:
            self.error = str(error)


def similar(task_id: str, env: Stepped) -> list[str]:
    """Known ids that look like this one."""
    ids: list[str] = []
    for split in ("train", "heldout"):
        ids += islice(env.task_ids(split), _LOOKED_AT)
    close = get_close_matches(task_id, ids, _ALIKE, 0.5)
    parts = [known_id for known_id in ids if task_id and task_id in known_id]
    return list(dict.fromkeys([*parts, *close]))[:_ALIKE]
