"""Updates without a gradient: why one taught nothing, and what to do about it.

A run whose episodes all earn the same reward goes on as if it learned: its loss, its gap and its
gradient are simply missing. So each such update is named, with its cause.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clawrl_gym.core.metrics import NO_GRADIENT, NO_GRADIENT_PREFIX
from clawrl_gym.core.types import StepStats
from clawrl_gym.trainers.batch_queue import Batch, teaches

Cause = Literal["solved", "equal", "lost", "masked", "zero"]

CAUSES: dict[Cause, str] = {
    "solved": "all episodes solved their tasks",
    "equal": "all episodes of each group had the same reward",
    "lost": "their groups were too old or withdrawn",
    "masked": "all tokens were masked, because the policy had moved too far",
    "zero": "the loss had the gradient 0",
}
"""What several updates have in common, by cause."""
REMEDIES: dict[Cause, str] = {
    "solved": "nothing is left to learn from these tasks: take harder ones, or stop here",
    "equal": (
        "take easier tasks or a stronger policy, more episodes a group (rollout.group_size), a "
        "higher policy.sampling.temperature, or a reward that gives partial credit; check that the "
        "reward can differ at all"
    ),
    "lost": (
        "raise rollout.max_staleness or lower rollout.in_flight; look at the errors of the run "
        "where episodes failed"
    ),
    "masked": "lower learner.lr (with an adapter also learner.adapter.alpha)",
    "zero": "look at learner/clip_share and objective/* in metrics.jsonl",
}
"""What to do, by cause."""


@dataclass(frozen=True, slots=True)
class NoGradient:
    """An update that did not change the weights."""

    cause: Cause
    why: str

    def line(self, version: int, *, again: bool = False) -> str:
        """One line for people; what to do is not said `again`."""
        remedy = "" if again else f"; {REMEDIES[self.cause]}"
        return f"update {version} has no gradient: {self.why}{remedy}"

    def metrics(self) -> dict[str, float]:
        """The metrics that say so."""
        return {NO_GRADIENT: 1.0, f"{NO_GRADIENT_PREFIX}{self.cause}": 1.0}


def no_gradient(batch: Batch, stats: StepStats | None) -> NoGradient | None:
    """Why an update had no gradient; None where it had one."""
    if not any(map(teaches, batch.samples)):
        return _without_signal(batch)
    metrics = stats.metrics if stats else {}
    if metrics.get("learner/masked_share") == 1.0:
        return NoGradient(
            "masked",
            "all its tokens are masked, because the policy has moved too far from the weights that "
            "sampled them",
        )
    if metrics.get("learner/grad_norm", 1.0) == 0.0:
        return NoGradient("zero", "its loss has the gradient 0")
    return None


def _without_signal(batch: Batch) -> NoGradient:
    """No sample has an advantage or a hint."""
    lost = batch.groups - batch.equal_groups
    if lost > batch.equal_groups:
        return NoGradient("lost", f"{lost} of its {batch.groups} groups were too old or withdrawn")
    equal = batch.equal_groups
    if batch.solved_groups == equal:
        return NoGradient("solved", f"all episodes of its {equal} groups solved their tasks")
    solved = f" ({batch.solved_groups} of them solved)" if batch.solved_groups else ""
    return NoGradient(
        "equal",
        f"in each of its {equal} groups all episodes have the same reward{solved}, so that none is "
        "better than another",
    )
