"""Updates without a gradient: why one taught nothing, and what to do about it.

A run whose episodes all earn the same reward continues as if it learned: its loss, its gap and its
gradient are simply missing. So each such update is named, with its cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from clawrl_gym.core.metrics import NO_GRADIENT, NO_GRADIENT_PREFIX
from clawrl_gym.core.types import Group, Sample, StepStats, Verdict
from clawrl_gym.trainers.algorithms.advantage import is_constant
from clawrl_gym.trainers.batch_queue import Batch, has_signal

if TYPE_CHECKING:
    from clawrl_gym.dialogue.merging import Segment
    from clawrl_gym.trainers.algorithms.algorithm import Algorithm

Cause = Literal[
    "solved", "equal", "lost", "failed", "abstained", "untrainable", "no_hints", "zero_weights",
    "masked", "no_gap", "no_rate", "zero",
]  # fmt: skip

CAUSES: dict[Cause, str] = {
    "solved": "all episodes solved their tasks",
    "equal": "all episodes of each group had the same reward",
    "lost": "their groups were too old or withdrawn",
    "failed": "too few episodes had a reward",
    "abstained": "the judge gave no verdict other than neutral",
    "untrainable": "no turn can be trained on",
    "no_hints": "no hint came, and this trainer learns of hints alone",
    "zero_weights": "all advantages were 0",
    "no_gap": "the teacher thought of all tokens what the policy does",
    "no_rate": "the learning rate was 0",
    "masked": "all tokens were masked, because the policy had moved too far",
    "zero": "the loss had the gradient 0",
}
"""Descriptions for several updates with a cause in common."""
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
    "failed": (
        "look at the errors of the run: episodes that infrastructure broke have no reward and are "
        "not trained on"
    ),
    "abstained": (
        "take another judge or another reward; judge/* in metrics.jsonl counts abstentions"
    ),
    "untrainable": (
        "sample without top_p, top_k, penalties and the like, in the policy's settings and the "
        "clients'; `untrainable` of a turn says by which"
    ),
    "no_hints": (
        "take trainer=hybrid, which also follows rewards, or a judge that gives hints; judge/* in "
        "metrics.jsonl counts them"
    ),
    "zero_weights": "raise trainer.rl_weight or trainer.opd_weight; look at the algorithm's terms",
    "no_gap": (
        "check that hints reach the teacher's prompt, and take another teacher "
        "(trainer.distillation.teacher)"
    ),
    "no_rate": "raise learner.min_lr_ratio or trainer.steps, or take learner.schedule=constant",
    "masked": "lower learner.lr (with an adapter also learner.adapter.alpha)",
    "zero": "look at learner/clip_share and objective/* in metrics.jsonl",
}
"""Remedies by cause."""


@dataclass(frozen=True, slots=True)
class NoGradient:
    """An update that did not change the weights."""

    cause: Cause
    why: str

    def line(self, version: int, *, again: bool = False) -> str:
        """One line for people; with `again` it leaves out what to do."""
        remedy = "" if again else f"; {REMEDIES[self.cause]}"
        return f"update {version} has no gradient: {self.why}{remedy}"

    def metrics(self) -> dict[str, float]:
        """The metrics that report it."""
        return {NO_GRADIENT: 1.0, f"{NO_GRADIENT_PREFIX}{self.cause}": 1.0}


def idle_cause(
    group: Group,
    segments_G: Sequence[Sequence[Segment]],
    verdicts_G: Sequence[Mapping[int, Verdict]],
    samples: Sequence[Sample],
    algorithm: Algorithm,
) -> Cause:
    """Why a group teaches nothing, where none of its samples does."""
    if not any(any(segment.mask_T) for segments in segments_G for segment in segments):
        return "untrainable"
    if samples and all(not any(sample.advantages_T) for sample in samples):
        rewards = [one.reward for one in group.episodes_G if one.reward is not None]
        return "equal" if is_constant(rewards) else "zero_weights"
    if not algorithm.reward_weight:
        return "no_hints"
    if not algorithm.compares_episodes and any(verdicts_G):
        return "abstained"
    rewards = [one.reward for one in group.episodes_G if one.reward is not None]
    if len(rewards) < min(2, len(group.episodes_G)):
        return "failed"
    return "equal" if is_constant(rewards) else "untrainable"


def no_gradient(batch: Batch, stats: StepStats | None) -> NoGradient | None:
    """Why an update had no gradient; None where it had one."""
    if not any(map(has_signal, batch.samples)):
        return _without_signal(batch)
    metrics = stats.metrics if stats else {}
    if metrics.get("learner/masked_share") == 1.0:
        return NoGradient(
            "masked",
            "all its tokens are masked, because the policy has moved too far from the weights that "
            "sampled them",
        )
    if metrics.get("learner/lr", 1.0) == 0.0:
        return NoGradient("no_rate", "its learning rate is 0")
    if metrics.get("learner/grad_norm", 1.0) != 0.0:
        return None
    if not any(any(sample.advantages_T) for sample in batch.samples):
        return NoGradient("no_gap", "the teacher thinks of all its tokens what the policy does")
    return NoGradient("zero", "its loss has the gradient 0")


def _without_signal(batch: Batch) -> NoGradient:
    """The cause that most of its groups have; no sample has an advantage or a hint."""
    lost = batch.groups - batch.equal_groups - sum(batch.idle_groups.values())
    groups: dict[Cause, int] = {"equal": batch.equal_groups, "lost": lost}
    groups |= {cause: batch.idle_groups.get(cause, 0) for cause in CAUSES if cause not in groups}
    most = max(groups, key=lambda cause: groups[cause])
    if most == "equal":
        return _equal(batch)
    if most == "lost":
        return NoGradient("lost", f"{lost} of its {batch.groups} groups were too old or withdrawn")
    return NoGradient(most, f"in {groups[most]} of its {batch.groups} groups {CAUSES[most]}")


def _equal(batch: Batch) -> NoGradient:
    """No episode of a group is better than another."""
    equal = batch.equal_groups
    if batch.solved_groups == equal:
        return NoGradient("solved", f"all episodes of its {equal} groups solved their tasks")
    solved = f" ({batch.solved_groups} of them solved)" if batch.solved_groups else ""
    return NoGradient(
        "equal",
        f"in each of its {equal} groups all episodes have the same reward{solved}, so that none is "
        "better than another",
    )
