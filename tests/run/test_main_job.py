"""What `bench/main_job.py` reads of a run's folder."""

from __future__ import annotations

import json
from pathlib import Path

from bench.main_job import figures

UPDATE = {"swap/pause_s": 0.5, "rollout/episodes_per_s": 2.0, "memory/rss_gb": 1.0}
ROWS = [
    {"step": 0, "time_s": 120, "heldout/success": 0.25, "heldout/low": 0.1, "heldout/high": 0.4},
    {"step": 1, "time_s": 130, **UPDATE, "logprob_gap/mean": 1e-6},
    {"step": 2, "time_s": 140, **UPDATE, "logprob_gap/mean": 3e-6},
    {"step": 2, "time_s": 180, "heldout/success": 0.75, "heldout/low": 0.6, "heldout/high": 0.9},
]


def test_figures_are_the_same_when_logs_were_rotated(tmp_path: Path) -> None:
    turns = [json.dumps({"type": "turn", "time_s": at}) for at in (110, 115)]
    lines = [json.dumps(row) for row in ROWS]
    (tmp_path / "wall_s").write_text("90")
    (tmp_path / "run.json").write_text('{"starts": [{"started_s": 100}]}')
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "conversations.jsonl").write_text("\n".join(turns) + "\n")
    whole = figures(tmp_path, 1)
    assert (whole["before"], whole["after"]) == ("25% (10% to 40%)", "75% (60% to 90%)")
    assert whole["gap"] == "2.0e-06"
    for name, parts in (("metrics", lines), ("conversations", turns)):
        (tmp_path / f"{name}.000001.jsonl").write_text(parts[0] + "\n")
        (tmp_path / f"{name}.jsonl").write_text("\n".join(parts[1:]) + "\n")
    assert figures(tmp_path, 1) == whole
