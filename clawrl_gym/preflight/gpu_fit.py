"""A configuration's memory on GPUs of several sizes, and settings where it does not fit, by
arithmetic alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from clawrl_gym.cluster.placement import is_apart_here
from clawrl_gym.config import AdapterConfig, CommandConfig
from clawrl_gym.config.part import Part
from clawrl_gym.inference.models.memory import GIB, kv_bytes_per_token
from clawrl_gym.inference.models.shape import ModelShape
from clawrl_gym.preflight.requirements import (
    LEARNER_ON_GPU_GIB,
    Requirements,
    gpu_memory_gib,
    learns,
    requirements_of,
)

GPUS_GIB = (16, 24, 48, 80)
_MARGIN = 0.02
"""Share of a card, for what no arithmetic knows."""
_LARGEST_SHARE = 0.92
Settings = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class GpuFit:
    """One run on one GPU, or on two of the same size."""

    card_gib: float
    needs: Requirements
    share: float
    """Share of the card for vLLM."""
    cached_tokens: int
    """Tokens that vLLM's key-value cache then holds."""
    is_apart: bool
    """Whether the learner has a card for itself."""
    settings: Settings
    """Settings that make it fit; empty when it fits as composed."""
    fits: bool

    @property
    def used_gib(self) -> float:
        """GiB used by vLLM, which takes all of its share, and by the learner at its largest."""
        learner = self.needs.learner.total
        return self.share * self.card_gib + (learner + LEARNER_ON_GPU_GIB if learner else 0.0)


def fit_gpu(config: CommandConfig, shape: ModelShape, card_gib: float) -> GpuFit:
    """The configuration as it is, or with the fewest changes that make it fit."""
    settings: dict[str, object] = {}
    changed = config
    for step in ({}, *_steps(config)):
        settings |= step
        for key, value in step.items():
            changed = _with(changed, key, value)
        needed = {key: value for key, value in settings.items() if _of(config, key) != value}
        plan = _plan(changed, shape, card_gib, needed)
        if plan.fits:
            return plan
    return _plan(config, shape, card_gib, {})


def _plan(config: CommandConfig, shape: ModelShape, card_gib: float, settings: Settings) -> GpuFit:
    needs = requirements_of(config, shape, "cuda")
    learner = needs.learner.total + LEARNER_ON_GPU_GIB if learns(config) else 0.0
    least = needs.engine.total / card_gib
    is_apart = is_apart_here(config)
    rest = 1 - _MARGIN - learner / card_gib
    most = min(_LARGEST_SHARE, 1.0 if is_apart and rest >= 0 else rest)
    share = config.policy.gpu_memory_utilization
    if not least <= share <= most and math.ceil(100 * least) <= math.floor(100 * most):
        share = math.floor(100 * most) / 100
        settings = {**settings, "policy.gpu_memory_utilization": share}
    room = share * card_gib - needs.engine.total + needs.engine.kv_cache
    token = kv_bytes_per_token(config.policy, shape)
    return GpuFit(
        card_gib, needs, share, max(0, int(room * GIB / token)) if token else 0, is_apart,
        settings,
        least <= share <= most,
    )  # fmt: skip


def _steps(config: CommandConfig) -> Iterator[dict[str, object]]:
    """Settings to give up, the cheapest first; each comes on top of those before it."""
    if not learns(config):
        yield from _shorter(config)
        return
    if not config.learner.checkpoint_layers:
        yield {"learner.checkpoint_layers": True}
    if config.learner.adapter is not None:
        if config.learner.base != "nf4":
            yield {"learner.base": "nf4"}
    elif not config.learner.offload:
        yield {"learner.moment_bits": 8}
        yield {"learner.moment_bits": 32, "learner.offload": True}  # in main memory 8 are slow
    yield from _shorter(config)


def _shorter(config: CommandConfig) -> Iterator[dict[str, object]]:
    for tokens in (16384, 8192, 4096):
        if tokens < max(config.policy.max_model_len, config.trainer.max_tokens_per_pack):
            yield {
                key: tokens
                for key, value in (
                    ("policy.max_model_len", config.policy.max_model_len),
                    ("trainer.max_tokens_per_pack", config.trainer.max_tokens_per_pack),
                )
                if value > tokens
            }


