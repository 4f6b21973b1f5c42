"""A checkpoint of a run, or of one of its users, as a folder to hand on: the model or its adapter
alone, a card, nothing of the learner."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files.files import replace_text
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.files.remote_folder import is_address
from clawrl_gym.core.metrics import METRICS_FILE, best_heldout, by_step
from clawrl_gym.core.ownership import OWNER
from clawrl_gym.inference.models.resolve import HUB_ID, checkpoint_dtype, resolve_model
from clawrl_gym.inference.weights.adapter_files import (
    ADAPTER,
    ADAPTER_SETTINGS,
    ADAPTER_WEIGHTS,
    AdapterFiles,
)
from clawrl_gym.inference.weights.checkpoints import CHECKPOINTS, WEIGHTS, list_checkpoints, run_of
from clawrl_gym.inference.weights.files import (
    DTYPE_BYTES,
    check_whole,
    files_beside_weights,
    weight_files,
)
from clawrl_gym.inference.weights.remote_run import RemoteRun
from clawrl_gym.inference.weights.whole_model import base_model, holds_adapter, write_whole
from clawrl_gym.run_folder.folder import RunFolder, free_bytes
from clawrl_gym.run_folder.model_card import CARD, CARD_TAG, model_card
from clawrl_gym.serving.users import USERS_FOLDER, checkpoints_of

if TYPE_CHECKING:
    from torch import Tensor

Dtype = Literal["float32", "bfloat16", "float16"]
Form = Literal["merged", "adapter"]
_STORED = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
"""safetensors' names of the element types that can be converted to one another."""
_MARGIN_BYTES = 100 << 20


@dataclass(frozen=True, slots=True)
class Exported:
    """A model's folder that was written."""

    folder: Path
    step: int
    """The update after which its weights were saved."""
    dtype: str
    """Element type of its weights."""


def export_run(
    run: Path | str,
    out: Path | str,
    *,
    step: int | Literal["last", "best"] = "last",
    dtype: Dtype | None = None,
    form: Form = "merged",
    force: bool = False,
    user: str = OWNER,
) -> Exported:
    """Write a checkpoint of the run's folder `run` as a model's folder `out`, with a model card.

    `run` may be an address, as `learner.remote_checkpoints` fills it: ADDRESS/NAME.
    `step` is an update, the newest one, or the best on held-out tasks; `dtype` None is what the run
    served in, of an adapter what it was learned in. `form`: `merged` is a whole model, `adapter` a
    folder of PEFT. `force` replaces a folder that an export wrote, never another one. `user`: whose
    weights; the run's own by default. `out` appears when it is whole. Raises ConfigError for what
    cannot be written.
    """
    remote = RemoteRun(str(run)) if is_address(str(run)) else None
    folder, out = _records_of(remote) if remote else RunFolder(_run_dir(Path(run))), Path(out)
    values = folder.read_values()
    chosen, source = _choose(folder, step, user, remote)
    if remote is not None:
        remote.fetch(chosen)
    model = _model_of(source, values)
    served = dtype or ("float32" if form == "adapter" else checkpoint_dtype(model))
    wanted = served if served in DTYPE_BYTES else "float32"
    weights = [_adapter_of(source).weights] if form == "adapter" else _weights_below(source, model)
    try:
        size = sum(_size(path, wanted) for path in weights)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the checkpoint {source} has no weights to export: {error}") from error
    _check_place(out, folder.path, force=force)
    _check_space(out, size)
    with _appearing(out) as partial:
        if form == "adapter":
            _write_adapter(source, model, values, partial, wanted)
        else:
            _write_model(source, model, partial, wanted)
        name = out.resolve().name
        card = model_card(
            folder,
            values,
            model,
            chosen,
            wanted,
            name,
            is_adapter=form == "adapter",
            is_of_user=user != OWNER,
        )
        replace_text(partial / CARD, card)
    return Exported(out, chosen, wanted)


