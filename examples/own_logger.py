"""A logger of one's own: where metrics go beside metrics.jsonl.

python -m clawrl_gym.train logger=examples.own_logger:CsvLogger \\
    'logger_options.columns=[train/reward, train/success]' trainer.steps=3
"""

import csv
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict


class CsvLogger:
    """A few metrics as a table, metrics.csv in the run's folder."""

    class Options(BaseModel):
        """Checked before anything starts, like every key of the configuration."""

        model_config = ConfigDict(extra="forbid", frozen=True)

        columns: tuple[str, ...] = ("train/reward", "heldout/success")
        """Names of metrics; one that a step has not stays empty."""

    def __init__(self, folder: Path, config: Mapping[str, object], options: Options) -> None:
        """`config` is the whole configuration, to be kept beside the curves where one likes."""
        self._columns = options.columns
        self._file = (folder / "metrics.csv").open("a", newline="")
        self._table = csv.writer(self._file)
        self._table.writerow(["step", *self._columns])

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """The metrics of one update, or of an evaluation after it."""
        self._table.writerow([step, *(values.get(name, "") for name in self._columns)])
        self._file.flush()

    def close(self) -> None:
        """The run is over."""
        self._file.close()
