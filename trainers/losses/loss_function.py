"""The loss that a configuration names, bound to its options; its results are checked.

A loss of somebody's own may fail at any batch, so each result is looked at. A wrong one is an error
of the trainer that names the loss, and changes no weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from clawrl_gym.config import LossConfig
from clawrl_gym.core.errors import ClawError, TrainerError
from clawrl_gym.core.plugins import LOSSES
from clawrl_gym.trainers.limits import is_of_memory
from clawrl_gym.trainers.losses.token_loss import LossInputs, TokenLoss


@dataclass(frozen=True, slots=True)
class LossFunction:
    """A loss and its options."""

    name: str
    """Name in the configuration."""
    function: Callable[..., Any]
    options: BaseModel | None = None
    """Options of the loss; None: it takes none."""

    def __call__(self, tokens: LossInputs) -> tuple[Tensor, Tensor]:
        """(M,) the loss of each token, and (M,) bool where a bound has cut it.

        Raises TrainerError for what is no loss of these tokens. Errors of memory pass: they are not
        the loss's.
        """
        arguments = (tokens,) if self.options is None else (tokens, self.options)
        try:
            found = self.function(*arguments)
        except Exception as error:
            if isinstance(error, ClawError) or is_of_memory(error):
                raise
            raise TrainerError(
                f"the loss {self.name} ({LOSSES.key}) raised {type(error).__name__}: {error}"
            ) from error
        return self._checked(found, tokens)

    def _checked(self, found: object, tokens: LossInputs) -> tuple[Tensor, Tensor]:
        given_M = tokens.logprobs_M
        if not isinstance(found, TokenLoss):
            raise self._error(f"a {type(found).__name__}", "a clawrl_gym.TokenLoss")
        loss_M, clipped_M = found.loss_M, found.clipped_M
        if clipped_M is None:
            clipped_M = torch.zeros_like(given_M, dtype=torch.bool)
        for stream, name in ((loss_M, "loss_M"), (clipped_M, "clipped_M")):
            if not isinstance(stream, Tensor) or stream.shape != given_M.shape:
                raise self._error(
                    f"{name} {_form(stream)}",
                    f"a tensor of one number for each token, shape {tuple(given_M.shape)}",
                )
        if given_M.requires_grad and not loss_M.requires_grad:
            raise self._error(
                "loss_M without a gradient", "a function of tokens.logprobs_M, not detached"
            )
        if not bool(loss_M.isfinite().all()):
            self._refuse_endless(loss_M, tokens)
        return loss_M, clipped_M.detach().bool()

    def _refuse_endless(self, loss_M: Tensor, tokens: LossInputs) -> None:
        """Raises TrainerError for a non-finite loss where every number that came in was finite."""
        names = ("logprobs_M", "old_M", "behaviour_M", "advantages_M")
        streams = [getattr(tokens, name) for name in names]
        if not all(bool(stream.isfinite().all()) for stream in streams):
            return  # then it is the weights' doing, or the samples'
        wrong_M = ~loss_M.isfinite()
        at = int(wrong_M.int().argmax())
        values = (
            f"{name} {float(stream[at].detach()):g}"
            for name, stream in zip(names, streams, strict=True)
        )
        raise self._error(
            f"{float(loss_M[at].detach()):g} at {int(wrong_M.sum())} of {len(loss_M)} tokens, such "
            f"as one of {', '.join(values)}",
            "finite numbers",
        )

    def _error(self, got: str, expected: str) -> TrainerError:
        return TrainerError(
            f"got {got} of the loss {self.name} ({LOSSES.key}), expected {expected}"
        )


def _form(stream: object) -> str:
    if isinstance(stream, Tensor):
        return f"of shape {tuple(stream.shape)}"
    return f"of type {type(stream).__name__}"


def build_loss(config: LossConfig) -> LossFunction:
    """The configured loss. Raises ConfigError for what is no loss."""
    plugin = LOSSES.resolve(config.type)
    return LossFunction(config.type, plugin.target, plugin.options(config.options))
