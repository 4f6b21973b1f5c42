"""The main job over several seeds: what it reached, how long it took, what it used.

    python bench/main_job.py [KEY=VALUE ...] [--out runs/bench] [--seeds 0 1 2]
    python bench/main_job.py env=conversation --out runs/conversation

Runs `python -m clawrl_gym.train` once a seed (or reads a run that is there already) and prints a
Markdown table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from clawrl_gym.core.files.jsonl import each_json_line, read_json_lines

COLUMNS = {
    "seed": "seed",
    "before": "held-out before",
    "after": "after",
    "personalization": "personalization of first replies",
    "correct": "first answers right",
    "wall_s": "wall time",
    "start_s": "start-up",
    "rl_s": "RL",
    "episodes_per_s": "episodes/s",
    "pause": "swap pause median / max",
    "gap": "log-prob gap",
    "memory_gb": "memory",
}


def run(folder: Path, seed: int, overrides: list[str]) -> float:
    """Run one seed; returns its wall time."""
    started_s = time.monotonic()
    subprocess.run(
        [
            sys.executable, "-m", "clawrl_gym.train",
            f"run.dir={folder}", f"seed={seed}", "ui=line", *overrides,
        ],
        check=True,
    )  # fmt: skip
    wall_s = time.monotonic() - started_s
    (folder / "wall_s").write_text(str(wall_s))
    return wall_s


def figures(folder: Path, seed: int) -> dict[str, str]:
    """One row of the table."""
    rows: list[dict[str, Any]] = read_json_lines(folder / "metrics.jsonl")
    started_s = json.loads((folder / "run.json").read_text())["starts"][0]["started_s"]
    held_out = [row for row in rows if "heldout/success" in row]
    updates = [row for row in rows if "swap/pause_s" in row]
    pauses_s = sorted(row["swap/pause_s"] for row in updates)
    gaps = [row["logprob_gap/mean"] for row in updates if row.get("logprob_gap/mean") is not None]
    rates = [row["rollout/episodes_per_s"] for row in updates]
    wall_s = float((folder / "wall_s").read_text())
    return {
        "seed": str(seed),
        "before": _share(held_out[0]),
        "after": _share(held_out[-1]),
        "personalization": _change(held_out, "heldout/personalization"),
        "correct": _change(held_out, "heldout/correct"),
        "wall_s": _minutes(wall_s),
        "start_s": _minutes(wall_s - (rows[-1]["time_s"] - started_s) + _start_up(folder)),
        "rl_s": _minutes(rows[-1]["time_s"] - held_out[0]["time_s"]),
        "episodes_per_s": f"{sum(rates) / len(rates):.0f}",
        "pause": f"{pauses_s[len(pauses_s) // 2]:.2f} / {pauses_s[-1]:.2f} s",
        "gap": f"{sum(gaps) / len(gaps):.1e}",
        "memory_gb": f"{max(row.get('memory/rss_gb') or 0 for row in updates):.1f} GiB",
    }


def _start_up(folder: Path) -> float:
    """Seconds from the command to the first episode."""
    first: dict[str, Any] = next(each_json_line(folder / "conversations.jsonl"))
    started_s = json.loads((folder / "run.json").read_text())["starts"][0]["started_s"]
    return float(first["time_s"]) - float(started_s)


def _share(row: dict[str, Any]) -> str:
    low, high = row["heldout/low"], row["heldout/high"]
    lost = f", {row['heldout/lost']:.0f} lost" if row.get("heldout/lost") else ""
    return f"{row['heldout/success']:.0%} ({low:.0%} to {high:.0%}{lost})"


def _change(held_out: list[dict[str, Any]], name: str) -> str:
    """Values before and after; empty where the environment measures no such thing."""
    first, last = held_out[0].get(name), held_out[-1].get(name)
    return "" if first is None or last is None else f"{first:.2f} → {last:.2f}"


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    rows = []
    for seed in options.seeds:
        folder = options.out / f"seed{seed}"
        if not (folder / "wall_s").exists():
            run(folder, seed, options.overrides)
        rows.append(figures(folder, seed))
    names = [name for name in COLUMNS if any(row[name] for row in rows)]
    print("| " + " | ".join(COLUMNS[name] for name in names) + " |")
    print("|" + "---|" * len(names))
    for row in rows:
        print("| " + " | ".join(row[name] for name in names) + " |")


if __name__ == "__main__":
    main()
