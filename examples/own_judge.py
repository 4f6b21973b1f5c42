"""A judge of one's own: what came back after a turn becomes a verdict.

python -m clawrl_gym.train env=terminal judge=examples.own_judge:ErrorJudge \\
    judge.options.words='[error, denied]' trainer.steps=3

What is not known abstains (value None), which is never 0 and never trained on.
"""

import time
from typing import Literal

from pydantic import BaseModel, ConfigDict

import clawrl_gym as cg


class ErrorJudge:
    """-1 when something that came back names an error, +1 when the checks say that all passed."""

    kind = "rule"

    class Options(BaseModel):
        """Checked before anything starts, like every key of the configuration."""

        model_config = ConfigDict(extra="forbid", frozen=True)

        words: tuple[str, ...] = ("error", "no such file", "permission denied")
        """Case does not matter."""

    def __init__(self, options: Options) -> None:
        self._words = [word.lower() for word in options.words]

    async def judge(self, case: cg.Case) -> cg.Verdict:
        """May be slow or fail: who asks makes an abstention of it."""
        texts = [str(message.get("content") or "").lower() for message in case.next_state]
        named = [word for word in self._words if any(word in text for text in texts)]
        passed = any("test report" in text and "failed" not in text for text in texts)
        value: Literal[-1, 1] | None = -1 if named else 1 if passed else None
        return cg.Verdict(
            turn_id=case.turn_id,
            kind="rule",
            value=value,
            reward=None if value is None else float(value),
            detail={"why": f"names {named[0]!r}" if named else "no error is named"},
            created_s=time.time(),
        )
