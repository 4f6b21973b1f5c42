"""An adapter's files as PEFT writes them, and the weights of a base with what it adds.

    W' = W + scale B A          scale = alpha / rank, or alpha / sqrt(rank) for rank-stabilized ones

A file of weights is read and written at a time, so that a model is never whole in memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clawrl_gym.inference.weights.files import check_whole, weight_files

if TYPE_CHECKING:
    import torch
    from torch import Tensor

ADAPTER = "adapter"
"""Folder of a checkpoint's adapter."""
ADAPTER_WEIGHTS, ADAPTER_SETTINGS = "adapter_model.safetensors", "adapter_config.json"
BEFORE_NAMES = "base_model.model."
"""Prefix that PEFT writes before the name of every tensor of an adapter."""
_UNKNOWN_FORMS = ("use_dora", "fan_in_fan_out", "modules_to_save", "rank_pattern", "alpha_pattern")
"""Settings that change the sum in ways that nothing here writes."""


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """A PEFT folder."""

    folder: Path

    @property
    def weights(self) -> Path:
        return self.folder / ADAPTER_WEIGHTS

    @property
    def scale(self) -> float:
        """Raises ValueError for settings that are not those of a plain adapter."""
        settings = json.loads((self.folder / ADAPTER_SETTINGS).read_text("utf-8"))
        strange = [name for name in _UNKNOWN_FORMS if settings.get(name)]
        if strange:
            raise ValueError(f"{self.folder} is not a plain adapter: it has {', '.join(strange)}")
        rank, alpha = int(settings["r"]), float(settings["lora_alpha"])
        return alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)


class Deltas:
    """An adapter's changes of weights, by the names that the base's files have for them."""

    def __init__(self, adapter: AdapterFiles, names: Mapping[str, str]) -> None:
        """`names`: weights that the files call otherwise than the adapter does. Raises ValueError
        for an adapter that is not whole."""
        from safetensors.torch import load_file

        check_whole(adapter.weights)
        self._scale = adapter.scale
        self._tensors = load_file(adapter.weights)
        layers = {name.rpartition(".lora_")[0] for name in self._tensors}
        weights = {layer: f"{layer.removeprefix(BEFORE_NAMES)}.weight" for layer in layers}
        self.left = {names.get(weight, weight): layer for layer, weight in weights.items()}
        """Deltas that were not taken yet."""

    def add_to(self, weight: Tensor, name: str) -> Tensor:
        """The sum, in float32; a weight that the adapter leaves alone as it is."""
        layer = self.left.pop(name, None)
        if layer is None:
            return weight
        up, down = (self._tensors[f"{layer}.lora_{part}.weight"].float() for part in "BA")
        if (up.shape[0], down.shape[1]) != weight.shape:
            raise ValueError(
                f"{name} is {list(weight.shape)}, and what the adapter adds to it "
                f"{[up.shape[0], down.shape[1]]}"
            )
        total: Tensor = weight.float() + (up @ down) * self._scale
        return total


def write_sum(
    base: Path, deltas: Deltas, out: Path, *, learned_in: str | None, dtype: str | None
) -> None:
    """Put the weights of `base` with what the adapter adds into the folder `out`.

    `learned_in`: the element type to which the learner had rounded the base; `dtype` that of the
    sum. None: as the files have them. Raises ValueError when the adapter is another base's.
    """
    from safetensors import safe_open
    from safetensors.torch import save_file

    rounded, wanted = _type(learned_in), _type(dtype)
    for file, path in weight_files(base).items():
        if not file.endswith(".safetensors"):
            (out / file).write_bytes(path.read_bytes())
            continue
        tensors: dict[str, Tensor] = {}
        with safe_open(path, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 (it is no mapping)
                weight = weights.get_tensor(name)
                if weight.is_floating_point():
                    weight = deltas.add_to(weight.to(rounded or weight.dtype), name).to(
                        wanted or weight.dtype
                    )
                tensors[name] = weight
        save_file(tensors, out / file, metadata={"format": "pt"})
    if deltas.left:
        raise ValueError(f"it has no {min(deltas.left)}, which the adapter changes")


def _type(name: str | None) -> torch.dtype | None:
    """The torch type; None for what is not an element type of weights, such as `auto`."""
    import torch

    found = getattr(torch, name or "", None)
    return found if isinstance(found, torch.dtype) else None
