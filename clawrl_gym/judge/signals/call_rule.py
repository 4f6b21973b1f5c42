"""The verdict that needs no judge: a call that no client can carry out is a failure.

What comes back to such a call says little: often it is nothing, and the person only sees that
nothing happened. So the reply itself is looked at, before any judge is asked.
"""

from __future__ import annotations

import time

from clawrl_gym.core.types import Verdict
from clawrl_gym.dialogue.call_failures import call_failures
from clawrl_gym.judge.interface import Case

RULE = "unexecutable call"


def verdict_on_calls(case: Case) -> Verdict | None:
    """-1 with what was wrong as its hint; None where all calls can be carried out."""
    failures = call_failures(case.reply, case.tools)
    if not failures:
        return None
    hint = f"The tool call could not be carried out: {'; '.join(failures)}."
    return Verdict(
        case.turn_id, "rule", -1, -1.0, {"rule": RULE, "hints": [hint]}, time.time(), weight=1.0
    )
