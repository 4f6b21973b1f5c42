"""The small charts of a report: which metrics each shows, and in which words."""

from __future__ import annotations

from dataclasses import dataclass

from clawrl_gym.ui.svg import Form
from clawrl_gym.ui.text import duration, number, share


@dataclass(frozen=True, slots=True)
class Plan:
    """A chart that is drawn when its metrics are there."""

    title: str
    says: str
    curves: tuple[tuple[str, str, str], ...]
    """(metric, name, colour)."""
    form: Form = number
    also: tuple[tuple[str, str], ...] = ()
    """(metric, name) that is said and not drawn, because it would flatten the curve."""


DETAILS = (
    Plan(
        "Log-prob gap", "between the learner and vLLM, per token",
        (("logprob_gap/mean", "mean", "train"),), also=(("logprob_gap/max", "max"),),
    ),
    Plan(
        "Staleness", "weight versions between sampling a token and learning from it",
        (("staleness/mean", "mean", "collect"), ("staleness/max", "max", "soft")),
    ),
    Plan("Swap pause", "how long vLLM paused for new weights",
          (("swap/pause_s", "pause", "serve"),), duration),
    Plan("Tokens generated a second", "by vLLM, sampled only",
          (("rollout/tokens_per_s", "tokens/s", "serve"),)),
    Plan("Tokens trained a second", "in the learner's step, prompts included",
          (("learner/tokens_per_s", "tokens/s", "train"),)),
    Plan("Episodes a second", "finished in all workers",
          (("rollout/episodes_per_s", "episodes/s", "collect"),)),
    Plan("Waiting", "how long the learner waited for a full batch",
          (("learner/waited_s", "waited", "train"),), duration),
    Plan("Turns an episode", "", (("train/turns", "turns", "collect"),)),
    Plan("Loss", "policy gradient; its size says little, a jump says much",
          (("learner/loss", "loss", "train"),)),
    Plan("Gradient norm", "before clipping", (("learner/grad_norm", "norm", "train"),)),
    Plan("Entropy", "of the policy on the tokens it sampled",
          (("learner/entropy", "entropy", "train"),)),
    Plan("Clipped tokens", "share outside the trust region",
          (("learner/clip_share", "clipped", "train"),), share),
    Plan("Learning rate", "", (("learner/lr", "rate", "train"),)),
    Plan("Groups left out", "per update: all rewards equal, or too old",
          (("groups/zero_variance", "equal rewards", "judge"),
           ("groups/dropped_stale", "too old", "bad"))),
    Plan("Episodes in flight", "when an update ended",
          (("rollout/in_flight", "in flight", "collect"),)),
)  # fmt: skip
"""The health of a run."""

JUDGING = (
    Plan("Verdicts", "mean of the clear ones, by update", (("judge/mean", "mean", "judge"),)),
    Plan("Abstentions", "share of judged turns without a valid verdict; never a reward",
          (("judge/abstained", "abstained", "judge"),), share),
    Plan("Hints", "share of judged turns that gave one, and of hints that were refused",
          (("judge/hinted", "with a hint", "judge"),
           ("judge/hints_refused", "refused", "train")), share),
    Plan("Agreement", "of the judge with the rules, where both are clear",
          (("judge/agreement", "agree", "judge"),), share),
    Plan("Invalid votes", "share of votes that could not be read",
          (("judge/votes_invalid", "invalid", "bad"),), share),
    Plan("Tokens of each term", "share of the batch that each part of the loss ran on",
          (("objective/policy_gradient", "reward", "reward"),
           ("objective/distillation_sampled", "teacher", "success"),
           ("objective/distillation_topk", "teacher, top k", "success"),
           ("objective/kl", "KL", "soft")), share),
    Plan("Teacher's gap", "its log-prob less the policy's, mean over distilled tokens",
          (("teacher/gap_mean", "mean", "train"), ("teacher/gap_abs", "size", "soft"))),
    Plan("Gaps cut off", "share of distilled tokens beyond trainer.distillation.gap_clip",
          (("teacher/gap_clipped", "cut off", "train"),), share),
    Plan("Overlap", "of the teacher's most likely tokens with the policy's",
          (("teacher/overlap", "overlap", "train"),), share),
    Plan("Tokens taught", "that had a teacher, by update",
          (("teacher/tokens", "tokens", "train"),), also=(("teacher/too_long", "too long"),)),
)  # fmt: skip
"""What the judge and the teacher did."""
