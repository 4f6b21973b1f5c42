"""One policy measured on the held-out tasks of every environment of the matrix, and what it scored.

A measurement's folder has a folder for each environment, with its evaluation.json and the
configuration that it was made with: one that was made otherwise is made again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import cast

from clawrl_gym.config import EvaluateConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files import private_files, replace_text
from clawrl_gym.core.metrics import HELDOUT_LOST, HELDOUT_OWN, HELDOUT_SUCCESS
from clawrl_gym.core.types import Json

PLAN_FILE = "measurement.json"
EVALUATION_FILE = "evaluation.json"
_MADE_WITH = "measured_with.json"
_PREFIX = "heldout/"
_NO_SCORES = frozenset(HELDOUT_OWN) - {HELDOUT_SUCCESS}

Scores = Mapping[str, float]
"""By task."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A planned one."""

    name: str
    folder: Path
    columns: Mapping[str, EvaluateConfig]
    """By environment of the matrix."""
    unit = "environments"

    @property
    def steps(self) -> int:
        return len(self.columns)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Of its process."""
        return (str(self.folder),)

    @property
    def record_file(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.json")

    @property
    def log_file(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.log")

    def progress(self) -> int:
        """Environments that are done."""
        return sum(is_measured(config) for config in self.columns.values())

    def write(self) -> None:
        """What its process reads. Raises ConfigError when it cannot be written."""
        columns = {name: config.model_dump(mode="json") for name, config in self.columns.items()}
        try:
            with private_files():
                self.folder.mkdir(parents=True, exist_ok=True)
                replace_text(self.folder / PLAN_FILE, json.dumps(columns, indent=1) + "\n")
        except OSError as error:
            raise ConfigError(f"cannot write {str(self.folder)!r}: {error}") from error


def read_plan(folder: Path) -> dict[str, EvaluateConfig]:
    """What a measurement's folder says is to be measured. Raises ConfigError."""
    try:
        columns = json.loads((folder / PLAN_FILE).read_text(encoding="utf-8"))
        return {name: EvaluateConfig.of(values) for name, values in columns.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"cannot read {str(folder / PLAN_FILE)!r} ({error}), expected a folder that the bench "
            "made"
        ) from error


def folder_of(config: EvaluateConfig) -> Path:
    """Where an environment's evaluation goes."""
    assert config.run.dir is not None  # by the plan
    return Path(config.run.dir)


def is_measured(config: EvaluateConfig) -> bool:
    """Whether an environment was measured in just this way."""
    return _is_of(config) and (folder_of(config) / EVALUATION_FILE).is_file()


def make_room(config: EvaluateConfig) -> None:
    """Remove what an environment was measured with otherwise; what was begun just so goes on."""
    folder = folder_of(config)
    if not _is_of(config):
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / _MADE_WITH, json.dumps(config.model_dump(mode="json"), indent=1) + "\n")


def _is_of(config: EvaluateConfig) -> bool:
    """Whether the folder was begun with this configuration."""
    try:
        made_with = json.loads((folder_of(config) / _MADE_WITH).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(made_with == config.model_dump(mode="json"))


@dataclass(frozen=True, slots=True)
class Measured:
    """What a policy scored."""

    values: dict[str, float] = field(default_factory=dict)
    """Means by measure, such as `terminal success` or `terminal pass@8`."""
    by_task: dict[str, Scores] = field(default_factory=dict)
    """By measure: those that every task has."""
    lost: int = 0
    """Tasks that infrastructure lost; in no mean."""


def read_measured(measurement: Measurement) -> Measured:
    """What is there of it."""
    columns = {
        name: folder_of(config)
        for name, config in measurement.columns.items()
        if is_measured(config)
    }
    return read_evaluations(columns)


def read_evaluations(columns: Mapping[str, Path]) -> Measured:
    """Of evaluations' folders by environment. Raises ConfigError for what cannot be read."""
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
        values |= {f"{column} {name}": value for name, value in _means(metrics).items()}
        values |= {f"{column} {name}": fmean(own.values()) for name, own in scores.items() if own}
        by_task |= {f"{column} {name}": own for name, own in scores.items()}
        lost += int(metrics.get(HELDOUT_LOST, 0))
    return Measured(values, by_task, lost)


def _means(metrics: Json) -> dict[str, float]:
    return {
        name.removeprefix(_PREFIX): float(value)
        for name, value in metrics.items()
        if name.startswith(_PREFIX) and name not in _NO_SCORES and name.count("/") == 1
        if isinstance(value, int | float)
    }


def _scores(episodes: Sequence[Json]) -> dict[str, Scores]:
    """Success, and what else the environment scored of every task."""
    success: dict[str, float] = {}
    others: dict[str, dict[str, float]] = {}
    for episode in episodes:
        task = cast(Json, episode["task"])
        name = str(task["id"] if task["id"] is not None else f"seed {task['seed']}")
        reward = cast(float | None, episode["reward"])
        success[name] = float(reward is not None and reward >= 1.0)
        for score, value in cast(dict[str, float], episode["scores"]).items():
            others.setdefault(score, {})[name] = float(value)
    whole = {score: own for score, own in others.items() if own.keys() == success.keys()}
    return {"success": success, **whole}
