"""One policy that is measured on the held-out tasks of every environment of the matrix.

A measurement's folder has a folder for each environment, with its evaluation.json and the
configuration that it was made with: one that was made otherwise is made again.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.config import EvaluateConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files.files import private_files, replace_text
from clawrl_gym.evaluation.settings import EVALUATION_FILE

PLAN_FILE = "measurement.json"
_MADE_WITH = "measured_with.json"


@dataclass(frozen=True, slots=True)
class Measurement:
    """A planned one."""

    name: str
    folder: Path
    columns: Mapping[str, EvaluateConfig]
    """Evaluations by environment of the matrix."""
    unit = "environments"

    @property
    def steps(self) -> int:
        return len(self.columns)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Arguments of its process."""
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
        """Write the input of its process. Raises ConfigError when it cannot be written."""
        columns = {name: config.model_dump(mode="json") for name, config in self.columns.items()}
        try:
            with private_files():
                self.folder.mkdir(parents=True, exist_ok=True)
                replace_text(self.folder / PLAN_FILE, json.dumps(columns, indent=1) + "\n")
        except OSError as error:
            raise ConfigError(f"cannot write {str(self.folder)!r}: {error}") from error


def read_plan(folder: Path) -> dict[str, EvaluateConfig]:
    """Read from a measurement's folder what to measure. Raises ConfigError."""
    try:
        columns = json.loads((folder / PLAN_FILE).read_text(encoding="utf-8"))
        return {name: EvaluateConfig.of(values) for name, values in columns.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"cannot read {str(folder / PLAN_FILE)!r} ({error}), expected a folder that the bench "
            "made"
        ) from error


def slug(name: str) -> str:
    """A name as that of a file."""
    return re.sub(r"[^\w.-]+", "_", name).strip("_")[-80:]


def folder_of(config: EvaluateConfig) -> Path:
    """Folder of an environment's evaluation."""
    assert config.run.dir is not None  # by the plan
    return Path(config.run.dir)


def is_measured(config: EvaluateConfig) -> bool:
    """Whether an environment was measured in just this way."""
    return _is_of(config) and (folder_of(config) / EVALUATION_FILE).is_file()


def make_room(config: EvaluateConfig) -> None:
    """Remove what an environment was measured with otherwise; what was begun just so continues."""
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
