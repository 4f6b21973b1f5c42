"""Control runs: trained as any other, with what they learn from made worthless.

What such a run gains is no effect of rewards or hints. Everybody who shows or publishes a run says
that it is one.
"""

from __future__ import annotations

from typing import Literal

Control = Literal["none", "shuffled_rewards", "irrelevant_hints", "random_hints"]
CONTROLS: dict[Control, str] = {
    "shuffled_rewards": "rewards and verdicts are permuted, and say nothing of what was done",
    "irrelevant_hints": "hints are those of other tasks",
    "random_hints": "hints are words drawn at random from other tasks' requests",
}
ON_HINTS = ("irrelevant_hints", "random_hints")


def control_words(control: object) -> str | None:
    """What has to stand wherever such a run is shown; None of any other run."""
    for name, effect in CONTROLS.items():
        if control == name:
            return f"CONTROL RUN (control={name}): {effect}. What it learns is no result."
    return None
