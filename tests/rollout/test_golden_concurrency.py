"""What is decided about the number of episodes in flight, over long rows of made-up readings.

The rules of `rollout/concurrency.py` are many and stand on numbers that were found by measuring:
none of them changes unnoticed. `python -m tests.rollout.test_golden_concurrency` writes the new
file.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from clawrl_gym.rollout.collection.concurrency import Concurrency, Reading

GOLDEN = Path(__file__).parents[1] / "fixtures" / "golden" / "concurrency.json"
_ROUNDS = 90


@dataclass(frozen=True)
class Machine:
    """What the made-up readings are like."""

    engines: int
    most: int
    contexts: float
    share: float
    """Share of the episodes in flight that are in the engine."""
    held: float
    """Share of the key-value cache that each running request takes."""
    turns: float
    """Turns of an episode."""
    trouble: float
    """Share of the rounds in which something is short."""


MACHINES = {
    "room": Machine(1, 9000, 0.0, 0.4, 0.0002, 30.0, 0.1),
    "room for most": Machine(2, 900, 150.0, 0.7, 0.0005, 8.0, 0.2),
    "a small cache": Machine(1, 4096, 30.0, 0.6, 0.012, 5.0, 0.0),
    "slow environments": Machine(1, 4096, 0.0, 0.08, 0.001, 12.0, 0.02),
    "troubled": Machine(2, 2000, 0.0, 0.5, 0.0008, 4.0, 0.4),
}


def decisions(machine: Machine) -> list[str]:
    """The number and its reason after each round."""
    draw = random.Random(7)
    concurrency = Concurrency(machine.most)
    told: list[str] = []
    turns = episodes = preempted = 0.0
    engines = machine.engines
    for number in range(_ROUNDS):
        trouble = draw.choice(_TROUBLES) if draw.random() < machine.trouble else ""
        engines = {"fewer engines": 1, "more engines": 3}.get(trouble, machine.engines)
        in_flight = max(1, int(concurrency.limit * draw.choice((1.0, 1.0, 0.97))))
        running = in_flight * machine.share * (0.9 + 0.2 * draw.random())
        if machine.share < 0.1:
            running = min(running, 9.0)
        held = machine.held * (0.8 + 0.4 * draw.random()) * (1.5 if trouble == "cache" else 1.0)
        queue = {"queue": 0.6, "short queue": 0.12}.get(trouble, 0.0)
        for part in range(4):
            wanted = 0 if trouble == "nobody" else 5 + part
            reading = Reading(
                in_flight,
                wanted,
                engines,
                running,
                queue * running,
                min(1.0, running * held),
                turns,
                episodes,
                preempted,
                machine.contexts,
                {"little memory": 0.12, "no memory": 0.05}.get(trouble, 0.6),
            )
            concurrency.read(reading)
            turns += in_flight / 3
            episodes += in_flight / 3 / machine.turns
            preempted += in_flight * {"preemptions": 0.05, "few preemptions": 0.01}.get(trouble, 0)
        told.append(f"{concurrency.limit} {concurrency.reason.name}")
        if number % 30 == 29:
            turns = episodes = preempted = 0.0  # the engine was started again
    return told


_TROUBLES = (
    "queue", "short queue", "cache", "little memory", "no memory", "preemptions", "few preemptions",
    "nobody", "fewer engines", "more engines",
)  # fmt: skip


@pytest.mark.parametrize("name", MACHINES)
def test_the_same_readings_are_followed_by_the_same_numbers(name: str) -> None:
    golden = json.loads(GOLDEN.read_text("utf-8"))
    assert decisions(MACHINES[name]) == golden[name]


if __name__ == "__main__":
    made = {name: decisions(machine) for name, machine in MACHINES.items()}
    GOLDEN.write_text(json.dumps(made, indent=0) + "\n", "utf-8")
