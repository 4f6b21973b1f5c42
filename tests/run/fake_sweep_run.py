"""Stands in for `clawrl_gym.train` in tests of sweeps: fails for seed=2, else writes metrics."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> int:
    values = dict(part.split("=", 1) for part in sys.argv[1:] if "=" in part)
    folder = Path(values["run.dir"].strip("'"))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "starts").open("a") as starts:
        starts.write("begun\n")
    if values["seed"] == "2":
        return 3
    rows = [{"step": 0, "heldout/success": 0.1}, {"step": 4, "heldout/success": 0.75}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
