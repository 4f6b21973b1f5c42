"""Configuration of the loss: its type, its options, and its keys of earlier versions."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, model_validator

from clawrl_gym.config.part import Part
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.plugins import LOSSES

_EARLIER = ("surrogate", "clip_low", "clip_high")
"""Keys of `trainer` that are `loss.type` and two of `loss.options` now."""


class LossConfig(Part):
    """The policy-gradient term: the contribution of each sampled token to the loss."""

    type: str = "ppo"
    """`ppo`: clipped ratio of each token (clip_high above clip_low is DAPO's choice); `gspo`: one
    ratio for a whole sequence; `cispo`: the clipped ratio only weighs the log-prob; `sapo`: the
    gradient fades as the ratio leaves 1; `dppo`: bounded by how far a token's probability is from
    the policy that sampled; or a function of your own: package.module:name."""
    options: dict[str, object] = Field(default_factory=dict)
    """Options of the loss. ppo, gspo, cispo: clip_low, clip_high; sapo: tau_pos, tau_neg; dppo:
    divergence, threshold, ratio_cap; one of your own: as the annotation of its `options` says."""

    @model_validator(mode="before")
    @classmethod
    def _fits_its_function(cls, values: object) -> object:
        if isinstance(values, str):
            raise ConfigError(
                f"got trainer.loss={values!r}, expected loss={values}, or {LOSSES.key}={values}"
            )
        return LOSSES.with_options(values, "type", "ppo")


def with_loss(trainer: Mapping[str, object]) -> dict[str, object]:
    """A trainer's plain values, with `surrogate`, `clip_low` and `clip_high` of earlier versions
    moved to their new keys.

    Raises ConfigError where both are there and differ.
    """
    values = {key: value for key, value in trainer.items() if key not in _EARLIER}
    earlier = {key: trainer[key] for key in _EARLIER if key in trainer}
    loss = values.get("loss", {})
    if not earlier or not isinstance(loss, Mapping):
        return dict(trainer)
    options = loss.get("options", {})
    merged = {**loss, "options": dict(options) if isinstance(options, Mapping) else options}
    for key, value in earlier.items():
        place, name = (merged, "type") if key == "surrogate" else (merged["options"], key)
        if place.setdefault(name, value) != value:
            now = LOSSES.key if key == "surrogate" else f"{LOSSES.options_key}.{key}"
            raise ConfigError(
                f"got trainer.{key}={value} and {now}={place[name]}, expected one of them: the "
                f"first is the second's name of earlier versions, leave it out (~trainer.{key})"
            )
    return {**values, "loss": merged}
