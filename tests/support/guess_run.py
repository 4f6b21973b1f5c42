"""What a small whole run is made of: numbers to say as tasks of names, and a judge with a hint."""

from __future__ import annotations

from typing import Any

from clawrl_gym.core.types import Split, Verdict, VerdictKind
from clawrl_gym.judge.interface import Case
from tests.support.guess_env import GuessEnv


class NumberEnv(GuessEnv):
    """`say-N`; numbers below 10 are held out."""

    def task_ids(self, split: Split) -> list[str]:
        return [f"say-{n}" for n in (range(100, 1000) if split == "train" else range(10))]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self._number = int((options or {})["task"].removeprefix("say-"))
        return f"Say {self._number}.", {"family": "odd" if self._number % 2 else "even"}


class HintJudge:
    """Finds nothing good, and knows better."""

    kind: VerdictKind = "rule"

    async def judge(self, case: Case) -> Verdict:
        return Verdict(case.turn_id, "rule", -1, -1.0, {"hints": ["Say it at once."]}, 0.0)