def _of(config: CommandConfig, key: str) -> object:
    part, _, name = key.partition(".")
    return getattr(getattr(config, part), name)


def _with(config: CommandConfig, key: str, value: object) -> CommandConfig:
    part, _, name = key.partition(".")
    inner: Part = getattr(config, part)
    return config.model_copy(update={part: inner.model_copy(update={name: value})})


def words(settings: Settings) -> str:
    """Settings as a command line takes them."""
    return " ".join(f"{key}={_value(value)}" for key, value in settings.items())


def _cures(config: CommandConfig, shape: ModelShape, card_gib: float) -> Iterator[str]:
    """Changes that would make it fit."""
    lora = _with(config, "learner.adapter", AdapterConfig())
    if config.learner.adapter is None and fit_gpu(lora, shape, card_gib).fits:
        yield "learner=lora"
    apart = _with(config, "learner.placement", "apart")
    if not is_apart_here(config) and fit_gpu(apart, shape, card_gib).fits:
        yield "two such cards (learner.placement=apart)"
    yield "a smaller model"


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def memory_lines(needs: Requirements) -> Iterator[str]:
    """Memory by part, of one engine and the learner."""
    engine, learner = needs.engine, needs.learner
    yield (
        f"vLLM       {engine.total:6.2f} GiB at least: weights {engine.weights:.2f}, keys and "
        f"values of one whole context {engine.kv_cache:.2f}, adapters {engine.adapters:.2f}, its "
        f"own {engine.working:.2f}"
    )
    if learner.total:
        instead = (
            f"; instead of these, when it steps, {learner.step:.2f}" if learner.step >= 0.01 else ""
        )
        yield (
            f"learner    {learner.total:6.2f} GiB: base {learner.base:.2f}, adapter "
            f"{learner.adapter:.2f}, gradients {learner.gradients:.2f}, optimizer "
            f"{learner.optimizer:.2f}, other models {learner.others:.2f}, activations of a full "
            f"pack {learner.activations:.2f} and the larger of logits {learner.logits:.2f} and one "
            f"layer's backward pass {learner.backward:.2f}{instead}"
        )


def gpus_here() -> dict[str, float]:
    """The cards that are looked at, by name: this machine's, where it has one, and usual ones."""
    own = gpu_memory_gib()
    here = {} if own is None else {"here": own}
    return {**here, **{f"{size} GB": float(size) for size in GPUS_GIB}}


def as_fields(
    config: CommandConfig, shape: ModelShape, cards: Mapping[str, float]
) -> dict[str, object]:
    """All of it as programs read it."""
    needs = requirements_of(config, shape, "cuda")
    plans = {name: fit_gpu(config, shape, card_gib) for name, card_gib in cards.items()}
    return {
        "model": config.policy.model, "parameters": shape.parameters,
        "engine_gib": asdict(needs.engine), "learner_gib": asdict(needs.learner),
        "cards": {
            name: {
                "fits": plan.fits, "used_gib": plan.used_gib, "cached_tokens": plan.cached_tokens,
                "settings": dict(plan.settings),
            }
            for name, plan in plans.items()
        },
    }  # fmt: skip


def gpu_fit_lines(
    config: CommandConfig, shape: ModelShape, cards: Mapping[str, float]
) -> Iterator[str]:
    """A line for each card."""
    for name, card_gib in cards.items():
        plan = fit_gpu(config, shape, card_gib)
        if not plan.fits:
            yield f"{name:<10} does not fit: take {' or '.join(_cures(config, shape, card_gib))}"
            continue
        used = f"{plan.used_gib:6.1f} GiB used" + (" of two" if plan.is_apart else "")
        yield (
            f"{name:<10} {used}: vLLM {plan.share * card_gib:.1f} (keys and "
            f"values of {plan.cached_tokens:,} tokens), learner "
            f"{plan.used_gib - plan.share * card_gib:.1f}; "
            + (f"set {words(plan.settings)}" if plan.settings else "as composed")
        )
