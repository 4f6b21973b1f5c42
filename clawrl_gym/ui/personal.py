"""A report's part on runs with users who have a wish: first replies, and the teacher probe.

Liked first replies stand beside right ones and satisfied users: a wish can be fulfilled by replies
that are wrong.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.core.metrics import ENV_PREFIX, HELDOUT_SUCCESS, TEACHER_PROBE_FILE, MetricRow
from clawrl_gym.core.types import Json
from clawrl_gym.ui.run_data import RunData
from clawrl_gym.ui.text import HELDOUT_PREFIX, share

MOST_LOST = 0.05
"""Right first answers that a wish may cost before the report says so first."""


@dataclass(frozen=True, slots=True)
class FirstReplies:
    """A held-out evaluation of conversations."""

    when: str
    liked: str
    correct: str
    satisfied: str


def first_replies(run: RunData) -> list[FirstReplies]:
    """Before and after, and in between; empty where nobody has a wish."""
    rows = [(int(row["step"]), scores) for row in run.rows for scores in _scores(row)]
    return [
        FirstReplies(
            "before" if step == 0 else f"after {step} update{'' if step == 1 else 's'}",
            *(share(scores[name]) for name in ("liked", "correct", "success")),
        )
        for step, scores in rows
    ]


def fallen_answers(run: RunData) -> tuple[str, ...]:
    """A line where right first answers on held-out tasks fell by more than they may."""
    correct = [scores["correct"] for row in run.rows for scores in _scores(row)]
    if len(correct) < 2 or correct[0] - correct[-1] <= MOST_LOST:
        return ()
    return (
        f"Right first answers on held-out tasks fell from {share(correct[0])} to "
        f"{share(correct[-1])}: what was gained in form came at that price.",
    )


def teacher_probe(folder: Path) -> list[Json]:
    """Rows of the teacher probe, where it was measured; a file that cannot be read is none."""
    try:
        rows = json.loads((folder / TEACHER_PROBE_FILE).read_text(encoding="utf-8"))
        return [row for row in rows if {"hint", "liked", "low", "high", "correct"} <= set(row)]
    except (OSError, ValueError, TypeError):
        return []


def _scores(row: MetricRow) -> list[dict[str, float]]:
    """Scores of the environment whose users have a wish: alone, or in a mixture."""
    for name in row:
        prefix = name.removesuffix(f"{HELDOUT_PREFIX}liked")
        if name == prefix or (prefix and not prefix.startswith(ENV_PREFIX)):
            continue
        own = {
            "liked": row[name],
            "correct": row.get(f"{prefix}{HELDOUT_PREFIX}correct"),
            "success": row.get(f"{prefix}{HELDOUT_SUCCESS}"),
        }
        if all(value is not None for value in own.values()):
            return [{key: float(value) for key, value in own.items() if value is not None}]
    return []
