"""Low-rank adapters (LoRA, arXiv 2106.09685) beside the frozen weights of a model, by PEFT.

    W' = W + (alpha / rank) B A          only A and B are trained, in float32; B begins as zeros

The model without its adapter is the one that the run began with: the frozen teacher and the
reference of the KL term, at no memory of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clawrl_gym.config import AdapterConfig
from clawrl_gym.core.errors import ConfigError, TrainerError
from clawrl_gym.inference.weights.adapter_files import (
    ADAPTER_SETTINGS,
    ADAPTER_WEIGHTS,
    BEFORE_NAMES,
)
from clawrl_gym.trainers.models import nf4

_NAME = "default"


def add_adapter(net: nn.Module, config: AdapterConfig) -> None:
    """Freeze the model and put an adapter beside the chosen weights. Raises ConfigError."""
    from peft import LoraConfig, inject_adapter_in_model

    modules = config.modules if isinstance(config.modules, str) else list(config.modules)
    layers = _layer_names(net)
    if isinstance(modules, list) and not set(modules) <= layers:
        unknown = sorted(set(modules) - layers)
        raise ConfigError(
            f"got learner.adapter.modules with {', '.join(unknown)}, expected linear layers of the "
            f"model: {', '.join(sorted(layers))}"
        )
    settings = LoraConfig(
        r=config.rank, lora_alpha=config.alpha, target_modules=modules, task_type="CAUSAL_LM"
    )
    inject_adapter_in_model(settings, net)
    for parameter in net.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def merged(net: nn.Module, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """The weights of one model that computes the same as `net` with its adapter, by its own names.

    Where the adapter changes a weight it is summed in float32, and kept as `dtype` in main memory:
    the device has no room for the whole of it.
    """
    from peft.tuners.lora import LoraLayer

    state = {
        name.replace(".base_layer.", "."): tensor
        for name, tensor in nf4.forget(net.state_dict()).items()
        if ".lora_" not in name
    }
    with torch.no_grad():
        for name, module in net.named_modules():
            if isinstance(module, LoraLayer):
                layer: Any = module
                delta: Tensor = layer.get_delta_weight(_NAME)
                whole = nf4.dense(module.get_base_layer()).float() + delta.float()
                state[f"{name}.weight"] = whole.to("cpu", dtype)
            elif nf4.is_rounded(module) and not name.endswith(".base_layer"):
                state[f"{name}.weight"] = nf4.dense(module).to("cpu", dtype)
    return state


@contextmanager
def left_out(net: nn.Module) -> Iterator[None]:
    """Context manager: inside, the model is as it was before it had an adapter."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [module for module in net.modules() if isinstance(module, BaseTunerLayer)]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def trained(net: nn.Module) -> dict[str, Tensor]:
    """The adapter's tensors, by the names of a PEFT file."""
    return {
        BEFORE_NAMES + name.replace(f".{_NAME}.", "."): tensor
        for name, tensor in net.state_dict().items()
        if ".lora_" in name
    }


def names_in_files(net: nn.Module) -> dict[str, str] | None:
    """Names of weights with an adapter that the model's files call otherwise than `net` does. None
    where a weight is also laid out otherwise in the files: the sum cannot be made from these
    then."""
    from peft.tuners.lora import LoraLayer
    from transformers.core_model_loading import revert_weight_conversion

    names = {}
    for name, module in net.named_modules():
        if isinstance(module, LoraLayer):
            weight = f"{name}.weight"
            layer: Any = module
            empty = torch.empty(layer.out_features, layer.in_features, device="meta")
            stored = revert_weight_conversion(net, {weight: empty})
            if [tensor.shape for tensor in stored.values()] != [empty.shape]:
                return None
            names[weight] = next(iter(stored))
    return {own: stored for own, stored in names.items() if own != stored}


def write_adapter(net: nn.Module, folder: Path) -> None:
    """Make `folder` an adapter that PEFT loads beside the model that the run began with."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    _settings(net).save_pretrained(str(folder))
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in trained(net).items()}
    save_file(tensors, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})


def read_adapter(net: nn.Module, folder: Path) -> None:
    """Load what `write_adapter` wrote. Raises TrainerError for an adapter of another form."""
    from safetensors.torch import load_file

    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise TrainerError(
            f"got a checkpoint without an adapter ({folder}), expected one of a run with "
            "learner=lora: resume with learner=adamw, or start from policy.model=CHECKPOINT"
        )
    tensors = load_file(folder / ADAPTER_WEIGHTS)
    own = trained(net)
    shapes, own_shapes = ({name: t.shape for name, t in each.items()} for each in (tensors, own))
    form, own_form = _form(tensors, _alpha_of(folder)), _form(own, _settings(net).lora_alpha)
    if form != own_form:
        raise TrainerError(
            f"got an adapter with {form}, expected the run's own: {own_form}; "
            "leave learner.adapter.* as they were when the run started"
        )
    if others := sorted(name for name, _ in shapes.items() ^ own_shapes.items()):
        raise TrainerError(
            f"got an adapter of another model ({folder}), expected one of the run's own: "
            f"{others[0]} is missing or of another shape"
        )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def _settings(net: nn.Module) -> Any:
    """PEFT's settings of the one adapter."""
    return net.peft_config[_NAME]  # type: ignore[index]


def _alpha_of(folder: Path) -> object:
    try:
        return json.loads((folder / ADAPTER_SETTINGS).read_text("utf-8"))["lora_alpha"]
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown"


def _form(tensors: Mapping[str, Tensor], alpha: object) -> str:
    ranks = {tensor.shape[0] for name, tensor in tensors.items() if ".lora_A." in name}
    names = {name.rpartition(".lora_A.")[0].rpartition(".")[2] for name in tensors} - {""}
    rank = ", ".join(map(str, sorted(ranks)))
    return f"rank {rank}, alpha {alpha} on {', '.join(sorted(names))}"


def _layer_names(net: nn.Module) -> set[str]:
    names = {
        name.rpartition(".")[2]
        for name, module in net.named_modules()
        if isinstance(module, nn.Linear)
    }
    return names - {"lm_head"}
