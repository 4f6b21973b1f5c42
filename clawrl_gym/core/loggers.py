"""Optional loggers beside metrics.jsonl: TensorBoard or Weights & Biases.

Neither package is needed to import this; a missing one is a ConfigError that says how to install
it.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.installation import how_to_install
from clawrl_gym.core.plugins import LOGGERS


class Logger(Protocol):
    """A destination for metrics in addition to metrics.jsonl."""

    def log(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoardLogger:
    """Event files below `folder`/tensorboard, written without torch."""

    @classmethod
    def from_config(
        cls, part: LoggerOptions, folder: Path, config: Mapping[str, object]
    ) -> TensorBoardLogger:
        return cls(folder)

    def __init__(self, folder: Path) -> None:
        try:
            writer = importlib.import_module("tensorboard.summary.writer.event_file_writer")
            self._events = importlib.import_module("tensorboard.compat.proto.event_pb2")
            self._summaries = importlib.import_module("tensorboard.compat.proto.summary_pb2")
        except ImportError as error:
            raise ConfigError(_missing("tensorboard")) from error
        self._writer = writer.EventFileWriter(str(folder / "tensorboard"))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        value = self._summaries.Summary.Value
        points = [value(tag=name, simple_value=number) for name, number in values.items()]
        summary = self._summaries.Summary(value=points)
        event = self._events.Event(wall_time=time.time(), step=step, summary=summary)
        self._writer.add_event(event)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandbLogger:
    """One Weights & Biases run; the user's own settings and login apply."""

    @classmethod
    def from_config(
        cls, part: LoggerOptions, folder: Path, config: Mapping[str, object]
    ) -> WandbLogger:
        return cls(folder, config)

    def __init__(self, folder: Path, config: Mapping[str, object]) -> None:
        try:
            wandb = importlib.import_module("wandb")
        except ImportError as error:
            raise ConfigError(_missing("wandb")) from error
        self._run = wandb.init(
            project="clawrl_gym", name=folder.name, id=folder.name, resume="allow",
            dir=str(folder), config=dict(config),
        )  # fmt: skip

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


def check_logger(name: str) -> None:
    """Raise ConfigError when the package of a built-in logger is not installed; imports nothing."""
    if name in LOGGERS.builtin and importlib.util.find_spec(name) is None:
        raise ConfigError(_missing(name))


def _missing(name: str) -> str:
    return (
        f"logger={name} needs the package {name}, which is not installed; run: "
        f"{how_to_install(name)}, or take logger=none"
    )


def make_logger(
    name: str, options: Mapping[str, object], folder: Path, config: Mapping[str, object]
) -> Logger | None:
    """The configured logger, None for `none`. Raises ConfigError when it cannot be made.

    A class of your own is called with the run's folder, the whole configuration as plain values,
    and its options if it takes any.
    """
    if name in LOGGERS.words:
        return None
    plugin, part = LOGGERS.resolve(name), LoggerOptions(options)
    logger: Logger = plugin.build(part, folder, config, plain=(folder, config))
    return logger


@dataclass(frozen=True, slots=True)
class LoggerOptions:
    """Arguments that a custom logger is given."""

    options: Mapping[str, object]
