"""What was counted in a run, in words, for the tables of a report."""

from __future__ import annotations

from clawrl_gym.core.metrics import ERRORS_PREFIX
from clawrl_gym.ui.run_data import RunData
from clawrl_gym.ui.text import number, share


def error_counts(run: RunData) -> dict[str, float]:
    """The last count of each kind of error."""
    counts: dict[str, float] = {}
    for row in run.rows:
        for name, value in row.items():
            if name.startswith(ERRORS_PREFIX) and isinstance(value, int | float):
                counts[name.removeprefix(ERRORS_PREFIX)] = value
    return dict(sorted(counts.items()))


def merge_facts(run: RunData) -> list[tuple[str, str]]:
    """The share of turns that merged, and why the others did not."""
    facts = []
    shares = run.points("merge/share")
    if shares:
        facts.append(("turns merged into the sequence before them", share(shares[-1][1])))
    forks = {name for row in run.rows for name in row if name.startswith("merge/fork")}
    for name in sorted(forks):
        total = sum(value for _, value in run.points(name))
        facts.append((name.removeprefix("merge/").replace("_", " "), number(total)))
    return facts


_COUNTED = {
    "positive": "turns judged +1", "neutral": "turns judged 0", "negative": "turns judged -1",
    "abstained": "abstentions", "hints": "turns with a hint", "hints_asked": "hints asked for",
    "hints_refused": "hints refused", "votes": "votes", "votes_invalid": "invalid votes",
    "votes_retried": "votes asked for again", "agree": "agreed with the rules",
    "disagree": "disagreed with the rules",
}  # fmt: skip


_PROMPTS = {
    "prompts": "prompts made for the teacher", "too_long": "hints without room in the prompt",
    "refused": "prompts that vLLM refused", "failed": "prompts lost to a failure",
}  # fmt: skip


def verdict_counts(run: RunData) -> list[tuple[str, str]]:
    """What the judge counted since the run's last start."""
    counts = [(words, run.points(f"verdicts/{name}")) for name, words in _COUNTED.items()]
    counts += [
        (words, run.points(f"{prefix}hints/{name}"))
        for name, words in _PROMPTS.items()
        for prefix in ("", "live/")
    ]
    return [(words, number(points[-1][1])) for words, points in counts if points]
