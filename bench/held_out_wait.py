"""Time for which interim held-out evaluations hold the learner up, from runs that have ended.

    python bench/held_out_wait.py RUN [RUN ...]

Of each run: the seconds of its evaluations in between, and those of them in which the learner did
nothing of its own: it neither stepped nor wrote a checkpoint nor waited for a batch.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.metrics import TIMELINE_FILE


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a run's time, in Unix seconds."""

    start_s: float
    end_s: float

    def shared_s(self, other: Span) -> float:
        return max(0.0, min(self.end_s, other.end_s) - max(self.start_s, other.start_s))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    for folder in parser.parse_args().runs:
        measured, learning = _spans(folder)
        whole_s = sum(span.end_s - span.start_s for span in measured)
        idle_s = whole_s - sum(span.shared_s(own) for span in measured for own in learning)
        print(f"{folder}: {len(measured)} in between, {whole_s:.1f} s, learner idle {idle_s:.1f} s")


def _spans(folder: Path) -> tuple[list[Span], list[Span]]:
    """Evaluations between the learner's first and last work, and that work."""
    rows = [dict(row) for row in read_json_lines(folder / TIMELINE_FILE)]
    at = [(row, Span(float(str(row["start_s"])), float(str(row["end_s"])))) for row in rows]
    learning = [span for row, span in at if row["loop"] == "train" or row["name"] == "swap"]
    first_s = min(span.start_s for span in learning)
    last_s = max(span.end_s for span in learning)
    measured = [
        span for row, span in at if row["name"] == "held-out" and first_s < span.start_s < last_s
    ]
    return measured, learning


if __name__ == "__main__":
    main()
