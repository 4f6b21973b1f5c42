"""Training record of one of our runs: rewards by update, policy lag, seconds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.inference.weights.adapter_files import ADAPTER
from clawrl_gym.inference.weights.checkpoints import last_checkpoint
from clawrl_gym.store.rows import unpack_ints

_REWARDS = """
    SELECT groups.used_by AS used, groups.group_id AS number, sessions.reward AS reward
    FROM groups JOIN sessions ON sessions.group_id = groups.group_id
    WHERE groups.used_by IS NOT NULL AND sessions.reward IS NOT NULL
    ORDER BY groups.used_by, groups.group_id, sessions.id
"""
_SAMPLED = """
    SELECT sessions.reward AS reward, turns.versions AS versions
    FROM sessions JOIN turns ON turns.session_id = sessions.id
    WHERE sessions.split = 'train' AND sessions.reward IS NOT NULL
"""
_SPAN = """
    SELECT (SELECT MAX(created_s) FROM updates) - (SELECT MIN(created_s) FROM sessions) AS span
"""


def training_of(run: Path) -> dict[str, Any]:
    """The same fields as the other trainer's train.json, and `by_version`."""
    with closing(sqlite3.connect(f"file:{run / 'run.db'}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        updates: dict[int, dict[int, list[float]]] = {}
        for row in database.execute(_REWARDS):
            updates.setdefault(row["used"], {}).setdefault(row["number"], []).append(row["reward"])
        versions: dict[int, list[float]] = {}
        for row in database.execute(_SAMPLED):
            sampled = unpack_ints(row["versions"])
            versions.setdefault(round(sum(sampled) / len(sampled)), []).append(row["reward"])
        (span,) = database.execute(_SPAN).fetchone()
    rows = [row for row in read_json_lines(run / "metrics.jsonl") if "swap/pause_s" in row]
    return {
        "updates_s": span,
        "rewards": [list(groups.values()) for _, groups in sorted(updates.items())],
        "by_version": {
            str(version): sum(rewards) / len(rewards)
            for version, rewards in sorted(versions.items())
        },
        "policy_lag": [row.get("staleness/mean", 0.0) for row in rows],
        "masked": [row.get("learner/masked_share", 0.0) for row in rows],
        "grad_norm": [row.get("learner/grad_norm") for row in rows],
        "lr": [row.get("learner/lr") for row in rows],
        "logprob_gap": [row.get("logprob_gap/mean") for row in rows],
        "waited_s": [row.get("learner/waited_s") for row in rows],
    }


def adapter_of(run: Path) -> Path:
    """The last checkpoint's adapter, as PEFT reads it."""
    return last_checkpoint(run) / ADAPTER
