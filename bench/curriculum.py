"""Training episodes that a curriculum saves until held-out tasks are solved.

    python -m bench.curriculum [KEY=VALUE ...] [--curricula none pass_rate] [--seeds 0 1 2]
    python -m bench.curriculum env=toolcall_plain "env.families=[one,two]" --family two

Runs the job once for each curriculum and seed, with a look at 120 held-out tasks after every second
update (or reads runs that are there), and prints after how many episodes success first reached each
mark and stayed there in the next look. Success is that of one family, or of all held-out tasks.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.main_job import run
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.plain_yaml import plain_values

MARKS = (0.5, 0.6, 0.7, 0.8, 0.9)
LOOKS = ("eval.every=2", "eval.tasks=120", "eval.between_tasks=120")


def looks(folder: Path, family: str) -> Iterator[tuple[int, float]]:
    """Episodes so far, and success, for each look at held-out tasks."""
    values: Any = plain_values((folder / "config.yaml").read_text())
    size, episodes = int(values["rollout"]["group_size"]), 0
    key = f"heldout/success/{family}" if family else "heldout/success"
    rows: list[dict[str, Any]] = read_json_lines(folder / "metrics.jsonl")
    for row in rows:
        episodes += int(row.get("groups/accepted", 0)) * size
        if key in row:
            yield episodes, row[key]


def reached(seen: list[tuple[int, float]], mark: float) -> int | None:
    """Episodes when this success was first there, and in the look after it; None for never."""
    for (episodes, success), (_, later) in zip(seen, [*seen[1:], seen[-1]], strict=True):
        if success >= mark <= later:
            return episodes
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--curricula", nargs="+", default=["none", "pass_rate"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--family", default="", help="whose success is looked at; all unless given")
    parser.add_argument("--out", type=Path, default=Path("runs/curriculum"))
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    header = ["curriculum", "seed", *(f"{mark:.0%}" for mark in MARKS), "last", "episodes"]
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for curriculum in options.curricula:
        for seed in options.seeds:
            folder = options.out / f"{curriculum}{seed}"
            if not (folder / "wall_s").exists():
                run(folder, seed, [*LOOKS, *options.overrides, f"curriculum={curriculum}"])
            seen = list(looks(folder, options.family))
            marks = [str(reached(seen, mark) or "never") for mark in MARKS]
            row = [curriculum, str(seed), *marks, f"{seen[-1][1]:.0%}", str(seen[-1][0])]
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