def _write_model(source: Path, model: Path, out: Path, dtype: str) -> None:
    """A whole model, as transformers and vLLM load it."""
    for file in files_beside_weights(model):
        shutil.copyfile(file, out / file.name)
    if holds_adapter(source):
        write_whole(source, resolve_model, out, dtype)
    else:
        _write_weights(source / WEIGHTS, out / WEIGHTS, dtype)
    _name_dtype(out / "config.json", dtype)


def _write_adapter(
    source: Path, model: Path, values: dict[str, object], out: Path, dtype: str
) -> None:
    """The adapter alone, as PEFT and vLLM load it; it names the model that it stands on."""
    adapter = _adapter_of(source)
    _write_weights(adapter.weights, out / ADAPTER_WEIGHTS, dtype)
    settings = json.loads((adapter.folder / ADAPTER_SETTINGS).read_text(encoding="utf-8"))
    policy = values.get("policy")
    name = str(policy.get("model")) if isinstance(policy, dict) else ""
    is_on_hub = HUB_ID.match(name) is not None and not Path(name).exists()
    settings["base_model_name_or_path"] = name if is_on_hub else str(model.resolve())
    replace_text(out / ADAPTER_SETTINGS, json.dumps(settings, indent=2) + "\n")


def _adapter_of(source: Path) -> AdapterFiles:
    """Adapter of a checkpoint. Raises ConfigError for one of all weights."""
    adapter = AdapterFiles(source / ADAPTER)
    if not adapter.weights.is_file():
        raise ConfigError(
            f"got --form adapter for {source}, which holds all weights, expected a checkpoint of "
            "learner=lora: take --form merged"
        )
    return adapter


def _run_dir(path: Path) -> Path:
    """A run's folder. Raises ConfigError for another path, with what was probably meant."""
    inside = run_of(str(path))
    if inside is not None and not RunFolder(path).exists:
        raise ConfigError(
            f"got the checkpoint {path}, expected its run and the update: {inside} with step "
            f"{int(path.name)} (--step {int(path.name)})"
        )
    RunFolder(path).require_run()
    return path


def _records_of(remote: RemoteRun) -> RunFolder:
    """Records of a run whose checkpoints are elsewhere. Raises ConfigError."""
    remote.checkpoints()  # there is one
    remote.fetch_records()
    return RunFolder(remote.folder)


def _choose(
    folder: RunFolder, step: int | str, user: str, remote: RemoteRun | None
) -> tuple[int, Path]:
    """The update that is meant, and its checkpoint. Raises ConfigError with those there are."""
    run = remote.address if remote else str(folder.path)
    if remote is not None and user != OWNER:
        raise ConfigError(f"got --user {user} and {run}, where no user's own weights are copied")
    place = checkpoints_of(folder.path, user)
    checkpoints = remote.checkpoints() if remote else list_checkpoints(place)
    whose = run if user == OWNER else f"{user} in {run}"
    if not checkpoints:
        why = "nothing was learned yet, or they were removed"
        if user != OWNER:
            why += ", or all users share one set of weights"
        raise ConfigError(f"{whose} has no checkpoint in {place}: {why}")
    numbers = ", ".join(map(str, checkpoints))
    if step == "last":
        step = max(checkpoints)
    if step == "best":
        # what is measured is of the run's own weights
        rows = by_step(read_json_lines(folder.path / METRICS_FILE)) if user == OWNER else []
        best = best_heldout(rows, checkpoints)
        if best is None:
            raise ConfigError(
                f"no checkpoint of {whose} was measured on held-out tasks (eval.every), "
                f"expected step last or one of {numbers}"
            )
        step = best
    if not isinstance(step, int) or step not in checkpoints:
        raise ConfigError(
            f"got step {step!r}, expected one of the checkpoints of {whose}: {numbers}, or "
            "last or best"
        )
    return step, checkpoints[step]


