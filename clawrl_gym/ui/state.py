"""What a view of a running run knows: phases, gauges and curves; no drawing."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from clawrl_gym.core.metrics import ELAPSED_S, ERRORS_PREFIX, HELDOUT_SUCCESS, LEFT_S
from clawrl_gym.ui.judging import Reading

_ENDINGS = ("ready", "done")
_CURVES = ("train/reward", "train/success", HELDOUT_SUCCESS)


@dataclass(slots=True)
class Phase:
    """One stretch of the run with a name."""

    name: str
    start_s: float
    detail: str = ""
    end_s: float | None = None
    """None while it lasts."""

    def lasted_s(self) -> float:
        """Seconds so far, or altogether."""
        return (self.end_s or time.monotonic()) - self.start_s


@dataclass(slots=True)
class ViewState:
    """Everything a view draws; times are monotonic seconds."""

    title: str
    total_steps: int
    start_s: float = field(default_factory=time.monotonic)
    phases: list[Phase] = field(default_factory=list)
    gauges: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Points (step, value) of the curves that are drawn."""
    heldout: list[dict[str, float]] = field(default_factory=list)
    """Every held-out evaluation, in order."""
    step: int = 0
    first_step: tuple[int, float] | None = None
    """The first update seen and when: the time left is counted from there."""
    left_told_s: float = 0.0
    """When the run last said how long it still takes."""
    reading: Reading | None = None
    """How the teacher read a turn of the newest update that had one."""
    closed: bool = False

    def begin(self, name: str, detail: str) -> Phase | None:
        """Enter a phase or change its detail; phases may overlap.

        A detail that begins with `ready` or `done` ends the phase; it is returned then.
        """
        phase = next((p for p in self.phases if p.name == name and p.end_s is None), None)
        if phase is None:
            phase = Phase(name, time.monotonic())
            self.phases.append(phase)
        phase.detail = detail
        if detail.lower().startswith(_ENDINGS):
            phase.end_s = time.monotonic()
            return phase
        return None

    @property
    def open_phases(self) -> list[Phase]:
        """The phases that last, oldest first."""
        return [phase for phase in self.phases if phase.end_s is None]

    def end_phases(self) -> list[Phase]:
        """End every phase that lasts; returns them."""
        ended = self.open_phases
        for phase in ended:
            phase.end_s = time.monotonic()
        return ended

    def take(self, values: Mapping[str, float]) -> None:
        """Take gauges in; what is not a finite number is passed over."""
        self.gauges.update({name: v for name, v in values.items() if math.isfinite(v)})
        if math.isfinite(values.get(LEFT_S, math.nan)):
            self.left_told_s = time.monotonic()

    def take_step(self, step: int, values: Mapping[str, float]) -> None:
        """Take the values of a step in: gauges, curves, held-out results."""
        self.step = max(self.step, step)
        if self.first_step is None and step > 0:
            self.first_step = (step, time.monotonic())
        self.take(values)
        for name in _CURVES:
            if math.isfinite(values.get(name, math.nan)):
                self.curves.setdefault(name, []).append((float(step), values[name]))
        if HELDOUT_SUCCESS in values:
            result = {name: v for name, v in values.items() if name.startswith("heldout/")}
            self.heldout.append({**result, "step": step})

    def elapsed_s(self) -> float:
        """Since the run began (of a resumed run: what the run itself says, if it does)."""
        return max(self.gauges.get(ELAPSED_S, 0.0), time.monotonic() - self.start_s)

    def left_s(self) -> float | None:
        """Until the last update: what the run says, else the pace since its first update."""
        if LEFT_S in self.gauges:
            return max(0.0, self.gauges[LEFT_S] - (time.monotonic() - self.left_told_s))
        if self.first_step is None or self.step <= self.first_step[0]:
            return None
        pace_s = (time.monotonic() - self.first_step[1]) / (self.step - self.first_step[0])
        return pace_s * max(0, self.total_steps - self.step)

    def errors(self) -> dict[str, float]:
        """Errors by kind, without the kinds that did not occur."""
        return {
            name.removeprefix(ERRORS_PREFIX): count
            for name, count in sorted(self.gauges.items())
            if name.startswith(ERRORS_PREFIX) and count > 0
        }
