"""The quiet view: plain lines without control characters, for logs, pipes and CI."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TextIO

from clawrl_gym.core.metrics import HELDOUT_SUCCESS, LEFT_S
from clawrl_gym.ui.judging import Reading
from clawrl_gym.ui.state import ViewState
from clawrl_gym.ui.text import duration, interval, number, one_line, scores, share

_STEP_FIELDS = (
    ("train/reward", "reward", number),
    ("train/success", "success", share),
    ("learner/loss", "loss", number),
    ("logprob_gap/mean", "gap", number),
    ("judge/mean", "verdict", number),
    ("judge/abstained", "abstained", share),
    ("judge/hinted", "hints", share),
    ("teacher/gap_mean", "teacher gap", number),
    ("staleness/mean", "stale", number),
    ("rollout/tokens_per_s", "tokens/s", number),
    ("rollout/episodes_per_s", "episodes/s", number),
    (LEFT_S, "left", duration),
)


class LineView:
    """One line a phase, one a step, one a message."""

    def __init__(self, out: TextIO, *, total_steps: int, title: str) -> None:
        self._out = out
        self._state = ViewState(title=one_line(title), total_steps=total_steps)
        self._write(self._state.title)

    def _write(self, text: str) -> None:
        encoding = self._out.encoding or "utf-8"
        with contextlib.suppress(OSError):  # a reader that went away (`| head`) must not end a run
            self._out.write(text.encode(encoding, "replace").decode(encoding) + "\n")
            self._out.flush()

    def phase(self, name: str, detail: str = "") -> None:
        """Say that a phase begins, what it is at, and how long it took."""
        name, detail = one_line(name), one_line(detail)
        ended = self._state.begin(name, detail)
        took = f" ({duration(ended.lasted_s())})" if ended else ""
        self._write(f"{name}: {detail}{took}" if detail else f"{name} ...")

    def update(self, state: Mapping[str, float]) -> None:
        """Gauges are remembered for the next line; they make none of their own."""
        self._state.take(state)

    def step(self, step: int, values: Mapping[str, float]) -> None:
        """One line for the update, one for a held-out result."""
        before = self._state.errors()
        self._state.take_step(step, values)
        gauges = {**self._state.gauges, LEFT_S: self._state.left_s()}
        if any(not name.startswith(("heldout/", "policy/")) for name in values):
            fields = [
                f"{label} {form(value)}"
                for name, label, form in _STEP_FIELDS
                if (value := gauges.get(name)) is not None
            ]
            self._write("  ".join([f"step {step}/{self._state.total_steps}", *fields]))
        if HELDOUT_SUCCESS in values:
            told = [f"held-out after {step} updates: {interval(dict(values))}"]
            told += [f"{name} {number(value)}" for name, value in scores(values).items()]
            self._write("  ".join(told))
        new = {kind: n for kind, n in self._state.errors().items() if before.get(kind, 0) != n}
        if new:
            self._write("errors so far: " + ", ".join(f"{k} {number(n)}" for k, n in new.items()))

    def taught(self, reading: Reading) -> None:
        """Nothing: a line without colours would only repeat what was said."""

    def message(self, text: str) -> None:
        """Write a message as one line."""
        self._write(one_line(text))

    def close(self) -> None:
        """Nothing is left to draw; idempotent."""
        self._state.end_phases()
