"""Frozen weights in 4 bits: NormalFloat of QLoRA (arXiv 2305.14314), by bitsandbytes.

Linear layers alone are rounded, 64 weights to a scale, and the scales themselves to 8 bits; the
output head, embeddings and norms stay as they are. What is learned is learned beside the rounded
weights, so `dense` gives these wherever whole weights are written.
"""

from __future__ import annotations

import importlib.util
import shlex
import sys
from typing import TYPE_CHECKING, Any

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.trainers.models.pages import put_off

if TYPE_CHECKING:
    from torch import Tensor, nn

PACKAGE = "bitsandbytes"
_HEAD = "lm_head"
_KIND = "nf4"


def check_installed(got: str = "learner.base=nf4", instead: str = "learner.base=served") -> None:
    """Raises ConfigError where the package is not installed."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise ConfigError(
            f"got {got}, expected the package {PACKAGE}, which is not installed: run: "
            f"{shlex.quote(sys.executable)} -m pip install {PACKAGE}, or take {instead}"
        )


def round_layers(net: nn.Module, device: str) -> None:
    """Put the model on the device, its linear layers in 4 bits; one whole layer at a time."""
    check_installed()
    from bitsandbytes.nn import Linear4bit, Params4bit
    from torch import nn

    names = [
        name
        for name, module in net.named_modules()
        if isinstance(module, nn.Linear) and name.rpartition(".")[2] != _HEAD
    ]
    for name in names:
        layer = net.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        rounded = Linear4bit(
            layer.in_features,
            layer.out_features,
            bias=layer.bias is not None,
            compute_dtype=layer.weight.dtype,
            quant_type=_KIND,
            device="meta",
        )
        # else a CPU would reorder the weights for itself, and gradients could not pass any more
        rounded.support_avx512bf16_for_cpu = False
        rounded.weight = Params4bit(layer.weight.data, requires_grad=False, quant_type=_KIND)
        if layer.bias is not None:
            rounded.bias = nn.Parameter(layer.bias.data, requires_grad=False)
        parent, _, own = name.rpartition(".")
        net.get_submodule(parent).register_module(own, rounded.to(device))
        put_off(layer.weight.data)
    net.to(device)
    net.is_loaded_in_4bit = True  # type: ignore[assignment]  # what PEFT looks at


def dense(layer: nn.Module) -> Tensor:
    """The weight that a layer computes with."""
    weight: Any = layer.weight
    if getattr(weight, "quant_state", None) is None:
        return weight.data  # type: ignore[no-any-return]
    from bitsandbytes.functional import dequantize_4bit

    return dequantize_4bit(weight.data, weight.quant_state)  # type: ignore[no-any-return]


def is_rounded(layer: nn.Module) -> bool:
    return getattr(getattr(layer, "weight", None), "quant_state", None) is not None


def forget(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A model's tensors without those that say how its weights were rounded."""
    return {name: tensor for name, tensor in state.items() if ".weight." not in name}
