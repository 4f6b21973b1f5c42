"""A run's folder: where everything of a run lies, made once, never shared by two runs.

What a run writes is its owner's alone: conversations, keys, and weights that have learnt from them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml

from clawrl_gym.config import CommandConfig, EvaluateConfig, RunConfig, ServeConfig
from clawrl_gym.config.loss import with_loss
from clawrl_gym.core.errors import ConfigError, DiskFull, StoreError
from clawrl_gym.core.files.files import make_private, private_files, replace_text
from clawrl_gym.core.files.folder_lock import holder_of, in_use
from clawrl_gym.core.plain_yaml import plain_values
from clawrl_gym.evaluation.record import unfinished
from clawrl_gym.evaluation.settings import Settings
from clawrl_gym.inference.weights.checkpoints import CHECKPOINTS, list_checkpoints
from clawrl_gym.store import StoreReader
from clawrl_gym.store.schema import DATABASE_FILE

C = TypeVar("C", bound=CommandConfig)
MIN_FREE_BYTES = 500 << 20


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The paths of one run."""

    path: Path

    @property
    def config_file(self) -> Path:
        return self.path / "config.yaml"

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def films(self) -> Path:
        """Pictures of episodes, a JPEG each."""
        return self.path / "films"

    @property
    def serving(self) -> Path:
        """Folder that the first engine loads: the newest weights beside the model's own files."""
        return self.path / "serving"

    @property
    def new_weights(self) -> Path:
        """Folder for the learner's weights, from which they are moved to the servers' folders."""
        return self.serving / "next"

    @property
    def exists(self) -> bool:
        """Whether a run is there."""
        return self.config_file.exists()

    def way_on(self, command: str) -> str:
        """The command that resumes the run in this folder."""
        return f"resume with: python -m clawrl_gym.{command} {shlex.quote(f'resume={self.path}')}"

    def check_new(self) -> None:
        """Raise ConfigError when a run is there, or when the folder cannot be made."""
        if self.exists:
            raise ConfigError(
                f"{self.path} holds a run already; resume it: resume={self.path}, "
                "or choose another folder: run.dir=PATH"
            )
        self.check_usable()

    def check_usable(self) -> None:
        """Raise ConfigError when nothing can be written here, or when another process does."""
        place = existing_parent(self.path)
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            why = "not writable" if place.is_dir() else "a file"
            raise ConfigError(
                f"cannot use the run's folder {self.path}: {place} is {why}; choose another one: "
                "run.dir=PATH"
            )
        owner = holder_of(self.path)
        if owner is not None:
            raise ConfigError(in_use(self.path, owner))
        self.require_space()

    def check_resumable(self) -> None:
        """Raise ConfigError when a run cannot resume here; one that ended before it had a database
        begins."""
        self.check_usable()
        if not (self.path / DATABASE_FILE).exists():
            if list_checkpoints(self.checkpoints):
                raise ConfigError(
                    f"cannot resume {self.path}: it has checkpoints and no {DATABASE_FILE}; "
                    f"restore that, or begin a new run with the weights: policy.model={self.path}"
                )
            return
        try:
            reader = StoreReader(self.path)
            checkpoints = [row.checkpoint for row in reader.updates() if row.checkpoint]
            reader.close()
        except StoreError as error:
            raise ConfigError(f"cannot resume {self.path}: {error}") from error
        if not checkpoints:
            return
        newest = self.checkpoints / Path(checkpoints[-1]).name
        if not newest.is_dir():
            raise ConfigError(
                f"cannot resume {self.path}: its newest checkpoint {newest} is not there; "
                "restore it, or start a new run"
            )

    def take(self) -> bool:
        """Make a folder that holds a run, or nothing yet, its owner's alone; whether it was not.

        Any other folder may be somebody's home, or /tmp: only what a run adds to it is private.
        """
        if not self.path.is_dir() or not (self.exists or not any(self.path.iterdir())):
            return False
        return make_private(self.path)

    def make(self, config: RunConfig) -> None:
        """Create the folder and write config.yaml. Raises ConfigError when a run is there."""
        self.check_new()
        self.write(config)

    def write(self, config: CommandConfig) -> None:
        """Create what is not there and write config.yaml."""
        try:
            for folder in (self.path, self.checkpoints, self.logs):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make the run's folder {self.path}: {error}") from error
        self.require_space()
        self.config_file.write_text(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))

    def lengthen(self, steps: int) -> None:
        """A run that was told other `trainer.steps` when it went on has them from now on, so that
        the next `resume=` needs none. For whoever holds the folder; all else stays as it is.
        """
        values = self.read_values()
        trainer = values.get("trainer")
        trainer = trainer if isinstance(trainer, dict) else {}
        if trainer.get("steps") == steps:
            return
        values["trainer"] = {**trainer, "steps": steps}
        try:
            with private_files():
                replace_text(self.config_file, yaml.safe_dump(values, sort_keys=False))
        except OSError as error:
            raise StoreError(f"cannot write {self.config_file}: {error}; make room") from error

    def require_space(self) -> None:
        """Raise ConfigError when the disk is nearly full."""
        free = free_bytes(self.path)
        if free < MIN_FREE_BYTES:
            raise ConfigError(
                f"got {free >> 20} MB free at {self.path}, expected at least "
                f"{MIN_FREE_BYTES >> 20} MB: free some space or choose run.dir=PATH elsewhere"
            ) from DiskFull(f"{free >> 20} MB")

    def read_config(self, model: type[C]) -> C:
        """The configuration that the run was started with."""
        return model.of(self.read_values())

    def read_values(self) -> dict[str, object]:
        """The configuration of a run of any command and version, unchecked."""
        self.require_run()
        return read_config_values(self.config_file)

    def require_run(self) -> None:
        """Raise ConfigError where no run is."""
        if not self.exists:
            missing = "" if self.path.exists() else ", there is no such folder"
            raise ConfigError(
                f"{self.path} holds no run (no config.yaml{missing}); "
                "expected the folder of a run: its run.dir, by default one in runs/"
            )


