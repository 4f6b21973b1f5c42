"""One fault and all that is looked at after it; what the run makes of it is an `Outcome`."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.chaos.faults import FAULTS, Fault
from tests.chaos.invariants import ALWAYS, AT_THE_END, Forecast, Records, records, violations
from tests.chaos.leftovers import Traces
from tests.chaos.scenarios import MAX_STALENESS
from tests.chaos.target import Target

RECOVERY_S = 30.0
"""From any single fault to the end of the first episode that began after it, and from each to the
next, until updates are made again."""
START_S = 200.0
"""For a run's first episode."""
_LAST_LINES = 30
_BEGUN_AGAIN = "starting it again, connections wait"
"""What `serve` says when its child has ended and another begins."""
INTERRUPTED = 128 + signal.SIGTERM
GIVE_UP_S = 150.0
_END_S = 30.0
"""A driver that has to end has ended by then."""
_MAY_END_S = 10.0
"""One that need not end goes on, when it has not by then."""
_ORPHANS_S = 10.0
"""Until nothing is left of a part that died while the run goes on."""
_LEFT_S = 3.0
"""Until nothing is left of a run that ended by itself: its exit comes last."""
_LEFT_BEHIND_S = 15.0
"""The same after a kill -9 of the driver, from the moment at which the next life works."""


@dataclass(slots=True)
class Outcome:
    """What a fault did."""

    fault: str
    hit: str = ""
    at_update: int = 0
    recovery_s: float | None = None
    """None where the run came to its target first."""
    violations: list[str] = field(default_factory=list)

    def row(self) -> dict[str, object]:
        """For the campaign's file."""
        return asdict(self)


def faults_of_parting(lines: Sequence[str], folder: Path) -> list[str]:
    """What is wrong with what a run printed that ended before its target."""
    lives = [number for number, line in enumerate(lines, 1) if line.endswith(_BEGUN_AGAIN)]
    last_life = lines[max(lives, default=0) :]
    causes = [line for line in last_life if line.startswith(("error: ", "stopped by "))]
    told = []
    if len(causes) != 1:
        told.append(f"{len(causes)} lines say how it ended: {causes[:3]}")
    if not any(f"resume={folder}" in line for line in lines[-_LAST_LINES:]):
        told.append("nothing says how to go on")
    if any(line.startswith("Traceback") for line in lines):
        told.append("a traceback was printed")
    return told


class Assault:
    """A run, hit again and again. Knows what the batches after a resume have to be."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._forecast: Forecast | None = None

    def begin(self, within_s: float = START_S) -> None:
        """Start the run, or go on with what another assault has left; returns when it works."""
        since_s = time.time()
        if (self.target.folder / "run.db").exists():
            self._remember_batches()
        self.target.start()
        if self.target.recovery_s(since_s, 0, within_s) is None:
            raise TimeoutError(f"no episode in {within_s:g} s: {self.target.last_words}")

    def fault(self, name: str, draw: random.Random, recovery_s: float = RECOVERY_S) -> Outcome:
        """Strike, have the run go on, and look at everything. Raises NothingToHit."""
        target, fault = self.target, FAULTS[name]
        target.traces.look(closely=True)
        outcome = Outcome(name, at_update=target.updates)
        since_s = time.time()
        outcome.hit = fault.strike(target, draw)
        ended = self._take_the_end(fault, outcome)
        # The next update may have been on its way already.
        outcome.recovery_s = target.recovery_s(since_s, outcome.at_update + 2, GIVE_UP_S)
        self._look_at_recovery(outcome, recovery_s)
        if ended is not None:
            outcome.violations += self._left_behind(ended)
        if target.exit_code is None:
            outcome.violations += target.traces.orphans(_ORPHANS_S)
        outcome.violations += self.look()
        return outcome

    def _take_the_end(self, fault: Fault, outcome: Outcome) -> Traces | None:
        """If the driver ends of the fault, look at how, and start it again.

        Returns what a driver that was killed had used: it could not clean up.
        """
        target = self.target
        ends = fault.ends_of(target)
        if ends != "never":
            target.wait_for_end(_END_S if ends == "always" else _MAY_END_S)
        code, traces = target.exit_code, target.traces
        if code == 0 and target.reached:
            return None
        if code is None:
            if ends == "always":
                outcome.violations.append(f"the run did not end of it in {_END_S:g} s")
            return None
        if ends == "never":
            outcome.violations.append(f"the run ended of it: {target.last_words}")
        elif code not in fault.codes:
            outcome.violations.append(f"exit code {code}, expected {fault.codes}")
        if code >= 0:
            outcome.violations += self._parting()
        self._remember_batches()
        target.start()
        return traces if code < 0 else None

    def _parting(self) -> list[str]:
        """What a driver that ended by itself said and left."""
        target = self.target
        return faults_of_parting(target.printed, target.folder) + self._left_of(target.traces)

    def _left_of(self, traces: Traces) -> list[str]:
        """Remains of a run that cleaned up after itself."""
        left = traces.left(_LEFT_S)
        names = sorted(traces.in_temporary())
        return [f"left {one}" for one in left] + [f"left in its TMPDIR {name}" for name in names]

    def _left_behind(self, traces: Traces) -> list[str]:
        """Remains of a driver that was killed, after the run resumed."""
        left = [f"left {one}" for one in traces.left(_LEFT_BEHIND_S)]
        return left + [f"not swept from its TMPDIR: {name}" for name in traces.left_names()]

    def _look_at_recovery(self, outcome: Outcome, recovery_s: float) -> None:
        target = self.target
        if outcome.recovery_s is None:
            if target.exit_code is None:
                outcome.violations.append(f"no episode and update in {GIVE_UP_S:g} s")
            elif not target.reached:
                outcome.violations.append(f"the run ended later: {target.last_words}")
        elif outcome.recovery_s > recovery_s:
            outcome.violations.append(f"no episode ended for {outcome.recovery_s:.0f} s")

    def _remember_batches(self) -> None:
        with self._records() as run:
            self._forecast = Forecast.of(run)

    def look(self) -> list[str]:
        """What does not hold in the records now."""
        with self._records() as run:
            told = violations(run, ALWAYS)
            if self._forecast is not None:
                told += list(self._forecast.contradictions(run))
        return told

    def stop(self) -> list[str]:
        """End the run in order, to go on later; what does not hold then, and what it left."""
        target = self.target
        told = self.look()
        if target.exit_code is None:
            target.send(signal.SIGTERM)
            target.wait_for_end(_END_S)
        code = target.exit_code
        if code == 0:
            return told
        if code != INTERRUPTED:
            return [*told, f"exit code {code} after SIGTERM, expected {INTERRUPTED}"]
        return told + self._parting()

    def finish(self, within_s: float) -> list[str]:
        """Let the run come to its target; what does not hold then, and what it left."""
        target = self.target
        if target.scenario.serves:
            return self.stop()
        if not target.wait_for_end(within_s):
            return [f"the run did not come to its target in {within_s:g} s"]
        if target.exit_code != 0:
            return [f"exit code {target.exit_code} instead of its target: {target.last_words}"]
        with self._records() as run:
            told = violations(run, AT_THE_END)
        if target.scenario.in_docker:
            told += [f"left container {one}" for one in target.docker.containers()]
        return told + self._left_of(target.traces)

    def _records(self) -> AbstractContextManager[Records]:
        return records(self.target.folder, self.target.ledger, MAX_STALENESS)
