"""Trial of a user's own loss on made-up tokens, before anything is started."""

from __future__ import annotations

import torch

from clawrl_gym.core.errors import ConfigError, TrainerError
from clawrl_gym.trainers.losses.loss_function import LossFunction
from clawrl_gym.trainers.losses.token_loss import LossInputs, ratio

_LENGTHS = (5, 1, 10)
"""Number of tokens of each made-up sequence."""
_TIS_CAP = 2.0


def try_loss(loss: LossFunction) -> None:
    """Raises ConfigError where the loss, or its gradient, is no number for each token.

    Tokens are tried whose policy has not moved (ratios of 1), and has, a little and far; with
    advantages above 0, below and at it.
    """
    for moved in (0.0, 0.3, 4.0):
        _try(loss, moved)


def _try(loss: LossFunction, moved: float) -> None:
    count = sum(_LENGTHS)
    advantages_M = torch.arange(count) % 3 - 1.0
    draw = torch.Generator().manual_seed(0)
    old_M, shift_M, other_M = (torch.randn(count, generator=draw) for _ in range(3))
    old_M = -old_M.exp()
    lp_M = (old_M + moved * shift_M).clamp(max=0.0).requires_grad_()
    behaviour_M = (old_M + moved * other_M).clamp(max=0.0)
    tokens = LossInputs(
        logprobs_M=lp_M,
        old_M=old_M,
        behaviour_M=behaviour_M,
        advantages_M=advantages_M,
        importance_M=ratio(old_M, behaviour_M).clamp(max=_TIS_CAP),
        rows_M=torch.arange(len(_LENGTHS)).repeat_interleave(torch.tensor(_LENGTHS)),
    )
    before = [stream.detach().clone() for stream in (lp_M, old_M, behaviour_M, advantages_M)]
    try:
        loss_M, _ = loss(tokens)
        loss_M.sum().backward()  # type: ignore[no-untyped-call]
    except (TrainerError, RuntimeError) as error:
        raise ConfigError(f"{error} (tried on {count} made-up tokens before the start)") from error
    after = (lp_M, old_M, behaviour_M, advantages_M)
    if not all(torch.equal(one, other) for one, other in zip(before, after, strict=True)):
        raise ConfigError(
            f"the loss {loss.name} changed what it was given, expected it to make tensors of its "
            "own: others read these after it"
        )
    gradient_M = lp_M.grad
    if gradient_M is None or not gradient_M.isfinite().all():
        raise ConfigError(
            f"got a gradient that is not finite of the loss {loss.name} on made-up tokens whose "
            f"log-probs moved by about {moved:g}, expected numbers: a root or a quotient at 0, "
            "or an exponential of something large?"
        )