def read_config_values(path: Path) -> dict[str, object]:
    """Values of a config.yaml, with keys of earlier versions under their present names.

    Raises ConfigError when it cannot be read, or is empty.
    """
    try:
        values = plain_values(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        message = " ".join(str(error).split())
        raise ConfigError(f"cannot read {path}: {message}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds no configuration, expected the config.yaml of a run")
    if isinstance(trainer := values.get("trainer"), dict):
        values["trainer"] = with_loss(trainer)
    return values


def existing_parent(path: Path) -> Path:
    """The path itself, or the nearest above it that is there."""
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def free_bytes(path: Path) -> int:
    """Free disk where a path is, or will be."""
    return shutil.disk_usage(existing_parent(path)).free


def folder_of(config: RunConfig) -> RunFolder:
    """Folder of a new run: run.dir, else run.root/run.name, else a name made of what and when."""
    if config.run.dir is not None:
        return RunFolder(Path(config.run.dir))
    stamp = time.strftime("%Y%m%d-%H%M%S")
    control = "" if config.control == "none" else f"control-{config.control}-"
    default_name = f"{control}{config.env_name}-{Path(config.policy.model).name}-{stamp}"
    return RunFolder(Path(config.run.root) / (config.run.name or default_name))


def serving_folder(config: ServeConfig) -> RunFolder:
    """Folder of serving. Raises ConfigError when nothing names one."""
    if config.run.dir is None:
        raise ConfigError("got no run.dir, expected the folder to serve in")
    return RunFolder(Path(config.run.dir))


def evaluation_folder(config: EvaluateConfig, settings: Settings | None = None) -> RunFolder:
    """Folder of an evaluation: as for a run, with a name of its own.

    Without a name, the newest folder in which the same evaluation (`settings`) has not ended and
    is in progress nowhere.
    """
    if config.run.dir is not None:
        return RunFolder(Path(config.run.dir))
    root = Path(config.run.root)
    if config.run.name:
        return RunFolder(root / config.run.name)
    model = config.endpoint.model if config.endpoint.base_url else config.policy.model
    stem = f"evaluate-{config.env.type}-{Path(model).name}"
    begun = None if settings is None else unfinished(root, f"{stem}-*", settings)
    return RunFolder(begun or root / f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}")
