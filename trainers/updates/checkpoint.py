"""Weights and checkpoints on disk.

A checkpoint is a model's folder, as transformers and vLLM load it, with the learner's own state in
a folder inside. Its weights are those that the learner steps on, in float32; `dtype` in its
config.json is the element type that is served. Of an adapter it holds the adapter alone, as PEFT
has it, and says which weights it was trained beside. Invariant: a reader sees the old file or
folder or the new one, whole, never a part; after a crash too (a checkpoint is flushed to the disk
before it gets its name).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict

import torch
from torch import Tensor

from clawrl_gym.core.errors import TrainerError
from clawrl_gym.core.files.whole_folder import begin_folder, end_folder, finish_folder
from clawrl_gym.core.ownership import OWNER_NAME
from clawrl_gym.inference.weights.adapter_files import ADAPTER
from clawrl_gym.inference.weights.checkpoints import LEARNER, WEIGHTS
from clawrl_gym.inference.weights.files import files_beside_weights
from clawrl_gym.inference.weights.whole_model import Base, digest_of
from clawrl_gym.trainers.models import adapter

if TYPE_CHECKING:
    from clawrl_gym.trainers.models.model import PackedModel

STATE = "state.pt"
_OLD_STATE = "learner.pt"
"""State file of checkpoints of the first version, which hold no model configuration."""


class LearnerState(TypedDict):
    """State that a learner needs beside its weights to resume bit by bit."""

    optimizer: dict[str, object]
    updates: int
    skipped: int
    rng: Tensor
    """State of torch's random generator."""
    average: NotRequired[list[Tensor] | None]
    """The moving average of the weights, where it is the teacher."""
    user: NotRequired[str]
    """User whose weights they are."""


def write_weights(state: dict[str, Tensor], folder: Path, dtype: torch.dtype) -> None:
    """Put `model.safetensors` into `folder`, replacing the one that is there."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.detach().to("cpu", dtype if tensor.is_floating_point() else None).contiguous()
        for name, tensor in state.items()
    }
    partial = folder / f".{WEIGHTS}.{os.getpid()}"
    save_file(tensors, partial, metadata={"format": "pt"})
    partial.replace(folder / WEIGHTS)


def write_state(state: LearnerState, path: Path) -> None:
    """Raises OSError, of a full disk for example; torch's own error would not name the cause."""
    try:
        with path.open("wb") as file:
            torch.save(state, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def write_checkpoint(
    model: PackedModel, state: LearnerState, model_dir: Path, folder: Path
) -> None:
    """Make `folder` hold this checkpoint of a run that began with `model_dir`, and nothing else.

    What cannot be written whole, on a full disk, takes no room afterwards.
    """
    partial = begin_folder(folder)
    own = partial / LEARNER
    try:
        own.mkdir(parents=True)
        write_state(state, own / STATE)
        names = adapter.names_in_files(model.net) if model.adapted else None
        if model.adapted:
            adapter.write_adapter(model.net, partial / ADAPTER)
        if names is None:
            for source in files_beside_weights(model_dir):
                shutil.copyfile(source, partial / source.name)
            write_weights(model.state(), partial, torch.float32)
        else:
            base = Base(str(model_dir.resolve()), digest_of(model_dir), model.base_dtype, names)
            base.write(partial)
        end_folder(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def check_user(folder: Path, user: str) -> None:
    """Raises TrainerError for a checkpoint whose state belongs to another user."""
    path = folder / LEARNER / STATE
    if not path.is_file():
        return
    state: LearnerState = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    written_for = state.get("user", user)  # checkpoints of earlier versions do not say
    if written_for != user:
        raise TrainerError(
            f"got a checkpoint of {written_for or OWNER_NAME} ({folder}), expected one of "
            f"{user or OWNER_NAME}: restore the right one, or remove it"
        )


def read_checkpoint(model: PackedModel, model_dir: Path, folder: Path) -> LearnerState | None:
    """Load the weights that `write_checkpoint` wrote, in this version or the first, into the model.

    Returns the state; None for a checkpoint that was left the weights alone. Raises TrainerError.
    """
    from safetensors.torch import load_file

    finish_folder(folder)
    state_file = folder / LEARNER / STATE
    if (folder / _OLD_STATE).is_file():
        state_file = folder / _OLD_STATE
    needed = {
        folder / WEIGHTS: not (folder / ADAPTER).exists(),
        state_file: state_file.parent.exists(),
    }
    for path, is_needed in needed.items():
        if is_needed and not path.is_file():
            raise TrainerError(
                f"checkpoint {str(folder)!r} has no {path.relative_to(folder)}, expected one that "
                "is whole"
            )
    if model.adapted:
        _check_base(folder, model_dir)
        adapter.read_adapter(model.net, folder / ADAPTER)
    elif (folder / ADAPTER).exists():
        raise TrainerError(
            f"got the checkpoint of a run with an adapter ({folder}), expected one of all weights: "
            "resume with learner=lora, or start from policy.model=CHECKPOINT"
        )
    else:
        model.load_state(load_file(folder / WEIGHTS))
    if not state_file.exists():
        return None
    state: LearnerState = torch.load(state_file, map_location="cpu", weights_only=True)
    return state


def _check_base(folder: Path, model_dir: Path) -> None:
    """Raises TrainerError when the adapter was trained beside other weights."""
    base = Base.read(folder)
    if base is not None and base.digest != (own := digest_of(model_dir)):
        raise TrainerError(
            f"got the adapter of another model ({base.folder}, weights {base.digest[:12]}), "
            f"expected one of {model_dir} (weights {own[:12]}): its files were changed or replaced "
            "since the checkpoint was made"
        )
