"""Lines of a terminal about judge and teacher: for every view, at any width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from clawrl_gym.core.types import DistilledTurn, Verdict
from clawrl_gym.ui.text import number, plain, share
from clawrl_gym.ui.transcripts import Decoder, pieces

LABEL = "grey62"
MARK_COLOURS = {"+": "green3", "-": "red3", "0": "grey62", "?": "grey42"}
"""Colours of the marks of verdicts; the marks differ without them."""
_VERDICT_COUNTS = (
    ("verdicts/positive", "good"),
    ("verdicts/neutral", "neutral"),
    ("verdicts/negative", "bad"),
    ("verdicts/abstained", "abstained"),
)
_JUDGE_SHARES = (
    ("judge/hinted", "hints"),
    ("judge/agreement", "agreement"),
    ("judge/votes_invalid", "invalid votes"),
)
_TERMS = (
    ("objective/policy_gradient", "reward"),
    ("objective/distillation_sampled", "teacher"),
    ("objective/distillation_topk", "teacher (top k)"),
    ("objective/kl", "KL"),
)
"""Shares of a batch's tokens that each term of the loss ran on."""


Reading = tuple[int, list[tuple[str, float]]]
"""An update, and the pieces of a turn that it distilled with the teacher's gap on each."""
_MOST_TOKENS = 80
_WEAK, _STRONG = 0.1, 1.0
"""Gaps from which a piece is coloured, and coloured strongly."""


def mark(verdict: Verdict) -> str:
    """One character for a verdict."""
    return {1: "+", 0: "0", -1: "-", None: "?"}[verdict.value]


def why(verdict: Verdict) -> str:
    """The basis of a verdict, without a word of the conversation: a rule, votes, hint count."""
    detail = verdict.detail
    votes, probability = detail.get("votes"), detail.get("probability")
    reasons = []
    if votes and isinstance(votes, list):
        reasons.append(f"votes {' '.join(_vote(vote) for vote in votes)}")
    if isinstance(probability, float):
        reasons.append(f"probability {number(probability)}")
    rule = detail.get("rule")
    if isinstance(rule, str):  # of another judge's verdict it is a value
        reasons.append(rule)
    reasons.append(str(detail.get("reason", "")))
    if verdict.hints:
        reasons.append(f"{len(verdict.hints)} hint{'s' if len(verdict.hints) > 1 else ''}")
    return "  ".join(word for word in reasons if word)


def _vote(vote: object) -> str:
    """A vote is a number, nothing (it was none), or a record that holds one of both."""
    if isinstance(vote, Mapping):
        vote = vote.get("value")
    return f"{vote:+d}".replace("+0", "0") if isinstance(vote, int) else "?"


def judging_line(gauges: Mapping[str, float]) -> Text | None:
    """Verdicts so far, and what those of the last update were like; None before the first."""
    if not any(gauges.get(name) for name, _ in _VERDICT_COUNTS):
        return None
    line = Text("verdicts", style=LABEL, no_wrap=True, overflow="ellipsis")
    for name, label in _VERDICT_COUNTS:
        line.append(f" {label} ").append(number(gauges.get(name, 0.0)), "default")
    for name, label in _JUDGE_SHARES:
        if name in gauges:
            line.append(f"  {label} ").append(share(gauges[name]), "default")
    return line


def teacher_line(gauges: Mapping[str, float]) -> Text | None:
    """The teacher's distance from the policy, and each term's number of tokens."""
    line = Text("teacher gap ", style=LABEL, no_wrap=True, overflow="ellipsis")
    if "teacher/gap_mean" not in gauges:
        return None
    line.append(f"{gauges['teacher/gap_mean']:+.3f}", "default")
    line.append(f" (size {number(gauges.get('teacher/gap_abs'))}")
    if gauges.get("teacher/gap_clipped"):
        line.append(f", {share(gauges['teacher/gap_clipped'])} cut")
    line.append(")")
    if "teacher/overlap" in gauges:
        line.append("  overlap ").append(share(gauges["teacher/overlap"]), "default")
    shares = [(label, gauges[name]) for name, label in _TERMS if name in gauges]
    for index, (label, value) in enumerate(shares):
        line.append(f"{',' if index else '  tokens:'} {label} ").append(share(value), "default")
    return line


def reading_line(reading: Reading) -> Text:
    """A turn as the teacher reads it: blue it would say instead, orange and underlined not."""
    update, gap_by_piece = reading
    line = Text(f"update {update} taught ", style=LABEL, no_wrap=True, overflow="ellipsis")
    for piece, gap in gap_by_piece:
        line.append(plain(piece), _gap_style(gap))
    return line


def _gap_style(gap: float) -> str:
    if not abs(gap) >= _WEAK:  # so that what is no number has no colour
        return "default"
    weight = "bold " if abs(gap) >= _STRONG else ""
    return weight + ("dodger_blue1" if gap > 0 else "underline dark_orange")


def reading_of(
    update: int, distilled_turns: Sequence[DistilledTurn], decoder: Decoder
) -> Reading | None:
    """The first of the turns that a teacher read in an update; None when there was none."""
    if not distilled_turns:
        return None
    ids_T = distilled_turns[0].ids_T[:_MOST_TOKENS]
    return update, list(zip(pieces(decoder, ids_T), distilled_turns[0].gaps_T, strict=False))