def _model_of(checkpoint: Path, values: dict[str, object]) -> Path:
    """The folder with what stands beside the weights: the checkpoint's own, unless it is old or
    holds an adapter alone."""
    if holds_adapter(checkpoint):
        return base_model(checkpoint, resolve_model)
    if (checkpoint / "config.json").is_file():
        return checkpoint
    policy = values.get("policy")
    model = policy.get("model") if isinstance(policy, dict) else None
    return resolve_model(str(model))


def _weights_below(checkpoint: Path, model: Path) -> list[Path]:
    """Files of all weights that the model has."""
    if not holds_adapter(checkpoint):
        return [checkpoint / WEIGHTS]
    return [path for name, path in weight_files(model).items() if name.endswith(".safetensors")]


def _size(weights: Path, dtype: str) -> int:
    """Bytes of the weights in an element type. Raises ValueError when they are not whole."""
    return sum(
        prod(tensor["shape"]) * DTYPE_BYTES[dtype]
        if tensor["dtype"] in _STORED
        else tensor["data_offsets"][1] - tensor["data_offsets"][0]
        for tensor in check_whole(weights).values()
    )


def _check_place(out: Path, run: Path, *, force: bool) -> None:
    if out.is_file() or (out.is_symlink() and not out.exists()):
        raise ConfigError(f"got {out}, which is a file, expected a folder that is new or empty")
    own = [(run / name).resolve() for name in (CHECKPOINTS, USERS_FOLDER)]
    if out.resolve() == run.resolve() or {*own} & {out.resolve(), *out.resolve().parents}:
        raise ConfigError(f"got {out}, which belongs to the run, expected a folder of its own")
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not force:
        raise ConfigError(
            f"{out} is not empty: choose another folder, or --force to replace an earlier export"
        )
    if not _is_export(out):
        raise ConfigError(
            f"{out} holds something else than an earlier export ({CARD} with the tag {CARD_TAG}, "
            "no folders): --force does not replace it; choose another folder"
        )


def _is_export(folder: Path) -> bool:
    try:
        card = (folder / CARD).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return f"- {CARD_TAG}\n" in card and all(path.is_file() for path in folder.iterdir())


def _check_space(out: Path, size: int) -> None:
    free, needed = free_bytes(out), size + _MARGIN_BYTES
    if free < needed:
        raise ConfigError(
            f"got {free >> 20} MB free at {out}, expected {needed >> 20} MB for the export: "
            "free some space, choose another folder, or --dtype bfloat16"
        )


@contextmanager
def _appearing(out: Path) -> Iterator[Path]:
    """A folder to write into, which becomes `out` at the end; it is removed after an error."""
    place = out.resolve()
    partial = place.with_name(f".{place.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        shutil.rmtree(place, ignore_errors=True)
        partial.rename(place)
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_weights(source: Path, target: Path, dtype: str) -> None:
    if {tensor["dtype"] for tensor in check_whole(source).values()} == {_name_of(dtype)}:
        shutil.copyfile(source, target)
        return
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    wanted: torch.dtype = getattr(torch, dtype)
    tensors: dict[str, Tensor] = {}
    with safe_open(source, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 (it is no mapping)
            tensor = file.get_tensor(name)
            tensors[name] = tensor.to(wanted) if tensor.is_floating_point() else tensor
    save_file(tensors, target, metadata={"format": "pt"})


def _name_of(dtype: str) -> str:
    return next(stored for stored, name in _STORED.items() if name == dtype)


def _name_dtype(path: Path, dtype: str) -> None:
    """Have config.json name the element type, that of its parts for text and vision too."""
    config = json.loads(path.read_text(encoding="utf-8"))
    config.pop("torch_dtype", None)
    config["dtype"] = dtype
    for part in config.values():
        if isinstance(part, dict) and {"dtype", "torch_dtype"} & part.keys():
            part.pop("torch_dtype", None)
            part["dtype"] = dtype
    replace_text(path, json.dumps(config, indent=2, ensure_ascii=False) + "\n")
