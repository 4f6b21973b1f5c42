"""Stands in for the bench's `comparison.measurement_process` in tests; it imports none of it.

Forty tasks an environment; half of the terminal's are solved before, and 30 % after.
FAKE_TRAIN names the orders (see fake_train.py): {"measure RECIPE/FOLDER": "fail" | "half"}.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.comparison.fake_train import GAINS

TASKS = 40
OFFSETS = (-0.05, -0.05, 0, 0, 0, 0, 0, 0, 0.05, 0.05)
"""Distances of ten tasks' liked first replies from the mean."""


def main() -> int:
    folder = Path(sys.argv[1])
    orders = json.loads(Path(os.environ["FAKE_TRAIN"]).read_text())
    order = orders.get(f"measure {folder.parent.name}/{folder.name}", "")
    with (folder / "starts").open("a") as starts:
        starts.write("begun\n")
    if order == "fail":
        sys.stdout.write("error: EnvError: no browser\n")
        return 1
    for config in json.loads((folder / "measurement.json").read_text()).values():
        place = Path(config["run"]["dir"])
        if place.exists():
            continue
        place.mkdir()
        (place / "evaluation.json").write_text(
            json.dumps(evaluation(config["env"]["type"], folder))
        )
        (place / "measured_with.json").write_text(json.dumps(config))
        if order == "half":
            sys.stdout.write("error: EnvError: no browser\n")
            return 1
    return 0


def evaluation(env: str, folder: Path) -> dict[str, Any]:
    """What a recipe reaches after 16 updates, or what the baseline has."""
    after = folder.name.startswith("seed")
    gain, seed = 0.0, 0
    if after:
        gain, seed = GAINS.get(folder.parent.name, 0.01) * 16, int(folder.name[4])
    solved = (12 if after else 20) if env == "terminal" else TASKS
    scores: dict[str, float] = {}
    if env == "conversation":
        scores = {"liked": 0.1 + gain + 0.01 * seed, "correct": 1.0}
    return {
        "metrics": {"heldout/success": solved / TASKS, "heldout/n": TASKS, "heldout/lost": 0},
        "episodes": [
            {
                "task": {"id": f"t{task}", "seed": task, "split": "heldout"},
                "reward": float(task < solved),
                "scores": {name: value + OFFSETS[task % 10] for name, value in scores.items()},
            }
            for task in range(TASKS)
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
