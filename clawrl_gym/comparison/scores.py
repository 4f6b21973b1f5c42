"""Scores of a policy in evaluations, task by task, from their evaluation.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import cast

from clawrl_gym.comparison.measurement import Measurement, folder_of, is_measured
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.metrics import ENV_PREFIX, HELDOUT_LOST, HELDOUT_OWN, HELDOUT_SUCCESS
from clawrl_gym.core.types import Json, is_success
from clawrl_gym.evaluation.settings import EVALUATION_FILE
from clawrl_gym.ui.text import HELDOUT_PREFIX

_NO_SCORES = frozenset(
    name.removeprefix(HELDOUT_PREFIX) for name in HELDOUT_OWN if name != HELDOUT_SUCCESS
)

Scores = Mapping[str, float]
"""Scores by task."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Scores of a policy."""

    values: dict[str, float] = field(default_factory=dict)
    """Means by measure, such as `terminal success` or `terminal pass@8`."""
    by_task: dict[str, Scores] = field(default_factory=dict)
    """Scores that every task has, by measure."""
    lost: int = 0
    """Tasks that infrastructure lost; in no mean."""


def read_measured(measurement: Measurement) -> Measured:
    """Read the measurement's scores, as far as they exist."""
    columns = {
        name: folder_of(config)
        for name, config in measurement.columns.items()
        if is_measured(config)
    }
    return read_evaluations(columns)


def read_evaluations(columns: Mapping[str, Path]) -> Measured:
    """Read evaluations' folders by environment. Raises ConfigError for what cannot be read."""
    values: dict[str, float] = {}
    by_task: dict[str, Scores] = {}
    lost = 0
    for column, folder in columns.items():
        path = folder / EVALUATION_FILE
        try:
            evaluation = json.loads(path.read_text(encoding="utf-8"))
            metrics, episodes = evaluation["metrics"], evaluation["episodes"]
            scores = _scores(episodes)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"cannot read {str(path)!r} ({error}); remove its folder to measure it again"
            ) from error
        values |= heldout_scores(metrics, column, {})
        values |= {f"{column} {name}": fmean(own.values()) for name, own in scores.items() if own}
        by_task |= {f"{column} {name}": own for name, own in scores.items()}
        lost += int(metrics.get(HELDOUT_LOST, 0))
    return Measured(values, by_task, lost)


def heldout_scores(row: Json, env: str, domains: Mapping[str, str]) -> dict[str, float]:
    """The held-out measures in a row of metrics; families are left out.

    `env` names all that was measured, `domains` the environments of a mixture by their own names.
    """
    measures: dict[str, float] = {}
    for name, value in row.items():
        where, _, score = name.rpartition(HELDOUT_PREFIX)
        domain = where.removeprefix(ENV_PREFIX).removesuffix("/")
        column = env if not where else domains.get(domain)
        if column is None or score in _NO_SCORES or "/" in score or score == name:
            continue
        if isinstance(value, int | float):
            measures[f"{column} {score}"] = float(value)
    return measures


def _scores(episodes: Sequence[Json]) -> dict[str, Scores]:
    """Success, reward, and what else the environment scored of every task."""
    success: dict[str, float] = {}
    rewards: dict[str, float] = {}
    others: dict[str, dict[str, float]] = {"reward": rewards}
    for episode in episodes:
        task = cast(Json, episode["task"])
        name = str(task["id"] if task["id"] is not None else f"seed {task['seed']}")
        reward = cast(float | None, episode["reward"])
        solved = cast(bool | None, episode.get("solved"))
        success[name] = float(is_success(reward, solved))
        if reward is not None:
            rewards[name] = reward
        for score, value in cast(dict[str, float], episode["scores"]).items():
            others.setdefault(score, {})[name] = float(value)
    whole = {score: own for score, own in others.items() if own.keys() == success.keys()}
    return {"success": success, **whole}
