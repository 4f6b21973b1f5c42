"""Control runs: trained like any other, but with the learning signal made worthless.

Any gain of such a run is not an effect of rewards or hints. Whatever shows or publishes a run says
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
    """The notice to show wherever a control run is shown; None for any other run."""
    for name, effect in CONTROLS.items():
        if control == name:
            return f"CONTROL RUN (control={name}): {effect}. What it learns is no result."
    return None
