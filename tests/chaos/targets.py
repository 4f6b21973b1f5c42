"""From the name of a kind of run to a run."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.cluster import ClusterTarget
from tests.chaos.scenarios import SCENARIOS
from tests.chaos.target import ServingTarget, Target


def target_of(place: Path, name: str, seed: int, steps: int, *more: str) -> Target:
    """With `more` overrides than its kind has."""
    scenario = SCENARIOS[name]
    kind = ServingTarget if scenario.serves else ClusterTarget if scenario.in_cluster else Target
    return kind(place, scenario, seed, steps, *more)
