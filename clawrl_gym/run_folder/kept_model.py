"""The model of a run that began with another run's checkpoint, kept in its own folder.

The other run deletes its checkpoints as it goes on; this one needs the files to its end, and again
when it is resumed. They are linked, so they take room only once the other run has let go of them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from clawrl_gym.core.errors import PolicyError, boundary
from clawrl_gym.core.files.files import link_or_copy
from clawrl_gym.inference.models.resolve import checked, resolve_model
from clawrl_gym.inference.weights.checkpoints import KEPT_MODEL, run_of
from clawrl_gym.inference.weights.files import files_beside_weights, weight_files
from clawrl_gym.inference.weights.whole_model import is_made

_MADE_AS = ".made_as"
"""File with the name of a model that was made of an adapter and its base."""


def model_of(folder: Path, model: str) -> Path:
    """The folder of `policy.model`; the run's own one when it is a checkpoint that is gone.

    Raises ConfigError when it cannot be used.
    """
    return kept_model(folder, model) or resolve_model(model)


def kept_model(folder: Path, model: str) -> Path | None:
    """The run's own copy of a checkpoint that is gone; None where the model is looked for."""
    kept = folder / KEPT_MODEL
    gone = run_of(model) is not None and not Path(model).expanduser().exists()
    return checked(kept.resolve()) if gone and kept.is_dir() else None


def keep_model(folder: Path, model: Path) -> Path:
    """Keep a model's folder for the run in `folder` if it is a checkpoint; what the run shall use.

    Raises PolicyError when there is no room.
    """
    if run_of(str(model)) is None and not is_made(model):
        return model
    kept, partial = (folder / name for name in (KEPT_MODEL, f".{KEPT_MODEL}.partial"))
    if is_made(model) and _made_as(kept) == model.name:
        return kept.resolve()  # made again it may differ in a last bit, and adapters stand on it
    with boundary(PolicyError, f"keeping the model {model} in {kept}"):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for source in (*files_beside_weights(model), *weight_files(model).values()):
            link_or_copy(source, partial / source.name)
        if is_made(model):
            (partial / _MADE_AS).write_text(model.name)
        shutil.rmtree(kept, ignore_errors=True)
        partial.rename(kept)
    return kept.resolve()


def _made_as(kept: Path) -> str | None:
    try:
        return (kept / _MADE_AS).read_text()
    except OSError:
        return None
