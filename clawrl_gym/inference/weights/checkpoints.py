"""The checkpoints of a run: folders that transformers and engines load as they are, or adapters.

    runs/NAME/checkpoints/000050/            config, tokenizer, template, model.safetensors
    runs/NAME/checkpoints/000050/learner/    the learner's own: optimizer, random numbers
    runs/NAME/checkpoints/000050/adapter/    of `learner=lora`, instead of the model's files

The number is the update after which it was made. A folder that is still being written has a hidden
name, so what is listed here is whole. Reads names only; `trainers.checkpoint` writes and loads.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from clawrl_gym.core.errors import ConfigError

CHECKPOINTS = "checkpoints"
"""Folder of checkpoints in a run's folder."""
KEPT_MODEL = "model"
"""In a run's folder: the model that it began with, where that was another run's checkpoint."""
WEIGHTS = "model.safetensors"
LEARNER = "learner"
"""Folder of the learner's own state in a checkpoint."""


def checkpoint_dir(checkpoints: Path, version: int) -> Path:
    """Folder of the checkpoint after update `version`, existing or not."""
    return checkpoints / f"{version:06d}"


def list_checkpoints(checkpoints: Path) -> dict[int, Path]:
    """All checkpoints by update, the oldest first."""
    folders = (path for path in checkpoints.glob("[0-9]*") if path.name.isdecimal())
    return {int(path.name): path for path in sorted(folders, key=_number) if path.is_dir()}


def last_checkpoint(run: Path) -> Path:
    """The newest checkpoint of a run. Raises ConfigError when it has none."""
    checkpoints = list_checkpoints(run / CHECKPOINTS)
    if not checkpoints:
        raise ConfigError(
            f"the run {run} has no checkpoint, expected one in {run / CHECKPOINTS} (made after "
            "every learner.checkpoint_every updates)"
        )
    return checkpoints[max(checkpoints)]


def is_run(folder: Path) -> bool:
    """Whether it is a run's folder rather than a model's."""
    return (folder / CHECKPOINTS).is_dir() and not (folder / "config.json").exists()


def run_of(model: str) -> Path | None:
    """The folder of the run that a model's path is a checkpoint of; None for other models."""
    folder = Path(model).expanduser()
    inside = folder.name.isdecimal() and folder.parent.name == CHECKPOINTS
    return folder.parent.parent if inside else None


def pinned(model: str) -> str:
    """A run's folder as its newest checkpoint, so that it means the same tomorrow; others as given.

    Raises ConfigError for a run without a checkpoint.
    """
    folder = Path(model).expanduser()
    return str(last_checkpoint(folder)) if is_run(folder) else model


def why_missing(model: str) -> str | None:
    """Why a model's path does not exist; None when it is not a path here."""
    folder = Path(model).expanduser()
    run = run_of(model)
    if run is not None and (run / CHECKPOINTS).is_dir():
        numbers = ", ".join(path.name for path in list_checkpoints(run / CHECKPOINTS).values())
        return (
            f"the run {run} has no checkpoint {folder.name}, expected one of {numbers or '(none)'}"
        )
    parent = folder.parent
    if str(parent) != "." and parent.is_dir():
        near = difflib.get_close_matches(folder.name, [path.name for path in parent.iterdir()], n=1)
        guess = f" (did you mean {parent / near[0]}?)" if near else ""
        return f"there is no {folder.name!r} in the folder {parent}{guess}"
    return None


def _number(path: Path) -> int:
    return int(path.name)
