"""Where metrics go in addition to metrics.jsonl: TensorBoard or Weights & Biases, if asked for.

Neither package is needed to import this; one that is missing is a ConfigError with the cure.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from clawrl_gym.core.errors import ConfigError


class Logger(Protocol):
    """Where metrics go in addition to metrics.jsonl."""

    def log(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoardLogger:
    """Event files below `folder`/tensorboard, written without torch."""

    def __init__(self, folder: Path) -> None:
        try:
            writer = importlib.import_module("tensorboard.summary.writer.event_file_writer")
            self._events = importlib.import_module("tensorboard.compat.proto.event_pb2")
            self._summaries = importlib.import_module("tensorboard.compat.proto.summary_pb2")
        except ImportError as error:
            raise ConfigError(
                "logger=tensorboard needs the package tensorboard, which is not installed; "
                "run: pip install 'clawrl-gym[tensorboard]', or take logger=none"
            ) from error
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

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        try:
            wandb = importlib.import_module("wandb")
        except ImportError as error:
            raise ConfigError(
                "logger=wandb needs the package wandb, which is not installed; "
                "run: pip install 'clawrl-gym[wandb]', or take logger=none"
            ) from error
        self._run = wandb.init(
            project="clawrl_gym", name=folder.name, id=folder.name, resume="allow",
            dir=str(folder), config=config,
        )  # fmt: skip

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


def make_sink(logger: str, folder: Path, config: dict[str, Any]) -> Logger | None:
    """The sink named by the configuration's `logger`. Raises ConfigError when it cannot be had."""
    if logger == "none":
        return None
    if logger == "tensorboard":
        return TensorBoardLogger(folder)
    if logger == "wandb":
        return WandbLogger(folder, config)
    raise ConfigError(f"got logger={logger!r}, expected 'none', 'tensorboard' or 'wandb'")
