"""What a run makes of a fault is seen: whether and how soon it goes on, its end, what it leaves."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos import assault as assaults
from tests.chaos.assault import Assault
from tests.chaos.faults import FAULTS, Fault
from tests.chaos.scenarios import SCENARIOS
from tests.chaos.target import Target
from tests.project.fake_chaos_run import WORKER


class FakeRun(Target):
    """A target whose run is a script."""

    behaviour = "good"

    @property
    def updates(self) -> int:
        """One for five episodes."""
        return len(self._rows("SELECT id FROM sessions")) // 5

    def _line(self) -> list[str]:
        self.folder.mkdir(exist_ok=True)
        return [
            sys.executable,
            "-m",
            "tests.project.fake_chaos_run",
            str(self.folder),
            self.behaviour,
        ]


def kill_worker(target: Target, draw: random.Random) -> str:
    workers = [one for one in target.processes if one.line == " ".join(WORKER)]
    os.kill(draw.choice(workers).pid, signal.SIGKILL)
    return "worker"


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Assault]]:
    """Starts a run with a behaviour; it is gone at the end of the test."""
    monkeypatch.setitem(FAULTS, "kill worker", Fault(kill_worker))
    for name in ("_LEFT_S", "_LEFT_BEHIND_S", "_ORPHANS_S"):
        monkeypatch.setattr(assaults, name, 0.5)
    begun: list[Target] = []

    def start(behaviour: str) -> Assault:
        target = FakeRun(tmp_path, SCENARIOS["terminal"], seed=1, steps=1)
        target.behaviour = behaviour
        begun.append(target)
        one = Assault(target)
        one.begin(within_s=30)
        return one

    yield start
    for target in begun:
        for worker in target.traces.living():
            os.kill(worker.pid, signal.SIGKILL)
        target.close()
        target.remove_disk()


def test_a_good_run_goes_on_after_a_fault_and_ends_in_order(
    begin: Callable[[str], Assault],
) -> None:
    one = begin("good")
    outcome = one.fault("kill worker", random.Random(1))
    assert (outcome.violations, outcome.hit) == ([], "worker")
    assert outcome.recovery_s is not None
    outcome = one.fault("interrupt driver", random.Random(3))
    assert outcome.hit in ("SIGINT", "SIGTERM")
    assert outcome.violations == []
    assert one.target.exit_code is None  # it was gone on with
    assert one.stop() == []


def test_what_a_killed_driver_leaves_is_found_once_the_next_one_works(
    begin: Callable[[str], Assault],
) -> None:
    outcome = begin("good").fault("kill driver", random.Random(1))
    assert [line.split()[0] for line in outcome.violations] == ["left", "not"]
    assert " ".join(WORKER) in outcome.violations[0]


@pytest.mark.parametrize(
    ("behaviour", "fault", "violation"),
    [
        ("ends", "kill worker", "the run ended"),
        ("slow", "kill worker", "no episode ended"),
        ("silent", "interrupt driver", "nothing says how"),
        ("leaves", "interrupt driver", "left process"),
        ("leaves", "interrupt driver", "left in its"),
    ],
)
def test_a_run_that_takes_a_fault_badly_is_told_so(
    behaviour: str, fault: str, violation: str, begin: Callable[[str], Assault]
) -> None:
    outcome = begin(behaviour).fault(fault, random.Random(3), recovery_s=0.8)
    assert any(line.startswith(violation) for line in outcome.violations), outcome.violations
