"""The weights that an optimizer steps on: a model's trained ones, or float32 copies of them in main
memory.

Of the second kind the device has bfloat16 weights alone. Each gradient leaves it as soon as it is
made, is added up in float32, and every step's new weights go back rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from clawrl_gym.config import LearnerConfig
from clawrl_gym.trainers.models.eight_bits import check_form
from clawrl_gym.trainers.models.optimizer import make_optimizer, optimizer_step

_WEIGHTS, _ADAM = "weights", "adam"


class TrainedWeights:
    """The trained parameters of a model, and AdamW."""

    def __init__(self, net: nn.Module, config: LearnerConfig) -> None:
        self._config = config
        self.parameters: list[Parameter] = [p for p in net.parameters() if p.requires_grad]
        self.begin()

    def begin(self) -> None:
        """Restart from the model's current weights."""
        self.optimizer = make_optimizer(self._stepped(), self._config)

    def forget_gradients(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def step(self, rate: float, strength: float) -> Tensor:
        """Make one step, none if the gradient is not finite; returns its norm before clipping."""
        return optimizer_step(self.optimizer, rate, strength, self._config.max_grad_norm)

    def state(self) -> dict[str, object]:
        """State that `take_state` needs beside the model's weights to resume bit by bit."""
        return self.optimizer.state_dict()

    def take_state(self, state: Mapping[str, Any]) -> None:
        check_form(state, self._config)
        self.optimizer.load_state_dict(dict(state))

    def _stepped(self) -> list[Parameter]:
        return self.parameters


class OffloadedWeights(TrainedWeights):
    """Float32 weights in main memory; see the module's docstring."""

    def __init__(self, net: nn.Module, config: LearnerConfig) -> None:
        super().__init__(net, config)
        for parameter, whole in zip(self.parameters, self._whole, strict=True):
            hooked: Any = parameter  # its method is untyped
            hooked.register_post_accumulate_grad_hook(_move_to(whole))

    def begin(self) -> None:
        if not hasattr(self, "_whole"):
            self._whole = [Parameter(_whole(parameter)) for parameter in self.parameters]
        with torch.no_grad():
            for parameter, whole in zip(self.parameters, self._whole, strict=True):
                whole.copy_(parameter)
        super().begin()

    def _stepped(self) -> list[Parameter]:
        return self._whole

    def forget_gradients(self) -> None:
        super().forget_gradients()
        for parameter in self.parameters:
            parameter.grad = None

    def step(self, rate: float, strength: float) -> Tensor:
        norm = super().step(rate, strength)
        if bool(norm.isfinite()):
            self._round()
        return norm

    def state(self) -> dict[str, object]:
        return {_ADAM: super().state(), _WEIGHTS: [whole.detach() for whole in self._whole]}

    def take_state(self, state: Mapping[str, Any]) -> None:
        super().take_state(state[_ADAM])
        with torch.no_grad():
            for whole, kept in zip(self._whole, state[_WEIGHTS], strict=True):
                whole.copy_(kept)
        self._round()

    @torch.no_grad()
    def _round(self) -> None:
        for parameter, whole in zip(self.parameters, self._whole, strict=True):
            parameter.copy_(whole)


def trained_weights(net: nn.Module, config: LearnerConfig) -> TrainedWeights:
    """Trained weights of a model that was loaded for this configuration."""
    is_offloaded = config.offload and config.adapter is None
    return OffloadedWeights(net, config) if is_offloaded else TrainedWeights(net, config)


def _whole(parameter: Parameter) -> Tensor:
    return parameter.detach().to("cpu", torch.float32, copy=True)


def _move_to(whole: Parameter) -> Any:
    """A hook that is called with a parameter once its gradient is made."""

    def move(parameter: Tensor) -> None:
        assert parameter.grad is not None
        gradient = parameter.grad.to("cpu", torch.float32)
        parameter.grad = None
        whole.grad = gradient if whole.grad is None else whole.grad.add_(gradient)

    return move
