"""Faults at random moments of real runs, one after the other, and what must hold after each.

    python bench/chaos.py [--faults 200] [--seed 1] [--only "kill engine"] [--out runs/chaos]

Runs of the tiny policy are hit until as many faults are done; each continues, with `resume=` if its
driver ended, until its target. A row a fault, then a table. Stopped, it resumes with the same
command where it was; `--slice_s` stops it in order after so long. As root everything can be hit:
the disk of a run is a small one then, which stays mounted below --out until its run has ended.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.chaos.assault import RECOVERY_S, Assault, Outcome
from tests.chaos.faults import FAULTS, NothingToHit
from tests.chaos.scenarios import SCENARIOS
from tests.chaos.targets import target_of

FAULTS_FILE = "faults.jsonl"
_LONGEST_PAUSE_S = 6.0
"""Between one recovery and the next fault at most."""
_FINISH_S = 280.0
_TRIES = 20
"""Tries to find a fault that a run has something to hit for."""


class Campaign:
    """So many faults over as many runs as they take; all is in its folder."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._out: Path = options.out
        self._out.mkdir(parents=True, exist_ok=True)
        self._ends_s = time.monotonic() + options.slice_s
        self._assault: Assault | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Faults so far, and, without a name, what was seen at the ends of runs."""
        file = self._out / FAULTS_FILE
        lines = file.read_text().splitlines() if file.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def done(self) -> int:
        return sum(bool(row["fault"]) for row in self.rows)

    def go_on(self) -> None:
        """Continue until all faults are done or the slice is over."""
        try:
            while self.done < self._options.faults and time.monotonic() < self._ends_s:
                assault = self._assault or self._next_run()
                if assault.target.exit_code is not None:
                    self._close_run(assault)
                else:
                    self._one(assault, self.done)
            if self._assault is not None:
                if self.done >= self._options.faults:
                    self._close_run(self._assault)
                else:
                    self._stop_run(self._assault)
        finally:
            if self._assault is not None:
                self._assault.target.close()

    def _one(self, assault: Assault, number: int) -> None:
        """A fault at a random moment, unless the run comes to its end first."""
        draw = random.Random(f"{self._options.seed}/{number}")
        assault.target.wait(draw.uniform(0.0, _LONGEST_PAUSE_S))
        names = list(self._options.only or FAULTS)
        for _ in range(_TRIES):
            name = draw.choice(names)
            if assault.target.exit_code is not None or not FAULTS[name].possible(assault.target):
                continue
            try:
                self._note(assault.fault(name, draw, self._options.recovery_s))
            except NothingToHit:
                continue
            break

    def _next_run(self) -> Assault:
        """A new one, or the one that the last slice left."""
        runs = sorted(self._out.glob("run-*"))
        open_runs = [place for place in runs if not (place / "closed").exists()]
        place = open_runs[0] if open_runs else self._out / f"run-{len(runs):03d}"
        number = int(place.name.removeprefix("run-"))
        scenario = self._options.scenarios[number % len(self._options.scenarios)]
        target = target_of(place, scenario, number, self._options.steps)
        self._assault = Assault(target)
        self._assault.begin()
        return self._assault

    def _close_run(self, assault: Assault) -> None:
        """It has come to its target, or does now."""
        target = assault.target
        outcome = Outcome("", "the run's end", target.updates)
        outcome.violations = assault.finish(_FINISH_S)
        self._note(outcome)
        target.close()
        target.remove_disk()
        (target.place / "closed").touch()
        self._assault = None

    def _stop_run(self, assault: Assault) -> None:
        """The slice is over: the next one resumes it."""
        outcome = Outcome("", "the slice's end", assault.target.updates)
        outcome.violations = assault.stop()
        self._note(outcome)

    def _note(self, outcome: Outcome) -> None:
        with (self._out / FAULTS_FILE).open("a") as lines:
            lines.write(json.dumps(outcome.row()) + "\n")
        took = "" if outcome.recovery_s is None else f"{outcome.recovery_s:.1f} s"
        print(f"{self.done:4} {outcome.fault or outcome.hit:18} {took:8}", end="")
        print("; ".join(outcome.violations) or "ok", flush=True)

    def table(self) -> str:
        """Markdown: of each kind of fault how many, how long, what did not hold."""
        by_name = defaultdict(list)
        for row in self.rows:
            by_name[row["fault"] or row["hit"]].append(row)
        lines = [
            "| fault | times | without an end of an episode, median / longest | with violations |",
            "|---|---|---|---|",
        ]
        for name, rows in sorted(by_name.items()):
            took_s = [row["recovery_s"] for row in rows if row["recovery_s"] is not None]
            took = f"{statistics.median(took_s):.1f} / {max(took_s):.1f} s" if took_s else ""
            broken = sum(bool(row["violations"]) for row in rows)
            lines.append(f"| {name} | {len(rows)} | {took} | {broken} |")
        return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=list(FAULTS), help="may be repeated")
    parser.add_argument(
        "--scenarios", nargs="+", choices=list(SCENARIOS), default=["terminal", "toolcall"]
    )
    parser.add_argument("--steps", type=int, default=150, help="updates of a run")
    parser.add_argument("--recovery_s", type=float, default=RECOVERY_S)
    parser.add_argument("--slice_s", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path, default=Path("runs/chaos"))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # runs are ended
    campaign = Campaign(parser.parse_args())
    campaign.go_on()
    print(campaign.table())
    broken = [row for row in campaign.rows if row["violations"]]
    for row in broken:
        print(f"{row['fault'] or row['hit']}, update {row['at_update']}: {row['violations']}")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
